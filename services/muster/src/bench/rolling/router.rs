//! A router as anybody may write it: it lists the instances once, and from then on does what the log says.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Events, Only};
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

/// A router in front of one process.
pub(super) struct Router {
    load: Option<Arc<Load>>,
    /// How late it is to learn that an instance stops.
    late: Duration,
    events: Events,
    /// The instances that get requests.
    backends: BTreeMap<Place, CancellationToken>,
    asking: JoinSet<()>,
    timeline: Timeline,
}

impl Router {
    /// A router that knows who runs now. Without a load it only looks on.
    pub(super) async fn start(
        client: &Client,
        guid: ProcessGuid,
        load: Option<Arc<Load>>,
        late: Duration,
    ) -> Result<Self, BenchError> {
        let listed = client.instances(&Only::process(guid.clone())).await?;
        let events = client.events(listed.position).about(format!("lrp:{guid}"));
        let (backends, asking) = (BTreeMap::new(), JoinSet::new());
        let mut router = Self { load, late, events, backends, asking, timeline: Timeline::default() };
        let running = |state| state == InstanceState::Running;
        for row in listed.rows.into_iter().filter(|row| running(row.state) && !row.stopping) {
            let net = NetInfo { address: row.address.unwrap_or_default().into(), ports: row.ports.into() };
            router.add(Place::new(row.index, row.definition_id), &net)?;
        }
        Ok(router)
    }

    /// Routes for a while.
    pub(super) async fn go_on(&mut self, length: Duration) -> Result<(), BenchError> {
        let end = tokio::time::Instant::now() + length;
        while let Ok(entry) = tokio::time::timeout_at(end, self.events.next()).await {
            self.take(&entry?)?;
        }
        Ok(())
    }

    /// Routes until every index is replaced.
    pub(super) async fn until_replaced(&mut self) -> Result<(), BenchError> {
        while !self.timeline.is_over() {
            let entry = self.events.next().await?;
            self.take(&entry)?;
        }
        Ok(())
    }

    /// Sends no more requests, and says what it saw once the last is answered.
    pub(super) async fn end(mut self) -> (Timeline, Option<Requests>) {
        self.backends.values().for_each(CancellationToken::cancel);
        while self.asking.join_next().await.is_some() {}
        (self.timeline, self.load.map(|load| load.requests()))
    }

    fn take(&mut self, entry: &RecordedEntry) -> Result<(), BenchError> {
        let known = match &entry.entry {
            ReadEntry::Known(entry) => entry,
            ReadEntry::Unknown { .. } => return Ok(()),
        };
        self.timeline.entries += 1;
        for decision in &known.decisions {
            self.timeline.take(decision);
            self.route(decision)?;
        }
        Ok(())
    }

    /// What runs gets requests, and what is asked to stop, or is gone, gets none from then on.
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
                    let lag = clock::now().since(decision.at) + self.late;
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
                | actual::Event::Entered { .. }
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
        self.asking.spawn(async move { load.ask_steadily(&name, at, stop).await });
        Ok(())
    }

    fn drop_backend(&mut self, place: &Place) -> bool {
        let Some(stop) = self.backends.remove(place) else { return false };
        if self.late.is_zero() {
            stop.cancel();
        } else {
            let late = self.late;
            self.asking.spawn(async move {
                tokio::time::sleep(late).await;
                stop.cancel();
            });
        }
        true
    }
}
