//! Renewal of certificates and rotation of keys while services run.

use std::fs;

use super::Stage;
use crate::support::Muster;
use crate::support::eventually;
use crate::support::test_dir::ensure;

/// Checks that services use renewed files without a restart, because they read the files at each connect. A
/// new authority renews every certificate, and two services get new nkeys. The server restarts at the end of
/// the renewal and trusts only the new authority. Copies of the old files give no access.
pub(super) fn assert_services_follow_renewed_files(stage: &mut Stage) {
    let folder = stage.users.folder.clone();
    let shown = folder.display().to_string();
    let nobody = stage.users.anonymous();
    for ending in ["nk", "crt", "key"] {
        fs::copy(
            folder.join(format!("users/client-d-n.{ending}")),
            folder.join(format!("users/copy.{ending}")),
        )
        .unwrap();
    }
    let before = connect_counts(stage);

    let rows = nobody.json(&format!("auth renew {shown} --authority --host nats.example"));
    let renewed = rows.as_array().unwrap().len();
    assert_eq!(renewed, 1 + nobody.json(&format!("auth list {shown}")).as_array().unwrap().len());
    for user in ["rep-c1", "bbs"] {
        let rotated = nobody.json(&format!("auth rotate {shown} {user}"));
        assert_eq!((&rotated["action"], &rotated["server_reloaded"]), (&"rotated".into(), &true.into()));
    }
    eventually("services with a new nkey are connected again", || {
        let now = connect_counts(stage);
        let again = |user: &str| now.iter().zip(&before).any(|(new, old)| new.0 == user && new.1 > old.1);
        ensure(again("rep-c1") && again("bbs"), || format!("{before:?} {now:?}"))
    });

    nobody.run(&["auth", "renew", &shown, "--forget-authority"]).expect_status(0);
    let before = connect_counts(stage);
    stage.users.server.restart();
    eventually("every service is connected with its renewed certificate", || {
        let now = connect_counts(stage);
        ensure(now.iter().zip(&before).all(|(new, old)| new.1 > old.1), || format!("{before:?} {now:?}"))
    });
    eventually("the cluster is ready", || {
        let row = stage.users.muster("operator-o").try_json("cluster show")?;
        ensure(!row["auctioneer"].is_null() && row["cells"]["PRESENT"] == 1, || row.to_string())
    });
    for service in &mut stage.services {
        assert!(!service.has_exited(), "{}", service.log());
    }
    let with_copy = |variables: &[&str]| {
        let replaced = stage.users.variables("client-d-n").into_iter().map(|(name, value)| {
            let old = value.replace("client-d-n", "copy");
            if variables.contains(&name.as_str()) { (name, old) } else { (name, value) }
        });
        Muster::with_all(replaced.collect()).run(&["cluster", "show"])
    };
    with_copy(&[]).expect_status(0);
    with_copy(&["MUSTER_NATS_CERT", "MUSTER_NATS_KEY"]).expect_status(5).expect_output(&["UnknownCA"]);
    nobody.run(&["auth", "rotate", &shown, "client-d-n"]).expect_status(0);
    with_copy(&[]).expect_status(0);
    with_copy(&["MUSTER_NATS_CREDS"]).expect_status(1);
}

/// Returns the number of times that each service connected to the server.
fn connect_counts(stage: &Stage) -> Vec<(&'static str, usize)> {
    ["auctioneer", "projector", "bbs", "rep-c1"]
        .map(|user| (user, stage.log(user).matches("connected to NATS").count()))
        .to_vec()
}
