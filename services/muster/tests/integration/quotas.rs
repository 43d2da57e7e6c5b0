//! `muster domain limit` and `muster domain show`: quotas of a domain on real processes.

use crate::dev::{LocalCluster, sleeper};
use crate::support::TestDir;

#[test]
fn domain_at_its_quota_may_shrink_and_not_grow() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let muster = &dev.muster;
    let desire = |name: &str, instances| {
        let file = place.write_file(&format!("{name}.toml"), sleeper(name, instances));
        format!("apply {}", file.display())
    };
    let shown = muster.json("domain show shop");
    assert_eq!(shown["quotas"]["instances"], 20_000);
    assert_eq!((&shown["limited"], &shown["used"]["instances"]), (&false.into(), &0.into()));
    muster
        .ok("domain limit shop --instances 2 --exec-sessions 0")
        .expect_output(&["quotas of domain shop are set"]);
    muster.ok(&desire("web", 2));
    muster.wait_until_running("web", 2);

    let refused = muster.exits(4, &desire("api", 1));
    refused.expect_output(&[
        "quota instances of domain shop is 2: 2 are used and 1 more",
        "muster domain limit shop --instances N",
    ]);
    assert_eq!(muster.exits(4, "lrp update web --instances 3 -o json").refusal()["code"], "QuotaExceeded");
    muster
        .exits(126, "instance exec -n web/0 -- true")
        .expect_output(&["quota exec_sessions of domain shop is 0"]);
    // The quota is lowered below the usage. No instance stops, and the process may be scaled down.
    muster.ok("domain limit shop --instances 1");
    muster.wait_until_running("web", 2);
    muster.ok("domain show shop").expect_output(&["2 of 1", "1 of 10000", "set by an operator"]);
    muster.ok("lrp update web --instances 1");
    muster.exits(4, "lrp update web --instances 2");
    muster.exits(2, "domain limit shop").expect_output(&["--instances"]);
    dev.end(&place);
}
