//! What settings name that the recording doesn't have, or has already.

use std::collections::{BTreeMap, BTreeSet};

use projections::World;
use schemas::Timestamp;
use schemas::cell::Presence;
use schemas::names::{CellId, ProcessGuid};
use schemas::spec::ClientCommand;

use super::Settings;
use super::causes::Cause;

/// A setting that would have no effect, or not the one that it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Where it stands, as `cell.c9.like`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
    /// The name that is used there.
    pub name: String,
    /// The names that may have been meant; none: the name is no slip.
    pub known: BTreeSet<String>,
}

/// The names that a part of a log has.
pub(super) struct Names<'a> {
    /// Each cell, as it was at the beginning, else when it appeared first.
    cells: BTreeMap<&'a CellId, &'a Presence>,
    processes: BTreeSet<&'a ProcessGuid>,
}

impl<'a> Names<'a> {
    pub(super) fn of(world: &'a World, causes: &'a [(Timestamp, Cause)]) -> Self {
        let mut names = Self {
            cells: world.cells().map(|(id, cell)| (id, &cell.presence)).collect(),
            processes: world.processes_from(None).map(|process| &process.guid).collect(),
        };
        for (_, cause) in causes {
            if let Cause::Appeared(id, presence) = cause {
                names.cells.entry(id).or_insert(presence);
            }
            if let Cause::Client(_, command) = cause
                && let ClientCommand::LrpDesire(lrp) = &**command
            {
                names.processes.insert(&lrp.process_guid);
            }
        }
        names
    }

    /// What a cell is.
    pub(super) fn cell(&self, id: &CellId) -> Option<&'a Presence> {
        self.cells.get(id).copied()
    }

    /// The settings that don't fit.
    pub(super) fn misfits(&self, settings: &Settings) -> Vec<Misfit> {
        let mut found = vec![];
        for (id, of) in &settings.cell {
            match (&of.like, self.cells.contains_key(id)) {
                (None, true) => {}
                (None, false) => {
                    let problem =
                        format!("this part of the log has no cell {id}, and another one needs `like`");
                    found.push(self.no_cell(format!("cell.{id}"), id, problem));
                }
                (Some(_), true) => found.push(Misfit {
                    field: format!("cell.{id}.like"),
                    problem: format!(
                        "this part of the log has cell {id}: only another one can be like one of its cells"
                    ),
                    name: id.to_string(),
                    known: BTreeSet::new(),
                }),
                (Some(like), false) if self.cells.contains_key(like) => {}
                (Some(like), false) => {
                    let problem = format!("this part of the log has no cell {like}");
                    found.push(self.no_cell(format!("cell.{id}.like"), like, problem));
                }
            }
        }
        for guid in settings.process.keys().filter(|guid| !self.processes.contains(guid)) {
            found.push(Misfit {
                field: format!("process.{guid}"),
                problem: format!("this part of the log has no process {guid}"),
                name: guid.to_string(),
                known: self.processes.iter().map(ToString::to_string).collect(),
            });
        }
        found
    }

    fn no_cell(&self, field: String, id: &CellId, problem: String) -> Misfit {
        Misfit {
            field,
            problem,
            name: id.to_string(),
            known: self.cells.keys().map(ToString::to_string).collect(),
        }
    }
}
