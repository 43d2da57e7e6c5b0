//! Services of a story (a planned sequence of acts and faults), and the facts about these services.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use client::{Client, ListFilter, Target};
use schemas::attributes;
use schemas::names::{ClientName, Domain};
use schemas::query::{InstanceRow, InstanceState, TaskState};
use simulation::shape::{Node, Shape};
use simulation::story::Facts;
use simulation::{act::Act, plan::Plan};
use tokio::runtime::Runtime;

use super::owner::Owner;
use crate::support::containers::running_in;
use crate::support::test_dir::ensure;
use crate::support::{Cluster, eventually};

/// Timeout of a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

/// Delayed consequence of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delayed {
    /// A service starts again.
    Start(Node),
    /// The server starts again after a power cut.
    Power,
}

/// Cluster, client and task owners of a story.
pub(super) struct Stage {
    pub(super) cluster: Cluster,
    pub(super) shape: Shape,
    pub(super) owner: Owner,
    /// Delayed consequences with their story time.
    pub(super) later: Vec<(Duration, Delayed)>,
    /// Cells that are being evacuated. Their reps exit on their own.
    pub(super) evacuating: BTreeSet<usize>,
    runtime: Runtime,
    client: Client,
}

impl Stage {
    /// Starts the services of a plan and waits until all of them are ready.
    pub(super) fn new(plan: &Plan) -> Self {
        let shape = plan.shape;
        let mut cluster = Cluster::empty();
        // One BBS and one auctioneer are enough if the plan does not kill or pause them.
        let hit = |(_, act): &(Duration, Act)| {
            if let Act::Kill { node, .. } | Act::Pause { node, .. } = act { Some(*node) } else { None }
        };
        let hit: Vec<Node> = plan.acts.iter().filter_map(hit).collect();
        let bbss = hit.iter().any(|node| matches!(node, Node::Bbs(_)));
        let auctioneers = hit.iter().any(|node| matches!(node, Node::Auctioneer(_)));
        for node in shape.nodes().filter(|node| match node {
            Node::Bbs(at) => *at == 0 || bbss,
            Node::Auctioneer(at) => *at == 0 || auctioneers,
            Node::Rep(_) => true,
        }) {
            start(&mut cluster, shape, node);
        }
        cluster.wait_until_ready(shape.cells);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (domain, name) = (Domain::new("apps").unwrap(), ClientName::new("observer").unwrap());
        let connect = Client::connect(Target::nats(&cluster.server.url())).domain(domain).name(name);
        let client = runtime.block_on(async { connect.await.unwrap() }).patience(QUERY_TIMEOUT);
        let (later, evacuating) = (vec![], BTreeSet::new());
        Self { cluster, shape, owner: Owner::listen(), later, evacuating, runtime, client }
    }

    pub(super) fn start(&mut self, node: Node) {
        start(&mut self.cluster, self.shape, node);
    }

    /// Returns the facts that a BBS reports and the callbacks that the owners received.
    pub(super) fn facts(&self) -> Result<Facts, String> {
        let all = ListFilter::default();
        let client = &self.client;
        let rows = self.runtime.block_on(async {
            tokio::try_join!(
                client.lrps(&all),
                client.instances(&all),
                client.ended_instances(&all, None),
                client.tasks(&all),
                client.cells(),
                client.evaluations(&all)
            )
        });
        let (lrps, instances, ended, tasks, cells, evaluations) = rows.map_err(|error| error.to_string())?;
        let (lrps, instances, tasks, cells) = (lrps.rows, instances.rows, tasks.rows, cells.rows);
        let (ended, evaluations) = (ended.rows, evaluations.rows);
        Ok(Facts { lrps, instances, ended, tasks, cells, evaluations, answered: self.owner.acknowledged() })
    }

    /// Returns `true` if no delayed consequence is left.
    pub(super) fn has_nothing_delayed(&self) -> bool {
        self.later.is_empty()
    }

    /// Waits until the running processes match the log.
    pub(super) fn wait_for_match(self) {
        eventually("the running containers match the log", || {
            let facts = self.facts()?;
            let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for row in &facts.instances {
                let name = format!("{}/{}", row.process_guid, row.index);
                let guid = row.instance_guid.map(|guid| guid.to_string());
                told.entry(name).or_default().extend(guid);
            }
            for row in &facts.tasks {
                let guid = row
                    .instance_guid
                    .map(|guid| guid.to_string())
                    .filter(|_| row.state == TaskState::Running);
                told.entry(format!("task {}", row.task_guid)).or_default().extend(guid);
            }
            let running = running_in(self.cluster.place.path());
            for (work, containers) in &running {
                let known = told.get(work).into_iter().flatten().collect::<BTreeSet<_>>();
                let unknown = containers.keys().find(|guid| !known.contains(guid));
                ensure(unknown.is_none(), || format!("{work} runs as {unknown:?}, which is not in the log"))?;
            }
            let is_missing = |row: &&InstanceRow| {
                let name = format!("{}/{}", row.process_guid, row.index);
                let runs = row.instance_guid.is_some_and(|guid| {
                    running.get(&name).is_some_and(|containers| containers.contains_key(&guid.to_string()))
                });
                row.state == InstanceState::Running && !row.stopping && !runs
            };
            let missing = facts.instances.iter().find(is_missing);
            ensure(missing.is_none(), || format!("{missing:?} does not run"))
        });
    }
}

/// Starts or restarts a service of a cluster with this shape.
fn start(cluster: &mut Cluster, shape: Shape, node: Node) {
    let name = node.to_string();
    let monitoring = cluster.server.monitoring();
    let args: Vec<String> = match node {
        Node::Bbs(_) => {
            let allow = ["--callback-allow", "127.0.0.0/8"];
            let args = ["bbs", "--mass-loss-wait", "10", "--monitoring", &monitoring];
            args.into_iter().chain(allow).map(str::to_owned).collect()
        }
        Node::Auctioneer(_) => vec!["auctioneer".to_owned()],
        Node::Rep(at) => {
            let settings = shape.cell(at);
            let total = settings.total;
            let data = cluster.place.path().join(&name).display().to_string();
            let pairs = [
                ("--cell", settings.cell_id.to_string()),
                ("--zone", settings.zone.to_string()),
                ("--data", data),
                ("--memory-mb", total.memory_mb.to_string()),
                ("--disk-mb", total.disk_mb.to_string()),
                ("--containers", total.containers.to_string()),
                ("--evacuation-timeout", settings.evacuation_timeout.as_secs().to_string()),
            ];
            let tags = settings.placement_tags.iter().map(|tag| ("--tag", tag.to_string()));
            // A real rep detects its isolation itself and does not accept this attribute.
            let own = settings.attributes.iter().filter(|(name, _)| name.as_str() != attributes::ISOLATION);
            let own = own.map(|(name, value)| ("--attribute", format!("{name}={value}")));
            let pairs = pairs.into_iter().chain(tags).chain(own);
            let args = pairs.flat_map(|(option, value)| [option.to_owned(), value]);
            std::iter::once("rep".to_owned()).chain(args).collect()
        }
    };
    cluster.spawn(&name, &args.iter().map(String::as_str).collect::<Vec<_>>());
}
