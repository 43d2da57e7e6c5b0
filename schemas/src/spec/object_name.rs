//! Names of the objects that files describe.

use std::fmt;

use super::Item;
use crate::names::{Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};

/// Name of an object that a file describes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectName {
    Process(ProcessGuid),
    Task(TaskGuid),
    Periodic(PeriodicGuid),
    Parameterised(ParameterisedGuid),
    Domain(Domain),
}

impl ObjectName {
    /// Returns the kind and name of an item.
    #[must_use]
    pub fn from_item(item: &Item) -> Self {
        match item {
            Item::Lrp(lrp) => Self::Process(lrp.process_guid.clone()),
            Item::Task(task) => Self::Task(task.task_guid.clone()),
            Item::Periodic(periodic) => Self::Periodic(periodic.periodic_guid.clone()),
            Item::Parameterised(desired) => Self::Parameterised(desired.parameterised_guid.clone()),
            Item::Domain { domain, .. } => Self::Domain(domain.clone()),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(guid) => write!(f, "process {guid}"),
            Self::Task(guid) => write!(f, "task {guid}"),
            Self::Periodic(guid) => write!(f, "periodic task {guid}"),
            Self::Parameterised(guid) => write!(f, "parameterised task {guid}"),
            Self::Domain(domain) => write!(f, "domain {domain}"),
        }
    }
}
