//! Users that come and go while everybody else stays connected.

use serde_json::json;

use super::Stage;
use crate::support::eventually;
use crate::support::place::so;

/// Who is revoked is disconnected and not let in again; nobody else notices, and who is added is let in.
pub(super) fn who_is_revoked_is_gone_and_nobody_else(stage: &mut Stage) {
    let users = &stage.users;
    let shown = users.folder.display().to_string();
    let mut stays = users.plain("client-d-n", "muster.inbox.client.d.n");
    let mut goes = users.plain("client-other-n", "muster.inbox.client.other.n");
    for (plain, domain) in [(&mut stays, "d"), (&mut goes, "other")] {
        let subject = format!("muster.query.client.{domain}.n.cluster.show");
        assert!(plain.ask_json(&subject, &json!({}))["ok"].is_object());
    }
    let variables = users.variables("client-other-n");
    let kept = stage.place.path().join("kept.nk");
    std::fs::copy(users.folder.join("users/client-other-n.nk"), &kept).unwrap();

    let told = users.nobody().json(&format!("auth revoke {shown} client-other-n"));
    assert_eq!((&told["did"], &told["server_told"]), (&"revoked".into(), &true.into()));
    assert!(goes.is_ended(), "who is revoked stays connected");
    assert!(!users.folder.join("users/client-other-n.nk").exists());
    // Somebody has a copy of its key, and some certificate of the authority.
    let with = |(name, value): (String, String)| {
        let file =
            |ending: &str| users.folder.join(format!("users/client-d-n.{ending}")).display().to_string();
        let value = match name.as_str() {
            "MUSTER_NATS_CREDS" => kept.display().to_string(),
            "MUSTER_NATS_CERT" => file("crt"),
            "MUSTER_NATS_KEY" => file("key"),
            _ => value,
        };
        (name, value)
    };
    let copy = crate::support::Muster::with_all(variables.into_iter().map(with).collect());
    assert_ne!(copy.run(&["cluster", "show"]).code, 0);

    users.nobody().run(&["auth", "revoke", &shown, "client-other-n"]).exits(3).tells(&["client-d-n"]);
    users.nobody().run(&["auth", "add", &shown, "client", "d", "n"]).exits(4).tells(&["--name"]);
    users.nobody().run(&["auth", "init", &shown]).exits(4).tells(&["is left as it is"]);
    users.add("client other n");
    let anew = users.muster("client-other-n");
    eventually("who is added is let in", || anew.try_json("cluster show").map(drop));
    copy.run(&["cluster", "show"]).exits(1);

    assert!(stays.ask_json("muster.query.client.d.n.cluster.show", &json!({}))["ok"].is_object());
    for service in &mut stage.services {
        let said = service.said();
        assert!(!said.contains("disconnected from NATS"), "{said}");
    }
    let nobody = stage.users.nobody();
    let elsewhere = stage.place.file("other.pid", format!("{}\n", std::process::id()));
    let said =
        nobody.run(&["auth", "add", &shown, "rep", "c9", "--pid-file", &elsewhere.display().to_string()]);
    said.exits(0).tells(&["nats-server --signal reload="]);
    so(stage.users.folder.join("users/rep-c9.nk").exists(), || "no seed".into()).unwrap();
}
