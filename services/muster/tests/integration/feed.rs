//! The feed: a subscriber receives every event, even if a BBS is killed.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use client::{Client, FeedEvent, Target};
use schemas::Position;
use serde_json::Value;

use crate::dev::{LocalCluster, sleeper};
use crate::support::plain::PlainClient;
use crate::support::{Cluster, Muster, TIMEOUT, TestDir};

/// Position of an event's entry, and number of the event in this entry.
type Id = (u64, u64);

/// Rust client that follows the feed from a position.
struct Listener {
    receiver: Receiver<FeedEvent>,
    ids: Vec<Id>,
}

impl Listener {
    fn start(target: Target, after: u64) -> Self {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let client = Client::connect(target).await.unwrap();
                let mut feed = client.feed(Position(after));
                // The loop ends when the test drops the receiver.
                while sender.send(feed.next().await.unwrap()).is_ok() {}
            });
        });
        Self { receiver, ids: vec![] }
    }

    /// Waits for exactly these events, each of them once and in this order. Later events are ignored.
    fn expect_events(&mut self, expected: &[Id]) {
        while self.ids.len() < expected.len() {
            let event = self
                .receiver
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|_| panic!("received only {:?}", self.ids));
            let json: Value = serde_json::from_str(&event.json).unwrap();
            let id = (event.position.0, event.index);
            assert_eq!(
                (&json["specversion"], &json["id"]),
                (&"1.0".into(), &format!("{}-{}", id.0, id.1).into())
            );
            self.ids.push(id);
        }
        assert_eq!(self.ids[..expected.len()], *expected);
    }
}

/// Returns every event of the log after a position.
fn log_events(muster: &Muster, after: u64) -> Vec<Id> {
    let entries = muster.json("events list");
    let ids = entries.as_array().unwrap().iter().flat_map(|entry| {
        let decisions = entry["entry"]["known"]["decisions"].as_array().unwrap_or_else(|| panic!("{entry}"));
        let events: usize =
            decisions.iter().map(|decision| decision["events"].as_array().unwrap().len()).sum();
        (0..events as u64).map(|nth| (entry["position"].as_u64().unwrap(), nth))
    });
    ids.filter(|id| id.0 > after).collect()
}

/// Checks the subject of each event that a plain subscriber has received so far, and returns the events.
fn received_events(plain: &mut PlainClient) -> Vec<Id> {
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

/// Creates a process with this number of instances.
fn desire(muster: &Muster, place: &TestDir, process: &str, count: usize) {
    let file = place.write_file(&format!("{process}.toml"), sleeper(process, count));
    muster.ok(&format!("apply {}", file.display()));
}

#[test]
fn subscriber_receives_each_event_once_across_leader_kill() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1", "bbs-2"]);
    let (url, muster) = (cluster.server.url(), cluster.muster());
    let (mut plain, mut of_web) = (cluster.plain("plain"), cluster.plain("of-web"));
    for (listener, pattern) in
        [(&mut plain, "muster.feed.>"), (&mut of_web, "muster.feed.lrp.web.actual_claimed")]
    {
        listener.subscribe(pattern);
        // The answer shows that the server has processed the subscription.
        listener.request("muster.query.client.shop.me.cluster.show", b"");
    }
    let begins = log_events(&muster, 0).last().unwrap().0;
    let mut first = Listener::start(Target::nats(&url), 0);
    desire(&muster, &cluster.place, "web", 2);
    desire(&muster, &cluster.place, "other", 1);
    first.expect_events(&log_events(&muster, 0));
    let ids = received_events(&mut plain);
    let upto = *ids.last().unwrap();
    let expected: Vec<Id> = log_events(&muster, begins).into_iter().filter(|id| *id <= upto).collect();
    assert_eq!(ids, expected, "one leader publishes every event once and in order");
    assert!(ids.len() > 10);
    assert_eq!(received_events(&mut of_web).len(), 2, "one event for each instance");

    // The leader may be killed before it publishes its last decisions.
    let commands = std::thread::spawn(move || {
        (3..6).for_each(|count| drop(Muster::nats(&url).ok(&format!("lrp scale web={count} --detach"))));
    });
    let leader = cluster.leader("bbs");
    cluster.kill9(&leader);
    commands.join().unwrap();
    cluster.wait_until_settled(&[("web", 5), ("other", 1)]);
    first.expect_events(&log_events(&muster, 0));
    Listener::start(Target::nats(&cluster.server.url()), begins).expect_events(&log_events(&muster, begins));
    // Events published without a query are in the log, each of them once and in order. The events of the new
    // leader are included.
    let told = received_events(&mut plain);
    assert!(told.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
    let known: BTreeSet<Id> = log_events(&muster, 0).into_iter().collect();
    let told: BTreeSet<Id> = told.into_iter().collect();
    assert!(told.is_subset(&known) && told.len() > 5, "{told:?} {known:?}");
}

#[test]
fn local_cluster_serves_feed_on_its_socket() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let socket = place.path().join("data/muster.sock");
    let mut listener = Listener::start(Target::Socket(socket), 0);
    desire(&dev.muster, &place, "web", 2);
    listener.expect_events(&log_events(&dev.muster, 0));
    dev.muster.ok("lrp delete web");
    listener.expect_events(&log_events(&dev.muster, 0));
    dev.end(&place);
}
