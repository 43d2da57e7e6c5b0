//! Tests of quotas of domains: a command is refused if its domain would exceed a quota.

use std::time::Duration;

use bbs::{ChangeRequest, Reply};
use schemas::definition::Overlap;
use schemas::message::{Ack, Envelope};
use schemas::names::{ClientName, ProcessGuid};
use schemas::quota::{LimitDomain, Usage};
use schemas::spec::ClientCommand;
use schemas::subject::{DEFAULT_SHARDS, Subject};
use schemas::{Code, Refusal};

use crate::scene::{Fate, Scene};
use crate::{parameterised, periodic, words};

fn answer(scene: &mut Scene, token: u64) -> Result<Ack, Refusal> {
    match scene.answers.remove(&token) {
        Some(Reply::Done(done)) => done,
        other => panic!("{other:?}"),
    }
}

fn ask(scene: &mut Scene, command: ClientCommand) -> Result<Ack, Refusal> {
    let token = scene.client(0, command);
    answer(scene, token)
}

/// Asserts that a command is refused because of a quota, with this text in the message.
fn assert_exceeds(scene: &mut Scene, command: ClientCommand, words: &str) {
    let refusal = ask(scene, command).unwrap_err();
    assert!(refusal.code == Code::QuotaExceeded && refusal.message.contains(words), "{refusal}");
}

fn limit(scene: &mut Scene, [instances, processes_and_tasks, commands_per_second]: [Option<u32>; 3]) {
    let domain = words::domain();
    let exec_sessions = None;
    let order = LimitDomain { domain, instances, processes_and_tasks, commands_per_second, exec_sessions };
    let client = ClientName::new("ops").unwrap();
    let token = scene.ask(0, ChangeRequest::Limit { client, envelope: Envelope::default(), order });
    answer(scene, token).unwrap();
}

fn usage(scene: &Scene) -> Usage {
    scene.bbs(0).world().usage(&words::domain())
}

#[test]
fn instances_grow_to_their_quota_and_shrink_above_it() {
    let mut scene = Scene::with(1, &["c1"]);
    limit(&mut scene, [Some(5), None, None]);
    ask(&mut scene, words::lrp("web", 3)).unwrap();
    assert_exceeds(
        &mut scene,
        words::lrp("api", 3),
        "quota instances of domain shop is 5: 3 are used and 3 more",
    );
    ask(&mut scene, words::scale("web", 5)).unwrap();
    assert_exceeds(&mut scene, words::scale("web", 6), "5 are used and 1 more");
    ask(&mut scene, words::lrp("api", 0)).unwrap();
    // A quota below the current usage stops no instances and no tasks.
    limit(&mut scene, [Some(1), None, None]);
    assert_eq!(usage(&scene), Usage { instances: 5, processes_and_tasks: 2 });
    assert_exceeds(&mut scene, words::scale("api", 1), "quota instances of domain shop is 1: 5 are used");
    ask(&mut scene, words::scale("web", 4)).unwrap();
    assert_exceeds(&mut scene, words::scale("web", 5), "4 are used and 1 more");
    let process_guid = ProcessGuid::new("web").unwrap();
    ask(&mut scene, ClientCommand::LrpRemove { process_guid }).unwrap();
    ask(&mut scene, words::scale("api", 1)).unwrap();
    limit(&mut scene, [Some(2), None, None]);
    ask(&mut scene, words::scale("api", 2)).unwrap();
    // A command that sets the same quotas again records no event.
    limit(&mut scene, [Some(2), None, None]);
    assert_eq!(scene.times("domain.limited.v1").len(), 3);
}

#[test]
fn processes_and_tasks_of_every_kind_share_a_quota() {
    let grow: [fn() -> ClientCommand; 5] = [
        || words::lrp("web", 1),
        || words::task("job", None),
        || periodic::desire(Overlap::Allowed),
        || ClientCommand::ParameterisedDesire(Box::new(parameterised::template(None))),
        || parameterised::dispatch(None),
    ];
    let mut scene = Scene::with(1, &["c1"]);
    for (at, command) in grow.iter().enumerate() {
        let used = u32::try_from(at).unwrap();
        limit(&mut scene, [None, Some(used), None]);
        let words = format!("quota processes_and_tasks of domain shop is {used}: {used} are used and 1 more");
        assert_exceeds(&mut scene, command(), &words);
        limit(&mut scene, [None, Some(used + 1), None]);
        ask(&mut scene, command()).unwrap();
        assert_eq!(usage(&scene).processes_and_tasks, u64::from(used) + 1);
    }
    // A scheduled launch is not refused if it exceeds the quota. The launched task counts as usage.
    limit(&mut scene, [None, Some(0), None]);
    scene.pass(Duration::from_secs(61));
    assert!(usage(&scene).processes_and_tasks > 5);
}

/// Desires processes of 5 instances each. During this time, the journal stores no entry. Returns the number
/// of accepted processes.
fn accepted_together(scene: &mut Scene, names: &[String]) -> usize {
    limit(scene, [Some(10), None, None]);
    scene.fate.insert("muster", Fate::Held);
    let tokens: Vec<u64> = names.iter().map(|name| scene.client(0, words::lrp(name, 5))).collect();
    scene.fate.clear();
    scene.release(|bytes| bytes);
    scene.pass(Duration::from_secs(2));
    tokens.into_iter().filter(|token| answer(scene, *token).is_ok()).count()
}

#[test]
fn commands_in_flight_do_not_exceed_a_quota_together() {
    let of_many_shards: Vec<String> = (0..20).map(|number| format!("p{number}")).collect();
    let shard = |name: &str| Subject::of_process(&ProcessGuid::new(name).unwrap(), DEFAULT_SHARDS);
    let all = (0..).map(|number| format!("p{number}"));
    let of_one_shard: Vec<String> = all.filter(|name| shard(name) == shard("p0")).take(6).collect();
    for names in [of_many_shards, of_one_shard] {
        let mut scene = Scene::with(1, &["c1"]);
        assert_eq!(accepted_together(&mut scene, &names), 2, "{names:?}");
        assert_eq!(usage(&scene).instances, 10);
    }
}

#[test]
fn commands_beyond_the_rate_are_refused_until_time_passes() {
    let mut scene = Scene::with(1, &["c1"]);
    limit(&mut scene, [None, None, Some(1)]);
    ask(&mut scene, words::lrp("web", 0)).unwrap();
    let refused = (0..20).find_map(|number| ask(&mut scene, words::scale("web", number)).err()).unwrap();
    assert_eq!(refused.code, Code::Overloaded);
    assert!(refused.message.contains("quota commands_per_second of domain shop is 1"), "{refused}");
    scene.pass(Duration::from_secs(1));
    ask(&mut scene, words::scale("web", 1)).unwrap();
}
