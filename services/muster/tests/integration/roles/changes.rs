//! Users that are added and revoked while other users stay connected.

use serde_json::json;

use super::Stage;
use crate::support::eventually;
use crate::support::test_dir::ensure;

/// Checks that a revoked user is disconnected and can't connect again. Other users are not affected, and a
/// new user can connect.
pub(super) fn assert_only_revoked_user_is_disconnected(stage: &mut Stage) {
    let users = &stage.users;
    let shown = users.folder.display().to_string();
    let mut stays = users.plain("client-d-n", "muster.inbox.client.d.n");
    let mut goes = users.plain("client-other-n", "muster.inbox.client.other.n");
    for (plain, domain) in [(&mut stays, "d"), (&mut goes, "other")] {
        let subject = format!("muster.query.client.{domain}.n.cluster.show");
        assert!(plain.request_json(&subject, &json!({}))["ok"].is_object());
    }
    let variables = users.variables("client-other-n");
    let kept = stage.place.path().join("kept.nk");
    std::fs::copy(users.folder.join("users/client-other-n.nk"), &kept).unwrap();

    let told = users.anonymous().json(&format!("auth revoke {shown} client-other-n"));
    assert_eq!((&told["action"], &told["server_reloaded"]), (&"revoked".into(), &true.into()));
    assert!(goes.wait_for_close(), "the revoked user stays connected");
    assert!(!users.folder.join("users/client-other-n.nk").exists());
    // A copy of the revoked key, used with another certificate of the same authority.
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

    users
        .anonymous()
        .run(&["auth", "revoke", &shown, "client-other-n"])
        .expect_status(3)
        .expect_output(&["client-d-n"]);
    users
        .anonymous()
        .run(&["auth", "add", &shown, "client", "d", "n"])
        .expect_status(4)
        .expect_output(&["--name"]);
    users.anonymous().run(&["auth", "init", &shown]).expect_status(4).expect_output(&["already exists"]);
    users.add("client other n");
    let anew = users.muster("client-other-n");
    eventually("the added user can connect", || anew.try_json("cluster show").map(drop));
    copy.run(&["cluster", "show"]).expect_status(1);

    assert!(stays.request_json("muster.query.client.d.n.cluster.show", &json!({}))["ok"].is_object());
    for service in &mut stage.services {
        let said = service.log();
        assert!(!said.contains("disconnected from NATS"), "{said}");
    }
    let nobody = stage.users.anonymous();
    let elsewhere = stage.place.write_file("other.pid", format!("{}\n", std::process::id()));
    let said =
        nobody.run(&["auth", "add", &shown, "rep", "c9", "--pid-file", &elsewhere.display().to_string()]);
    said.expect_status(0).expect_output(&["nats-server --signal reload="]);
    ensure(stage.users.folder.join("users/rep-c9.nk").exists(), || "rep-c9 has no seed".into()).unwrap();
}
