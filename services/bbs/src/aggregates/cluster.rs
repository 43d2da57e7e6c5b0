//! The cluster.

use schemas::cluster::{self, Role};
use schemas::entry::{Aggregate, Event};
use schemas::names::{ClusterId, ServiceId};
use schemas::subject::Subject;
use schemas::{Code, Decision, Refusal};

use super::{State, Target};
use crate::scratch::Scratch;

/// Command for the cluster.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Command of an operator.
    Operator(cluster::Command),
    /// Assigns ordinals to new cells and frees the ordinals of forgotten cells.
    AssignOrdinals,
    /// Elects a leader. If the journal has no cluster yet, `found` creates it first.
    Lead {
        role: Role,
        id: ServiceId,
        term: u64,
        /// Id and shard count of a new cluster; `None` if the candidate must not found one.
        found: Option<(ClusterId, u16)>,
    },
}

impl Target for Command {
    fn name(&self) -> String {
        "the cluster".to_owned()
    }

    fn subject(&self, _: u16) -> Subject {
        Subject::Cluster
    }

    fn state<'s>(&self, scratch: &'s Scratch<'_>) -> State<'s> {
        let requests = scratch.cluster().map(|cluster| &cluster.requests);
        scratch.single(requests, scratch.changed.cluster.is_some())
    }

    fn decide(&self, scratch: &Scratch<'_>) -> Result<Vec<Event>, Refusal> {
        let events = match self {
            Self::Operator(command) => {
                machines::cluster::decide(scratch.cluster(), *command)?.into_iter().collect()
            }
            Self::AssignOrdinals => {
                let cells = scratch.world.cells().map(|(id, _)| id).collect();
                let cluster = scratch.cluster();
                cluster.map(|cluster| machines::cluster::decide_ordinals(cluster, &cells)).unwrap_or_default()
            }
            Self::Lead { role, id, term, found } => elect(scratch.cluster(), *role, (id, *term), *found)?,
        };
        Ok(events.into_iter().map(Event::Cluster).collect())
    }

    fn aggregate(&self, _: &Scratch<'_>, _: &[Event]) -> Aggregate {
        Aggregate::Cluster
    }
}

fn elect(
    cluster: Option<&machines::cluster::Cluster>,
    role: Role,
    (id, term): (&ServiceId, u64),
    found: Option<(ClusterId, u16)>,
) -> Result<Vec<cluster::Event>, Refusal> {
    match (cluster, found) {
        (Some(cluster), _) => Ok(vec![machines::cluster::decide_election(cluster, role, id, term)?]),
        (None, Some((cluster_id, shards))) => Ok(vec![
            cluster::Event::Founded { id: cluster_id, shards, format: cluster::FORMAT },
            cluster::Event::Elected { role, id: id.clone(), term },
        ]),
        (None, None) => Err(Refusal::new(Code::Unavailable, "the cluster is not founded yet")),
    }
}

impl Scratch<'_> {
    pub(super) fn evolve_cluster(&mut self, decision: &Decision) {
        let events = decision.events.iter().filter_map(Event::as_cluster);
        let before = self.cluster().cloned();
        self.changed.cluster = machines::cluster::fold(before, events, &decision.stamp(), decision.version);
        self.single_version = decision.version;
    }
}
