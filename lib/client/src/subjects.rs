//! The subjects on which a client asks: the one place that builds them.

use std::fmt;

use schemas::names::{ClientName, Domain};
use schemas::spec::ClientCommand;

/// What anybody may ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Processes.
    ListLrps,
    /// One process.
    ShowLrp,
    /// Instances.
    ListInstances,
    /// One instance.
    ShowInstance,
    /// Tasks.
    ListTasks,
    /// One task.
    ShowTask,
    /// Domains.
    ListDomains,
    /// Cells.
    ListCells,
    /// One cell.
    ShowCell,
    /// Evaluations.
    ListEvaluations,
    /// One evaluation.
    ShowEvaluation,
    /// The cluster.
    ShowCluster,
    /// What happened.
    ReadEvents,
    /// What an instance wrote.
    ReadInstanceLogs,
    /// What a task wrote.
    ReadTaskLogs,
}

/// The subject on which a client of a domain asks for a command.
#[must_use]
pub fn command(domain: &Domain, name: &ClientName, command: &ClientCommand) -> String {
    let (noun, verb) = command.noun_and_verb();
    format!("muster.client.{domain}.{name}.{noun}.{verb}")
}

impl Query {
    /// The subject on which it is asked.
    #[must_use]
    pub const fn subject(self) -> &'static str {
        match self {
            Self::ListLrps => "muster.query.lrp.list",
            Self::ShowLrp => "muster.query.lrp.show",
            Self::ListInstances => "muster.query.instance.list",
            Self::ShowInstance => "muster.query.instance.show",
            Self::ListTasks => "muster.query.task.list",
            Self::ShowTask => "muster.query.task.show",
            Self::ListDomains => "muster.query.domain.list",
            Self::ListCells => "muster.query.cell.list",
            Self::ShowCell => "muster.query.cell.show",
            Self::ListEvaluations => "muster.query.evaluation.list",
            Self::ShowEvaluation => "muster.query.evaluation.show",
            Self::ShowCluster => "muster.query.cluster.show",
            Self::ReadEvents => "muster.query.events.read",
            Self::ReadInstanceLogs => "muster.query.instance.logs",
            Self::ReadTaskLogs => "muster.query.task.logs",
        }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.subject())
    }
}

/// The subject on which an operator asks for a cell to be evacuated.
#[must_use]
pub fn evacuate_cell(name: &ClientName) -> String {
    format!("muster.operator.{name}.cell.evacuate")
}

/// What stands before the subjects of answers to a client, so that its permission is one line.
#[must_use]
pub fn inbox(domain: &Domain, name: &ClientName) -> String {
    format!("{}client.{domain}.{name}", bus::INBOX_ROOT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_says_who_asks_for_what() {
        let (domain, name) = (Domain::new("shop").unwrap(), ClientName::new("ci").unwrap());
        let refresh = ClientCommand::DomainUpsert { domain: domain.clone(), ttl_ms: None };
        assert_eq!(command(&domain, &name, &refresh), "muster.client.shop.ci.domain.upsert");
        assert_eq!(evacuate_cell(&name), "muster.operator.ci.cell.evacuate");
        assert_eq!(inbox(&domain, &name), "muster.inbox.client.shop.ci");
    }
}
