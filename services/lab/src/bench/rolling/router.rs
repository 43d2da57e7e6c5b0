//! Router that lists the instances once, and follows the log afterwards. Any client could implement it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Events, ListFilter};
use schemas::container::NetInfo;
use schemas::entry::Event;
use schemas::names::ProcessGuid;
use schemas::query::{InstanceState, ReadEntry, RecordedEntry};
use schemas::{Decision, Place, actual};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::BenchError;
use super::load::{Load, Requests};
use super::timeline::Timeline;

/// Router in front of one process.
pub(super) struct Router {
    load: Option<Arc<Load>>,
    /// Extra delay before the router learns that an instance is stopping.
    stop_lag: Duration,
    events: Events,
    /// Instances that receive requests.
    backends: BTreeMap<Place, CancellationToken>,
    senders: JoinSet<()>,
    timeline: Timeline,
}

impl Router {
    /// Creates a router that knows the running instances. Without a load, the router sends no requests and
    /// only observes.
    pub(super) async fn start(
        client: &Client,
        guid: ProcessGuid,
        load: Option<Arc<Load>>,
        late: Duration,
    ) -> Result<Self, BenchError> {
        let listed = client.instances(&ListFilter::process(guid.clone())).await?;
        let events = client.events(listed.position).for_target(format!("lrp:{guid}"));
        let (backends, asking) = (BTreeMap::new(), JoinSet::new());
        let mut router =
            Self { load, stop_lag: late, events, backends, senders: asking, timeline: Timeline::default() };
        let running = |state| state == InstanceState::Running;
        for row in listed.rows.into_iter().filter(|row| running(row.state) && !row.stopping) {
            let net = NetInfo { address: row.address.unwrap_or_default().into(), ports: row.ports.into() };
            router.add(Place::new(row.index, row.definition_id), &net)?;
        }
        Ok(router)
    }

    /// Routes requests for the time `length`.
    pub(super) async fn run_for(&mut self, length: Duration) -> Result<(), BenchError> {
        let end = tokio::time::Instant::now() + length;
        while let Ok(entry) = tokio::time::timeout_at(end, self.events.next()).await {
            self.handle_entry(&entry?)?;
        }
        Ok(())
    }

    /// Routes requests until every index is replaced.
    pub(super) async fn run_until_replaced(&mut self) -> Result<(), BenchError> {
        while !self.timeline.is_completed() {
            let entry = self.events.next().await?;
            self.handle_entry(&entry)?;
        }
        Ok(())
    }

    /// Stops sending requests and waits for the last answers. Returns the observed timeline and the outcomes
    /// of the requests.
    pub(super) async fn end(mut self) -> (Timeline, Option<Requests>) {
        self.backends.values().for_each(CancellationToken::cancel);
        while self.senders.join_next().await.is_some() {}
        (self.timeline, self.load.map(|load| load.requests()))
    }

    fn handle_entry(&mut self, entry: &RecordedEntry) -> Result<(), BenchError> {
        let known = match &entry.entry {
            ReadEntry::Known(entry) => entry,
            ReadEntry::Unknown { .. } => return Ok(()),
        };
        self.timeline.entries += 1;
        for decision in &known.decisions {
            self.timeline.record(decision);
            self.route(decision)?;
        }
        Ok(())
    }

    /// Adds instances that start. Removes instances that are asked to stop or have ended.
    fn route(&mut self, decision: &Decision) -> Result<(), BenchError> {
        for event in &decision.events {
            let event = match event {
                Event::Actual(event) => event,
                Event::Desired(_)
                | Event::Evacuating(_)
                | Event::Rollout(_)
                | Event::Evaluation(_)
                | Event::Task(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => continue,
            };
            match event {
                actual::Event::Started { place, net, .. } => self.add(place.clone(), net)?,
                actual::Event::StopRequested { places, .. } => {
                    let lag = clock::now().since(decision.at) + self.stop_lag;
                    let dropped = places.iter().filter(|place| self.drop_backend(place)).count();
                    self.timeline.lags.extend(std::iter::repeat_n(lag, dropped));
                }
                actual::Event::Crashed { place, .. } => {
                    self.drop_backend(place);
                }
                actual::Event::Removed { places, .. } | actual::Event::Unclaimed { places, .. } => {
                    for place in places.iter() {
                        self.drop_backend(&place);
                    }
                }
                actual::Event::Created { .. }
                | actual::Event::Claimed { .. }
                | actual::Event::ExecStarted { .. }
                | actual::Event::PlacementFailed { .. } => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, place: Place, net: &NetInfo) -> Result<(), BenchError> {
        let Some(load) = self.load.clone() else { return Ok(()) };
        let port = net.ports.first().map_or(0, |port| port.host_port);
        let unreachable = || BenchError::NoHolder(format!("index {} ({}:{port})", place.index, net.address));
        let at = SocketAddr::new(net.address.parse().map_err(|_| unreachable())?, port);
        let stop = CancellationToken::new();
        let name = format!("index {} of {}", place.index, place.definition_id);
        if let Some(old) = self.backends.insert(place, stop.clone()) {
            old.cancel();
        }
        self.senders.spawn(async move { load.send_steadily(&name, at, stop).await });
        Ok(())
    }

    fn drop_backend(&mut self, place: &Place) -> bool {
        let Some(stop) = self.backends.remove(place) else { return false };
        if self.stop_lag.is_zero() {
            stop.cancel();
        } else {
            let late = self.stop_lag;
            self.senders.spawn(async move {
                tokio::time::sleep(late).await;
                stop.cancel();
            });
        }
        true
    }
}
