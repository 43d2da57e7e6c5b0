//! Services on NATS, each killed while commands go on.

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
use crate::support::place::so;
use crate::support::{Cluster, LIMIT, eventually};

/// How long a healed cluster may take to answer again, on a machine that is busy with many clusters.
const HEALED: Duration = Duration::from_secs(20);

/// A command that was acknowledged.
struct Done {
    request: String,
    position: Position,
    asked: Instant,
    at: Instant,
}

type Acknowledged = Arc<Mutex<Vec<Done>>>;

/// Clients that never stop: one changes the scale of a process, one runs tasks.
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
            std::thread::spawn(move || go_on(name, &url, &stop, &acknowledged))
        };
        let threads = vec![begin("scales"), begin("tasks")];
        Self { stop, acknowledged, threads }
    }

    /// Waits until something that was asked after a moment is acknowledged; answers how long after that was.
    fn goes_on_after(&self, moment: Instant) -> Duration {
        let end = Instant::now() + HEALED;
        loop {
            let found = {
                let acknowledged = self.acknowledged.lock().unwrap();
                acknowledged.iter().rev().filter(|done| done.asked > moment).map(|done| done.at).min()
            };
            if let Some(at) = found {
                return at - moment;
            }
            assert!(Instant::now() < end, "no command is acknowledged within {HEALED:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(self) -> Vec<Done> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        std::mem::take(&mut *self.acknowledged.lock().unwrap())
    }
}

/// One client, with one command after the other until it is told to stop.
fn go_on(name: &str, url: &str, stop: &AtomicBool, acknowledged: &Acknowledged) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (domain, who) = (Domain::new("shop").unwrap(), ClientName::new(name).unwrap());
        let client = Client::connect(Target::nats(url)).domain(domain).name(who).await.unwrap();
        let client = client.patience(LIMIT);
        for number in 1.. {
            let request = format!("{name}-{number}");
            let id = RequestId::new(&request).unwrap();
            let asked = Instant::now();
            let answer = command(&client.clone().request(id), name, number).await;
            let position = answer.unwrap_or_else(|error| panic!("{request}: {error}"));
            acknowledged.lock().unwrap().push(Done { request, position, asked, at: Instant::now() });
            if stop.load(Ordering::Relaxed) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    });
}

/// Gives a client's next command; answers where it stands.
async fn command(client: &Client, name: &str, number: u32) -> Result<Position, client::Error> {
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
fn each_may_be_killed_at_will() {
    let order = ["rep-c2", "auctioneer-1", "rep-c1", "rep-c3", "bbs-1", "auctioneer-2", "bbs-2"];
    let mut cluster = Cluster::start(&order);
    for (process, count) in [("moving", 2), ("still", 3)] {
        let file = cluster.place.file(&format!("{process}.toml"), sleeper(process, count));
        cluster.muster().ok(&format!("lrp desire {}", file.display()));
    }
    assert_eq!(cluster.muster().json("cluster show")["durability"], "synced");
    let traffic = Traffic::start(&cluster.server.url());
    traffic.goes_on_after(Instant::now());

    a_bbs_that_leads(&mut cluster, &traffic);
    an_auctioneer_that_leads(&mut cluster);
    every_rep(&mut cluster);
    the_server(&mut cluster, &traffic);
    everything_but_the_server(&mut cluster, &traffic);

    let acknowledged = traffic.end();
    cluster.place.tell(&format!("{} commands were acknowledged", acknowledged.len()));
    cluster.muster().ok("lrp scale moving=4 --timeout 60s");
    cluster.settles(&[("moving", 4), ("still", 3)]);
    every_task_ended(&cluster);
    the_log_is_right(&cluster, &acknowledged);
    let before = still(&cluster);
    for (name, service) in std::mem::take(&mut cluster.services) {
        assert_eq!(service.interrupt().code(), Some(0), "{name}");
    }
    assert_eq!(still(&cluster), before, "containers outlive a rep that is asked to end, too");
}

fn a_bbs_that_leads(cluster: &mut Cluster, traffic: &Traffic) {
    for _ in 0..2 {
        let leader = cluster.leader("bbs");
        cluster.kill9(&leader);
        let healed = traffic.goes_on_after(Instant::now());
        cluster
            .place
            .tell(&format!("the leading BBS was lost: the next command succeeded after {healed:.2?}"));
        cluster.add(&leader);
    }
}

fn an_auctioneer_that_leads(cluster: &mut Cluster) {
    let leader = cluster.leader("auctioneer");
    cluster.kill9(&leader);
    let killed = Instant::now();
    let file = cluster.place.file("late.toml", sleeper("late", 1));
    cluster.muster().ok(&format!("lrp desire {} --timeout 60s", file.display()));
    let healed = killed.elapsed();
    cluster.place.tell(&format!("the leading auctioneer was lost: a new instance ran after {healed:.2?}"));
    cluster.muster().ok("lrp remove late");
    cluster.add(&leader);
}

/// The instances of a process that nobody changes, with their containers and processes.
fn still(cluster: &Cluster) -> BTreeMap<String, BTreeMap<String, BTreeSet<i32>>> {
    let running = running_in(cluster.place.path());
    running.into_iter().filter(|(work, _)| work.starts_with("still/")).collect()
}

fn every_rep(cluster: &mut Cluster) {
    let (before, rows) = (still(cluster), cluster.muster().instances("still").unwrap());
    for cell in ["c1", "c2", "c3"] {
        let incarnation = |cluster: &Cluster| {
            let row = cluster.muster().try_json(&format!("cell show {cell}"))?;
            Ok::<_, String>(row["presence"]["incarnation"].clone())
        };
        let old = incarnation(cluster).unwrap();
        cluster.kill9(&format!("rep-{cell}"));
        assert_eq!(still(cluster), before, "containers outlive their rep");
        cluster.add(&format!("rep-{cell}"));
        eventually("the new rep is known", || {
            let new = incarnation(cluster)?;
            so(new != old, || new.to_string())
        });
    }
    cluster.muster().ok("task list");
    assert_eq!(still(cluster), before, "the same containers, the same processes");
    assert_eq!(cluster.muster().instances("still").unwrap(), rows, "and the log says nothing else");
}

fn the_server(cluster: &mut Cluster, traffic: &Traffic) {
    let before = still(cluster);
    for _ in 0..2 {
        cluster.place.tell("kill -9 nats-server");
        cluster.server.kill9();
        let said = cluster.muster().exits(5, "lrp list --timeout 1s");
        said.tells(&["server unreachable"]);
        cluster.server.restart();
        cluster.place.tell("nats-server is there again");
        let healed = traffic.goes_on_after(Instant::now());
        cluster.place.tell(&format!("the next command succeeded {healed:.2?} later"));
    }
    assert_eq!(still(cluster), before, "what runs runs on");
}

fn everything_but_the_server(cluster: &mut Cluster, traffic: &Traffic) {
    let before = still(cluster);
    let names: Vec<String> = cluster.services.keys().cloned().collect();
    names.iter().for_each(|name| cluster.kill9(name));
    names.iter().rev().for_each(|name| cluster.add(name));
    let healed = traffic.goes_on_after(Instant::now());
    cluster.place.tell(&format!("everything was lost: the next command succeeded after {healed:.2?}"));
    cluster.ready(3);
    assert_eq!(still(cluster), before);
}

fn every_task_ended(cluster: &Cluster) {
    eventually("every task has ended", || {
        let rows = cluster.muster().try_json("task list")?;
        let open = rows.as_array().unwrap().iter().filter(|row| row["state"] != "COMPLETED");
        let open: Vec<&Value> = open.collect();
        so(open.is_empty(), || format!("{open:#?}"))
    });
    // A rep may be killed after it said that a task runs, and before the task does: it is not run a second time.
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

/// No gap, nothing twice, versions without a jump, every acknowledged command once, and a World that says the same.
fn the_log_is_right(cluster: &Cluster, acknowledged: &[Done]) {
    let (mut world, mut ids) = (World::new(), BTreeSet::new());
    let mut requests: BTreeMap<String, Vec<Position>> = BTreeMap::new();
    let mut versions: BTreeMap<Aggregate, u64> = BTreeMap::new();
    for (at, recorded) in cluster.log().iter().enumerate() {
        let position = Position(recorded["position"].as_u64().unwrap());
        assert_eq!(position.0, at as u64 + 1);
        let entry: Entry = serde_json::from_value(recorded["entry"]["known"].clone()).unwrap();
        assert!(ids.insert(entry.id), "{} stands there twice", entry.id);
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
    for Done { request, position, .. } in acknowledged {
        // One that was asked again is answered with where the log stood then.
        let stands = requests.get(request).is_some_and(|at| at.len() == 1 && at[0] <= *position);
        assert!(
            stands,
            "{request} was acknowledged at {position}, and stands at {:?}",
            requests.get(request)
        );
    }
    let elections =
        cluster.muster().json("events list --about cluster").to_string().matches("elected.v1").count();
    let (end, found) = (ids.len(), world.found_by_convergence());
    cluster.place.tell(&format!("{end} entries, {elections} elections, {found} found by convergence"));
    let instances = world.counts().instances;
    let others = instances.unclaimed + instances.claimed + instances.crashed + instances.evacuating;
    assert_eq!((instances.running, others), (7, 0), "what is folded from the log is what runs");
}

#[test]
fn services_may_start_before_the_server() {
    let mut cluster = Cluster::empty();
    cluster.server.kill9();
    for name in ["rep-c1", "auctioneer-1", "bbs-1"] {
        cluster.add(name);
        cluster.services.get_mut(name).unwrap().says("server unreachable");
    }
    cluster.server.restart();
    cluster.ready(1);
    // Who still waits is told to end, and ends.
    cluster.server.kill9();
    cluster.add("bbs-2");
    let mut waits = cluster.services.remove("bbs-2").unwrap();
    waits.says("waiting for it");
    assert_eq!(waits.interrupt().code(), Some(0));
}

#[test]
fn one_name_asked_for_twenty_times_is_one_process() {
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
