//! The feed: what a subscriber hears of a story, and what it misses nothing of, whoever is killed.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use client::{Client, FeedEvent, Target};
use schemas::Position;
use serde_json::Value;

use crate::dev::{Dev, sleeper};
use crate::support::plain::Plain;
use crate::support::{Cluster, LIMIT, Muster, Place};

/// Where an event stands.
type Id = (u64, u64);

/// A program in Rust that listens from a position on.
struct Listener {
    heard: Receiver<FeedEvent>,
    ids: Vec<Id>,
}

impl Listener {
    fn start(target: Target, after: u64) -> Self {
        let (sender, heard) = channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let client = Client::connect(target).await.unwrap();
                let mut feed = client.feed(Position(after));
                // Until nobody listens any more: the test is over.
                while sender.send(feed.next().await.unwrap()).is_ok() {}
            });
        });
        Self { heard, ids: vec![] }
    }

    /// Hears exactly this, each once and in this order, whatever comes behind it.
    fn hears(&mut self, expected: &[Id]) {
        while self.ids.len() < expected.len() {
            let event =
                self.heard.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("heard only {:?}", self.ids));
            let json: Value = serde_json::from_str(&event.json).unwrap();
            let id = (event.position.0, event.nth);
            assert_eq!(
                (&json["specversion"], &json["id"]),
                (&"1.0".into(), &format!("{}-{}", id.0, id.1).into())
            );
            self.ids.push(id);
        }
        assert_eq!(self.ids[..expected.len()], *expected);
    }
}

/// Every event of the log behind a position.
fn log(muster: &Muster, after: u64) -> Vec<Id> {
    let entries = muster.json("events list");
    let ids = entries.as_array().unwrap().iter().flat_map(|entry| {
        let decisions = entry["entry"]["known"]["decisions"].as_array().unwrap_or_else(|| panic!("{entry}"));
        let events: usize =
            decisions.iter().map(|decision| decision["events"].as_array().unwrap().len()).sum();
        (0..events as u64).map(|nth| (entry["position"].as_u64().unwrap(), nth))
    });
    ids.filter(|id| id.0 > after).collect()
}

/// What a plain subscriber has heard so far: each on the subject that says what it is.
fn told(plain: &mut Plain) -> Vec<Id> {
    let mut ids = vec![];
    while let Some(message) = plain.next_within(Duration::from_millis(300)) {
        let event = message.json();
        let (noun, id) = event["subject"].as_str().unwrap().split_once(':').unwrap_or(("cluster", ""));
        let id = if id.is_empty() {
            event["source"].as_str().unwrap().trim_start_matches("urn:muster:")
        } else {
            id
        };
        let kind = event["type"].as_str().unwrap().trim_start_matches("muster.").trim_end_matches(".v1");
        assert_eq!(message.subject, format!("muster.feed.{noun}.{id}.{}", kind.replace('.', "_")));
        let (position, nth) = event["id"].as_str().unwrap().split_once('-').unwrap();
        assert_eq!(event["position"], position);
        ids.push((position.parse().unwrap(), nth.parse().unwrap()));
    }
    ids
}

/// Some processes are desired, run, and are heard of.
fn desire(muster: &Muster, place: &Place, process: &str, count: usize) {
    let file = place.file(&format!("{process}.toml"), sleeper(process, count));
    muster.ok(&format!("lrp desire {}", file.display()));
}

#[test]
fn who_listens_hears_each_event_once_whichever_bbs_is_killed() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1", "bbs-2"]);
    let (url, muster) = (cluster.server.url(), cluster.muster());
    let (mut plain, mut of_web) = (cluster.plain("plain"), cluster.plain("of-web"));
    for (listener, pattern) in
        [(&mut plain, "muster.feed.>"), (&mut of_web, "muster.feed.lrp.web.actual_claimed")]
    {
        listener.subscribe(pattern);
        // What is answered says that the server has read it.
        listener.ask("muster.query.client.shop.me.cluster.show", b"");
    }
    let begins = log(&muster, 0).last().unwrap().0;
    let mut first = Listener::start(Target::nats(&url), 0);
    desire(&muster, &cluster.place, "web", 2);
    desire(&muster, &cluster.place, "other", 1);
    first.hears(&log(&muster, 0));
    let ids = told(&mut plain);
    let upto = *ids.last().unwrap();
    let expected: Vec<Id> = log(&muster, begins).into_iter().filter(|id| *id <= upto).collect();
    assert_eq!(ids, expected, "one leader tells all, each once and in order");
    assert!(ids.len() > 10);
    assert_eq!(told(&mut of_web).len(), 2, "of each instance one");

    // What the leader decided last may not have been told when it is killed.
    let commands = std::thread::spawn(move || {
        (3..6).for_each(|count| drop(Muster::nats(&url).ok(&format!("lrp scale web={count} --detach"))));
    });
    let leader = cluster.leader("bbs");
    cluster.kill9(&leader);
    commands.join().unwrap();
    cluster.settles(&[("web", 5), ("other", 1)]);
    first.hears(&log(&muster, 0));
    Listener::start(Target::nats(&cluster.server.url()), begins).hears(&log(&muster, begins));
    // What is told without a query is of the log, each once and in order; of the new leader, too.
    let told = told(&mut plain);
    assert!(told.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
    let known: BTreeSet<Id> = log(&muster, 0).into_iter().collect();
    let told: BTreeSet<Id> = told.into_iter().collect();
    assert!(told.is_subset(&known) && told.len() > 5, "{told:?} {known:?}");
}

#[test]
fn a_local_cluster_has_a_feed_over_its_socket() {
    let place = Place::new();
    let dev = Dev::start(&place, &[]);
    let socket = place.path().join("data/muster.sock");
    let mut listener = Listener::start(Target::Socket(socket), 0);
    desire(&dev.muster, &place, "web", 2);
    listener.hears(&log(&dev.muster, 0));
    dev.muster.ok("lrp remove web");
    listener.hears(&log(&dev.muster, 0));
    dev.end(&place);
}
