//! Tests of services on NATS. Each service is killed under load.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{Client, Target};
use projections::World;
use schemas::definition::DesiredLrpUpdate;
use schemas::entry::Aggregate;
use schemas::names::{ClientName, Domain, ProcessGuid, RequestId};
use schemas::{Code, Entry, Position, Timestamp, spec};
use serde_json::{Value, json};

use crate::dev::sleeper;
use crate::support::containers::running_in;
use crate::support::test_dir::ensure;
use crate::support::{Cluster, TIMEOUT, eventually};

/// Maximum time until a recovered cluster answers. The machine may be busy with many clusters.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Acknowledged command, with the times of its request and its acknowledgement.
struct AcknowledgedCommand {
    request: String,
    position: Position,
    sent_at: Instant,
    acknowledged_at: Instant,
}

type Acknowledged = Arc<Mutex<Vec<AcknowledgedCommand>>>;

/// Clients that send commands continuously. One client scales a process, and the other client runs tasks.
struct Traffic {
    stop: Arc<AtomicBool>,
    acknowledged: Acknowledged,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    fn start(url: &str) -> Self {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Acknowledged::default());
        let begin = |name: &'static str| {
            let (url, stop, acknowledged) = (url.to_owned(), Arc::clone(&stop), Arc::clone(&acknowledged));
            std::thread::spawn(move || run_client(name, &url, &stop, &acknowledged))
        };
        let threads = vec![begin("scales"), begin("tasks")];
        Self { stop, acknowledged, threads }
    }

    /// Waits until a command that was sent after `moment` is acknowledged. Returns the time from `moment` to
    /// the acknowledgement.
    fn wait_for_command_after(&self, moment: Instant) -> Duration {
        let end = Instant::now() + RECOVERY_TIMEOUT;
        loop {
            let found = {
                let acknowledged = self.acknowledged.lock().unwrap();
                acknowledged
                    .iter()
                    .rev()
                    .filter(|done| done.sent_at > moment)
                    .map(|done| done.acknowledged_at)
                    .min()
            };
            if let Some(at) = found {
                return at - moment;
            }
            assert!(Instant::now() < end, "no command is acknowledged within {RECOVERY_TIMEOUT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(self) -> Vec<AcknowledgedCommand> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        std::mem::take(&mut *self.acknowledged.lock().unwrap())
    }
}

/// Runs one client, which sends one command after the other until `stop` is set.
fn run_client(name: &str, url: &str, stop: &AtomicBool, acknowledged: &Acknowledged) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (domain, who) = (Domain::new("shop").unwrap(), ClientName::new(name).unwrap());
        let client = Client::connect(Target::nats(url)).domain(domain).name(who).await.unwrap();
        let client = client.patience(TIMEOUT);
        for number in 1.. {
            let request = format!("{name}-{number}");
            let id = RequestId::new(&request).unwrap();
            let sent_at = Instant::now();
            let answer = send_command(&client.clone().with_request_id(id), name, number).await;
            let position = answer.unwrap_or_else(|error| panic!("{request}: {error}"));
            acknowledged.lock().unwrap().push(AcknowledgedCommand {
                request,
                position,
                sent_at,
                acknowledged_at: Instant::now(),
            });
            if stop.load(Ordering::Relaxed) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    });
}

/// Sends the next command of a client and returns its position.
async fn send_command(client: &Client, name: &str, number: u32) -> Result<Position, client::Error> {
    if name == "tasks" {
        let task = json!({
            "task_guid": format!("task-{number}"), "domain": "shop", "memory_mb": 1,
            "placement": {"queue": {"deadline_ms": 600_000}}, "action": {"run": {"path": "true"}},
        });
        return Ok(client.desire_task(spec::task(task).unwrap()).await?.position);
    }
    let update = DesiredLrpUpdate { instances: Some(1 + number % 4), ..DesiredLrpUpdate::default() };
    Ok(client.update_lrp(ProcessGuid::new("moving").unwrap(), update).await?.position)
}

#[test]
fn killed_services_recover_and_lose_nothing() {
    let order = ["rep-c2", "auctioneer-1", "rep-c1", "rep-c3", "bbs-1", "auctioneer-2", "bbs-2"];
    let mut cluster = Cluster::start(&order);
    for (process, count) in [("moving", 2), ("still", 3)] {
        let file = cluster.place.write_file(&format!("{process}.toml"), sleeper(process, count));
        cluster.muster().ok(&format!("apply {}", file.display()));
    }
    assert_eq!(cluster.muster().json("cluster show")["durability"], "synced");
    let traffic = Traffic::start(&cluster.server.url());
    traffic.wait_for_command_after(Instant::now());

    kill_leading_bbs(&mut cluster, &traffic);
    kill_leading_auctioneer(&mut cluster);
    kill_every_rep(&mut cluster);
    kill_server(&mut cluster, &traffic);
    kill_all_services(&mut cluster, &traffic);

    let acknowledged = traffic.end();
    cluster.place.print_event(&format!("{} commands were acknowledged", acknowledged.len()));
    cluster.muster().ok("lrp scale moving=4 --timeout 60s");
    cluster.wait_until_settled(&[("moving", 4), ("still", 3)]);
    assert_every_task_ended(&cluster);
    assert_log_is_consistent(&cluster, &acknowledged);
    let before = unchanged_instances(&cluster);
    for (name, service) in std::mem::take(&mut cluster.services) {
        assert_eq!(service.interrupt().code(), Some(0), "{name}");
    }
    assert_eq!(unchanged_instances(&cluster), before, "containers outlive an interrupted rep as well");
}

fn kill_leading_bbs(cluster: &mut Cluster, traffic: &Traffic) {
    for _ in 0..2 {
        let leader = cluster.leader("bbs");
        cluster.kill9(&leader);
        let healed = traffic.wait_for_command_after(Instant::now());
        cluster
            .place
            .print_event(&format!("the leading BBS was lost: the next command succeeded after {healed:.2?}"));
        cluster.start_service(&leader);
    }
}

fn kill_leading_auctioneer(cluster: &mut Cluster) {
    let leader = cluster.leader("auctioneer");
    cluster.kill9(&leader);
    let killed = Instant::now();
    let file = cluster.place.write_file("late.toml", sleeper("late", 1));
    cluster.muster().ok(&format!("apply {} --timeout 60s", file.display()));
    let healed = killed.elapsed();
    cluster
        .place
        .print_event(&format!("the leading auctioneer was lost: a new instance ran after {healed:.2?}"));
    cluster.muster().ok("lrp delete late");
    cluster.start_service(&leader);
}

/// Returns the instances of the process that is never changed, with their containers and processes.
fn unchanged_instances(cluster: &Cluster) -> BTreeMap<String, BTreeMap<String, BTreeSet<i32>>> {
    let running = running_in(cluster.place.path());
    running.into_iter().filter(|(work, _)| work.starts_with("still/")).collect()
}

fn kill_every_rep(cluster: &mut Cluster) {
    let (before, rows) = (unchanged_instances(cluster), cluster.muster().instances("still").unwrap());
    for cell in ["c1", "c2", "c3"] {
        let incarnation = |cluster: &Cluster| {
            let row = cluster.muster().try_json(&format!("cell show {cell}"))?;
            Ok::<_, String>(row["presence"]["incarnation"].clone())
        };
        let old = incarnation(cluster).unwrap();
        cluster.kill9(&format!("rep-{cell}"));
        assert_eq!(unchanged_instances(cluster), before, "containers outlive their rep");
        cluster.start_service(&format!("rep-{cell}"));
        eventually("the new rep is recorded", || {
            let new = incarnation(cluster)?;
            ensure(new != old, || new.to_string())
        });
    }
    cluster.muster().ok("task list");
    assert_eq!(unchanged_instances(cluster), before, "containers and processes are the same");
    assert_eq!(cluster.muster().instances("still").unwrap(), rows, "the instance rows are the same");
}

fn kill_server(cluster: &mut Cluster, traffic: &Traffic) {
    let before = unchanged_instances(cluster);
    for _ in 0..2 {
        cluster.place.print_event("kill -9 nats-server");
        cluster.server.kill9();
        let said = cluster.muster().exits(5, "lrp list --timeout 1s");
        said.expect_output(&["server unreachable"]);
        cluster.server.restart();
        cluster.place.print_event("nats-server is restarted");
        let healed = traffic.wait_for_command_after(Instant::now());
        cluster.place.print_event(&format!("the next command succeeded {healed:.2?} later"));
    }
    assert_eq!(unchanged_instances(cluster), before, "containers keep running");
}

fn kill_all_services(cluster: &mut Cluster, traffic: &Traffic) {
    let before = unchanged_instances(cluster);
    let names: Vec<String> = cluster.services.keys().cloned().collect();
    names.iter().for_each(|name| cluster.kill9(name));
    names.iter().rev().for_each(|name| cluster.start_service(name));
    let healed = traffic.wait_for_command_after(Instant::now());
    cluster
        .place
        .print_event(&format!("every service was killed: the next command succeeded after {healed:.2?}"));
    cluster.wait_until_ready(3);
    assert_eq!(unchanged_instances(cluster), before);
}

fn assert_every_task_ended(cluster: &Cluster) {
    eventually("every task has ended", || {
        let rows = cluster.muster().try_json("task list")?;
        let open = rows.as_array().unwrap().iter().filter(|row| row["state"] != "COMPLETED");
        let open: Vec<&Value> = open.collect();
        ensure(open.is_empty(), || format!("{open:#?}"))
    });
    // A rep may be killed after it has reported that a task runs, but before the task starts. Such a task is
    // not run a second time.
    let rows = cluster.muster().json("task list");
    let killed = |row: &Value| {
        let time = |field: &str| row[field].as_str().unwrap().parse::<Timestamp>().unwrap();
        let (from, to) = (time("epoch"), time("first_completed_at"));
        let mut kills = cluster.kills[&format!("rep-{}", row["cell_id"].as_str().unwrap())].iter();
        row["failure_reason"] == "task container does not exist" && kills.any(|at| (from..=to).contains(at))
    };
    let failed = rows.as_array().unwrap().iter().filter(|row| row["failed"] == true);
    let wrong: Vec<_> = failed.filter(|row| !killed(row)).collect();
    assert!(wrong.is_empty(), "{wrong:#?} {:?}", cluster.kills);
}

/// Checks that the log has no gap, no duplicate entry and no skipped version, and that it contains every
/// acknowledged command once. Also checks that the World (the state folded from the log) matches the running
/// instances.
fn assert_log_is_consistent(cluster: &Cluster, acknowledged: &[AcknowledgedCommand]) {
    let (mut world, mut ids) = (World::new(), BTreeSet::new());
    let mut requests: BTreeMap<String, Vec<Position>> = BTreeMap::new();
    let mut versions: BTreeMap<Aggregate, u64> = BTreeMap::new();
    for (at, recorded) in cluster.entries().iter().enumerate() {
        let position = Position(recorded["position"].as_u64().unwrap());
        assert_eq!(position.0, at as u64 + 1);
        let entry: Entry = serde_json::from_value(recorded["entry"]["known"].clone()).unwrap();
        assert!(ids.insert(entry.id), "entry {} is in the log twice", entry.id);
        for decision in &entry.decisions {
            if let Some(request) = &decision.request_id {
                requests.entry(request.to_string()).or_default().push(position);
            }
            if let Aggregate::Process { .. } | Aggregate::Task { .. } = &decision.aggregate {
                let before = versions.insert(decision.aggregate.clone(), decision.version);
                assert!(before.is_none_or(|before| decision.version == before + 1), "{decision:?}");
            }
        }
        world.fold(position, &entry);
    }
    for AcknowledgedCommand { request, position, .. } in acknowledged {
        // A repeated command is answered with the position of the log at that time.
        let stands = requests.get(request).is_some_and(|at| at.len() == 1 && at[0] <= *position);
        assert!(
            stands,
            "{request} was acknowledged at {position}, but is in the log at {:?}",
            requests.get(request)
        );
    }
    let elections =
        cluster.muster().json("events list --about cluster").to_string().matches("elected.v1").count();
    let (end, found) = (ids.len(), world.found_by_convergence());
    cluster.place.print_event(&format!("{end} entries, {elections} elections, {found} found by convergence"));
    let instances = world.counts().instances;
    let others = instances.unclaimed + instances.claimed + instances.crashed + instances.evacuating;
    assert_eq!((instances.running, others), (7, 0), "the fold of the log matches the running instances");
}

#[test]
fn services_started_before_the_server_wait_for_it() {
    let mut cluster = Cluster::empty();
    cluster.server.kill9();
    for name in ["rep-c1", "auctioneer-1", "bbs-1"] {
        cluster.start_service(name);
        cluster.services.get_mut(name).unwrap().wait_for_log("server unreachable");
    }
    cluster.server.restart();
    cluster.wait_until_ready(1);
    // A service that waits for the server must exit when it is interrupted.
    cluster.server.kill9();
    cluster.start_service("bbs-2");
    let mut waits = cluster.services.remove("bbs-2").unwrap();
    waits.wait_for_log("; retrying");
    assert_eq!(waits.interrupt().code(), Some(0));
}

#[test]
fn concurrent_desires_of_one_guid_create_one_process() {
    let cluster = Cluster::start(&["bbs-1", "bbs-2", "auctioneer-1", "rep-c1"]);
    let mut plain = cluster.plain("racer");
    let body =
        json!({"body": {"process_guid": "web", "domain": "shop", "action": {"run": {"path": "true"}}}});
    for number in 0..20 {
        plain.publish(
            "muster.client.shop.racer.lrp.desire",
            &format!("_INBOX.racer.r{number}"),
            body.to_string().as_bytes(),
        );
    }
    let answers: Vec<Value> = (0..20).map(|_| plain.next().unwrap().json()).collect();
    let done = answers.iter().filter(|answer| answer["ok"].is_object()).count();
    let refused =
        answers.iter().filter(|answer| answer["refused"]["code"] == Code::ResourceExists.to_string());
    assert_eq!((done, refused.count()), (1, 19), "{answers:#?}");
}
