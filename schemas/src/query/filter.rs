//! Filters of lists, and the fields that each list honours.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AsOf;
use crate::names::{CellId, Domain, ProcessGuid};
use crate::subject::Position;
use crate::verb::QueryVerb;

/// Filter and paging of lists. All fields are optional. A list refuses filters that it does not support.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Domain of the rows.
    pub domain: Option<Domain>,
    /// Process of the rows.
    pub process_guid: Option<ProcessGuid>,
    /// Processes of the rows, at most 1,000. Mutually exclusive with `process_guid`.
    pub process_guids: BTreeSet<ProcessGuid>,
    /// Cell of the rows.
    pub cell_id: Option<CellId>,
    /// Index within the process.
    pub index: Option<u32>,
    /// For instances: returns both records of an index that is being evacuated. By default, only one record
    /// is returned. This is the EVACUATING record if the other record is UNCLAIMED or CLAIMED, and otherwise
    /// the other record.
    pub all: bool,
    /// For processes, tasks, periodic and parameterised tasks: includes their definitions.
    pub definitions: bool,
    /// Minimum position of the World that the answer is read from.
    pub at_least: Option<Position>,
    /// Moment in the past to read from: a position such as `41`, a time such as `2026-10-02T14:00:00Z`, or a
    /// duration before now such as `-10m`. The answer contains the position that was read. Mutually exclusive
    /// with `at_least`.
    pub as_of: Option<AsOf>,
    /// Start of the page: `next` of the previous page. All other fields of the filter must be the same as for
    /// that page.
    pub cursor: Option<String>,
    /// Maximum number of rows on the page, at most 1,000.
    pub limit: Option<usize>,
}

/// A field of a filter that only some lists honour. Every list honours the fields that concern the moment and the
/// page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterField {
    Domain,
    Process,
    Processes,
    Cell,
    Index,
    All,
    Definitions,
}

impl FilterField {
    pub const ALL: [Self; 7] =
        [Self::Domain, Self::Process, Self::Processes, Self::Cell, Self::Index, Self::All, Self::Definitions];

    /// Returns the fields that a query honours.
    #[must_use]
    pub const fn honoured_by(query: QueryVerb) -> &'static [Self] {
        match query {
            QueryVerb::LrpList => {
                &[Self::Domain, Self::Process, Self::Processes, Self::Cell, Self::Definitions]
            }
            QueryVerb::InstanceList => &[Self::Domain, Self::Process, Self::Cell, Self::All],
            QueryVerb::InstanceEnded => &[Self::Domain, Self::Process, Self::Cell, Self::Index],
            QueryVerb::TaskList => &[Self::Domain, Self::Cell, Self::Definitions],
            QueryVerb::TaskEnded => &[Self::Domain, Self::Cell],
            QueryVerb::PeriodicList | QueryVerb::ParameterisedList => &[Self::Domain, Self::Definitions],
            QueryVerb::DomainList => &[Self::Domain],
            QueryVerb::CellList => &[Self::Cell],
            QueryVerb::EvaluationList => &[Self::Domain, Self::Process],
            QueryVerb::ClusterShow
            | QueryVerb::ClusterStatus
            | QueryVerb::LrpShow
            | QueryVerb::InstanceShow
            | QueryVerb::InstanceLogs
            | QueryVerb::InstanceHealth
            | QueryVerb::InstanceFiles
            | QueryVerb::TaskShow
            | QueryVerb::TaskLogs
            | QueryVerb::PeriodicShow
            | QueryVerb::ParameterisedShow
            | QueryVerb::DomainShow
            | QueryVerb::CellShow
            | QueryVerb::CellRecords
            | QueryVerb::EvaluationShow
            | QueryVerb::EventsRead
            | QueryVerb::SchemaList
            | QueryVerb::SchemaShow => &[],
        }
    }

    /// Returns the name of the field in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Domain => "domain",
            Self::Process => "process_guid",
            Self::Processes => "process_guids",
            Self::Cell => "cell_id",
            Self::Index => "index",
            Self::All => "all",
            Self::Definitions => "definitions",
        }
    }

    /// Returns `true` if a filter sets the field.
    #[must_use]
    pub fn is_set(self, filter: &Filter) -> bool {
        match self {
            Self::Domain => filter.domain.is_some(),
            Self::Process => filter.process_guid.is_some(),
            Self::Processes => !filter.process_guids.is_empty(),
            Self::Cell => filter.cell_id.is_some(),
            Self::Index => filter.index.is_some(),
            Self::All => filter.all,
            Self::Definitions => filter.definitions,
        }
    }
}
