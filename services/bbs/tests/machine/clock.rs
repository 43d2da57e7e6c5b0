//! Clocks that are set back or forward.

use std::time::Duration;

use bbs::{Input, Reply};
use schemas::container::Epoch;
use schemas::spec::ClientCommand;
use schemas::{Subject, actual};

use crate::scene::Scene;
use crate::words::{self, container, start};

const SECOND: Duration = Duration::from_secs(1);

/// Sets the clock of all processes. Sleeping cells wake up.
fn set(scene: &mut Scene, seconds: i64) {
    let step = Duration::from_secs(seconds.unsigned_abs());
    scene.now = if seconds < 0 { scene.now - step } else { scene.now + step };
    scene.resume();
    for node in 0..scene.bbs.len() {
        scene.input(node, Input::Turn);
    }
}

#[test]
fn clock_jumps_do_not_interrupt_leadership() {
    let mut scene = Scene::with(2, &["c1", "c2", "c3"]);
    scene.client(0, words::lrp("web", 1));
    let epoch = scene.epoch(0, "web");
    scene.report(0, "c1", words::lrp_report("web", 0, epoch, container(1, "c1"), start()));
    for seconds in [-30, 3_600, -3_600, -5] {
        scene.beats.clear();
        set(&mut scene, seconds);
        let from = scene.now;
        scene.pass(10 * SECOND);
        let beats = scene.beats.iter().filter(|(node, at)| *node == 0 && *at >= from).count();
        assert!((15..=18).contains(&beats), "{seconds}: {beats} heartbeats");
    }
    assert_eq!(scene.times("cluster.elected.v1").len(), 1, "no other BBS was elected");
    assert_eq!(scene.times("cell.disappeared.v1"), []);
    assert_eq!(scene.state(0, "web", 0), "RUNNING");
}

#[test]
fn takeover_and_cell_loss_work_after_clock_is_set_back() {
    let mut scene = Scene::with(2, &["c1", "c2", "c3"]);
    scene.pass(SECOND);
    scene.bbs[0] = None;
    set(&mut scene, -30);
    scene.pass(4 * SECOND);
    assert!(scene.bbs(1).leads());
    scene.cells.remove("c1");
    scene.pass(10 * SECOND);
    set(&mut scene, -30);
    scene.pass(12 * SECOND);
    assert_eq!(scene.times("cell.disappeared.v1").len(), 1);
}

#[test]
fn decisions_never_go_back_in_time() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.client(0, words::lrp("web", 1));
    set(&mut scene, -30);
    let epoch = scene.epoch(0, "web");
    scene.report(0, "c1", words::lrp_report("web", 0, epoch, container(1, "c1"), start()));
    assert_eq!(scene.state(0, "web", 0), "RUNNING");
    let of_shard =
        scene.decisions().into_iter().filter(|(at, _)| scene.journal[at - 1].subject.contains("lrp"));
    assert!(of_shard.map(|(_, decision)| decision.at).is_sorted());
}

/// Sets the clock of all processes, and each BBS notices the jump.
fn step(scene: &mut Scene, seconds: i64) {
    let by = Duration::from_secs(seconds.unsigned_abs());
    scene.now = if seconds < 0 { scene.now - by } else { scene.now + by };
    scene.resume();
    for node in 0..scene.bbs.len() {
        scene.input(node, Input::ClockStepped(seconds * 1_000_000_000));
    }
}

#[test]
fn timers_keep_their_duration_after_clock_was_ahead() {
    for (year, takeover) in [(false, false), (false, true), (true, false), (true, true)] {
        let ahead = if year { 365 * 86_400 } else { 3_600 };
        let mut scene = Scene::with(2, &["c1"]);
        scene.client(0, words::lrp("web", 1));
        step(&mut scene, ahead);
        let epoch = scene.epoch(0, "web");
        for number in 1..=4 {
            let crash = actual::Command::Crash { reason: "boom".into(), exit_status: None };
            for step in [start(), crash] {
                scene.report(0, "c1", words::lrp_report("web", 0, epoch, container(number, "c1"), step));
            }
        }
        assert_eq!(scene.state(0, "web", 0), "CRASHED");
        scene.pass(SECOND);
        step(&mut scene, -ahead);
        let leader = usize::from(takeover);
        if takeover {
            scene.bbs[0] = None;
        }
        let restarts = |scene: &mut Scene| {
            let waits = (1..120).find(|_| {
                scene.pass(SECOND);
                scene.state(leader, "web", 0) != "CRASHED"
            });
            waits.unwrap_or(u32::MAX)
        };
        let waited = restarts(&mut scene);
        assert!((25..80).contains(&waited), "{ahead} {takeover}: {waited}");
        let ended = scene.decisions().into_iter().map(|(at, decision)| (at, decision.at));
        let of_shard =
            ended.filter(|(at, _)| scene.journal[at - 1].subject.contains("lrp")).map(|(_, at)| at);
        assert!(of_shard.is_sorted(), "times on a subject never go back");
    }
}

#[test]
fn commands_succeed_during_clock_jumps() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.client(0, words::lrp("web", 1));
    for (seconds, count) in [(86_400, 2), (-86_400, 3), (-3_600, 4), (3_600, 5)] {
        step(&mut scene, seconds);
        let token = scene.client(0, words::scale("web", count));
        assert!(matches!(scene.answers[&token], Reply::Done(Ok(_))), "{seconds}");
        scene.pass(SECOND);
    }
}

#[test]
fn domain_freshness_uses_time_of_its_subject() {
    let mut scene = Scene::with(1, &["c1"]);
    let fresh = |ttl_ms| ClientCommand::DomainUpsert { domain: words::domain(), ttl_ms };
    // The log is ahead of the clock: by an hour and a half on the subject of the process, and by an hour on
    // the subject of the domain.
    set(&mut scene, 5_400);
    scene.client(0, words::lrp("web", 1));
    set(&mut scene, -1_800);
    scene.client(0, fresh(Some(20_000)));
    set(&mut scene, -3_600);
    scene.pass(30 * SECOND);
    // The process of this instance is unknown. It is on the same shard as the process web.
    let of = |name| Subject::of_process(&words::process_guid(name), 4);
    assert_eq!(of("forgotten"), of("web"));
    let epoch = Epoch(scene.now);
    scene.report(0, "c1", words::lrp_report("forgotten", 3, epoch, container(1, "c1"), start()));
    scene.pass(40 * SECOND);
    assert_eq!(scene.state(0, "forgotten", 3), "RUNNING", "it is unknown whether the instance is desired");
    assert_eq!(scene.times("actual.stop_requested.v1"), []);
    scene.client(0, fresh(None));
    scene.pass(40 * SECOND);
    assert_eq!(scene.times("actual.stop_requested.v1").len(), 1);
}
