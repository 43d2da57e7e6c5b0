//! What queries answer, judged by rows that are computed anew from the log (docs/reference/queries.md, "Queries").
//!
//! An answer names the position at which it stands. Up to there the log is folded again, the rows that the query asks for
//! are made of that, and both have to be the same.

mod evaluated;
mod facts;
mod gone;
mod parameterised;
mod periodics;
mod shown;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use projections::Query;
use schemas::cluster::Role;
use schemas::definition::Mode;
use schemas::names::{
    CellId, DefinitionId, Domain, InstanceGuid, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid,
};
use schemas::query::{
    CellRow, ClusterRow, DomainRow, DomainUseRow, EvaluationRow, Filter, FindingCode, Health, InstanceRow,
    InstanceState, LrpRow, Page, ParameterisedRow, PeriodicRow, Severity, Show, ShowAnswer, StatusRow,
    TaskRow, TaskState,
};
use schemas::quota::Usage;
use schemas::refusal::Code;
use schemas::subject::Position;
use schemas::{Entry, Place, Refusal, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::facts::{Facts, Process};
use self::shown::Heard;
use crate::reads::Read;

/// So many rows a page holds at most.
const PAGE_ROWS: usize = 1_000;
/// So many bytes of rows a page holds at most, but for a row that is larger by itself.
const PAGE_BYTES: usize = 512 * 1024;
/// So many are named of each kind where all are summed up.
const NAMED: usize = 8;

/// The log, and what is true after a position of it.
#[derive(Default)]
pub(super) struct Rows {
    entries: Vec<(Position, Entry)>,
    facts: Facts,
}

/// When a query was asked and answered, and how far clocks may be apart.
#[derive(Clone, Copy)]
pub(super) struct When {
    pub(super) asked: Timestamp,
    pub(super) now: Timestamp,
    pub(super) slack: Duration,
}

/// What a right answer leads on to: the next page.
pub(super) type Answered = Result<Option<Next>, String>;

/// Where a list goes on.
#[derive(Clone, Debug)]
pub(crate) struct Next {
    /// The cursor.
    pub(crate) cursor: String,
    /// Where the pages stand.
    pub(crate) position: Position,
    /// The rows so far.
    pub(crate) seen: usize,
}

impl Rows {
    /// The next entry of the log.
    pub(super) fn entry(&mut self, position: Position, entry: Entry) {
        self.entries.push((position, entry));
    }

    /// What is true after a position. What is asked for mostly lies behind what was asked for before.
    fn at(&mut self, position: Position) -> &Facts {
        if self.facts.position > position {
            self.facts = Facts::default();
        }
        let done = self.facts.position;
        let from = self.entries.partition_point(|(at, _)| *at <= done);
        for (at, entry) in self.entries[from..].iter().take_while(|(at, _)| *at <= position) {
            self.facts.fold(*at, entry);
        }
        &self.facts
    }

    /// Judges an answer. Says where the next page begins, if it is the page of a list that goes on.
    pub(super) fn judge(&mut self, read: &Read, answer: &Result<String, Refusal>, when: When) -> Answered {
        match (answer, read.bad_field()) {
            (Ok(_), Some(field)) => Err(format!("is answered, though {field} can't be asked for so")),
            (Ok(text), None) => self.rows(read, text, when),
            (Err(refusal), bad) => self.refused(read, refusal, bad).map_or(Ok(None), Err),
        }
    }

    /// What is wrong with a refusal.
    fn refused(&mut self, read: &Read, refusal: &Refusal, bad: Option<&str>) -> Option<String> {
        let named: Vec<&str> = refusal.fields.iter().map(|bad| bad.field.as_str()).collect();
        let code = refusal.code;
        let busy = [Code::Unavailable, Code::Overloaded].contains(&code);
        let right = match bad {
            Some(field) => code == Code::InvalidRequest && named == [field],
            None if code == Code::Expired => read.is_later_page(),
            None => code == Code::ResourceNotFound && self.may_be_missing(read),
        };
        (!right && !busy).then(|| format!("is refused: {refusal}, the field that is bad is {bad:?}"))
    }

    /// Whether what is shown wasn't there at a position at which the answer may stand.
    fn may_be_missing(&mut self, read: &Read) -> bool {
        let Some(at_least) = read.query.at_least() else { return true };
        let end = self.entries.last().map_or(at_least, |(at, _)| at_least.max(*at));
        (at_least.0..=end.0).any(|at| !is_there(self.at(Position(at)), &read.query))
    }

    fn rows(&mut self, read: &Read, text: &str, when: When) -> Answered {
        match &read.query {
            Query::Lrps(filter) => self.page(read, text, filter, |facts, _| shown::lrps(facts, filter)),
            Query::Instances(filter) => {
                self.page(read, text, filter, |facts, _| shown::instances(facts, filter))
            }
            Query::EndedInstances(filter) => {
                self.page(read, text, filter, |facts, _| gone::instances(facts, filter))
            }
            Query::EndedTasks(filter) => self.page(read, text, filter, |facts, _| gone::tasks(facts, filter)),
            Query::Tasks(filter) => self.page(read, text, filter, |facts, _| shown::tasks(facts, filter)),
            Query::Periodics(filter) => {
                self.page(read, text, filter, |facts, _| periodics::periodics(facts, filter))
            }
            Query::Parameterised(filter) => {
                self.page(read, text, filter, |facts, _| parameterised::rows(facts, filter))
            }
            Query::Evaluations(filter) => {
                self.page(read, text, filter, |facts, seen| evaluations(facts, filter, seen, when))
            }
            Query::Cells(filter) => self.page(read, text, filter, |facts, seen| cells(facts, filter, seen)),
            Query::Domains(filter) => {
                self.page(read, text, filter, |facts, seen| domains(facts, filter, seen, when))
            }
            Query::DomainUse(show) => {
                self.one::<DomainUseRow>(read, text, |facts, _| domain_use(facts, show))
            }
            Query::Lrp(show) => self.one::<LrpRow>(read, text, |facts, _| {
                let guid = ProcessGuid::new(&show.id).ok()?;
                let process = facts.processes.get(&guid).filter(|process| !process.is_gone())?;
                Some(shown::lrp(&guid, process, true))
            }),
            Query::Instance(show) => {
                self.one::<Vec<InstanceRow>>(read, text, |facts, _| records(facts, &show.id))
            }
            Query::Task(show) => self.one::<TaskRow>(read, text, |facts, _| {
                let guid = TaskGuid::new(&show.id).ok()?;
                shown::task_row(&guid, facts.tasks.get(&guid)?, true)
            }),
            Query::Periodic(show) => self.one::<PeriodicRow>(read, text, |facts, _| {
                let guid = PeriodicGuid::new(&show.id).ok()?;
                periodics::row(facts, &guid, facts.periodics.get(&guid)?, true)
            }),
            Query::ParameterisedOne(show) => self.one::<ParameterisedRow>(read, text, |facts, _| {
                let guid = ParameterisedGuid::new(&show.id).ok()?;
                parameterised::row(facts, &guid, facts.parameterised.get(&guid)?, (true, usize::MAX))
            }),
            Query::Cell(show) => self.one::<CellRow>(read, text, |facts, seen| {
                let filter = Filter { cell_id: CellId::new(&show.id).ok(), ..Filter::default() };
                cells(facts, &filter, std::slice::from_ref(seen)).pop()
            }),
            Query::Evaluation(show) => self.one::<EvaluationRow>(read, text, |facts, seen| {
                let seen = std::slice::from_ref(seen);
                let mut all = evaluations(facts, &Filter::default(), seen, when).into_iter();
                let row = all.find(|row| row.evaluation.id.to_string() == show.id)?;
                Some(EvaluationRow { queue_position: turns::of(facts, &row), ..row })
            }),
            Query::Cluster(_) => self.whole::<ClusterRow>(read, text, cluster),
            Query::Status(_) => self.whole::<StatusRow>(read, text, status),
        }
    }

    /// Judges a page: the rows behind those of the pages before, as many as were asked for.
    fn page<T: PartialEq + Debug + DeserializeOwned + Serialize>(
        &mut self,
        read: &Read,
        text: &str,
        filter: &Filter,
        rows: impl FnOnce(&Facts, &[T]) -> Vec<T>,
    ) -> Answered {
        let page: Page<T> = serde_json::from_str(text).map_err(|error| format!("is no page: {error}"))?;
        read.stands(page.position)?;
        let facts = self.at(page.position);
        let seen = read.seen();
        let mut expected: Vec<T> = rows(facts, &page.rows).into_iter().skip(seen).collect();
        let fits = on_a_page(&expected, filter.limit.unwrap_or(PAGE_ROWS));
        let more = fits < expected.len();
        expected.truncate(fits);
        same(&page.rows, &expected)?;
        if page.next.is_some() != more {
            return Err(format!("goes on at {:?}, there is more: {more}", page.next));
        }
        let next = |cursor| Next { cursor, position: page.position, seen: seen + fits };
        Ok(page.next.map(next))
    }

    fn one<T: PartialEq + Debug + DeserializeOwned>(
        &mut self,
        read: &Read,
        text: &str,
        row: impl FnOnce(&Facts, &T) -> Option<T>,
    ) -> Answered {
        let one: ShowAnswer<T> = serde_json::from_str(text).map_err(|error| format!("is no row: {error}"))?;
        read.stands(one.position)?;
        let expected = row(self.at(one.position), &one.row);
        same(&Some(one.row), &expected)?;
        Ok(None)
    }

    /// Judges a row that sums everything up, by what must be in it.
    fn whole<T: DeserializeOwned>(
        &mut self,
        read: &Read,
        text: &str,
        judge: impl FnOnce(&Facts, &T) -> Result<(), String>,
    ) -> Answered {
        let one: ShowAnswer<T> = serde_json::from_str(text).map_err(|error| format!("is no row: {error}"))?;
        read.stands(one.position)?;
        judge(self.at(one.position), &one.row)?;
        Ok(None)
    }
}

/// How many of the rows a page holds.
fn on_a_page<T: Serialize>(rows: &[T], limit: usize) -> usize {
    let mut bytes = 0;
    let fits = rows.iter().take(limit).enumerate().take_while(|(at, row)| {
        bytes += serde_json::to_vec(row).map_or(0, |json| json.len());
        *at == 0 || bytes <= PAGE_BYTES
    });
    fits.count()
}

fn same<T: PartialEq + Debug>(is: &T, expected: &T) -> Result<(), String> {
    if is == expected { Ok(()) } else { Err(format!("says {is:?}, and by the log it is {expected:?}")) }
}

/// Whether what is shown exists.
fn is_there(facts: &Facts, query: &Query) -> bool {
    match query {
        Query::Lrp(show) => {
            let process = ProcessGuid::new(&show.id).ok().and_then(|guid| facts.processes.get(&guid));
            process.is_some_and(|process| !process.is_gone())
        }
        Query::Instance(show) => records(facts, &show.id).is_some(),
        Query::Task(show) => {
            let task = TaskGuid::new(&show.id).ok().and_then(|guid| facts.tasks.get(&guid));
            task.is_some_and(|task| task.state.is_some())
        }
        Query::Periodic(show) => {
            let known = PeriodicGuid::new(&show.id).ok().and_then(|guid| facts.periodics.get(&guid));
            known.is_some_and(|known| known.desired.is_some())
        }
        Query::ParameterisedOne(show) => {
            let known = ParameterisedGuid::new(&show.id).ok().and_then(|guid| facts.parameterised.get(&guid));
            known.is_some_and(|known| known.desired.is_some())
        }
        Query::Cell(show) => CellId::new(&show.id).is_ok_and(|id| facts.cells.contains_key(&id)),
        Query::DomainUse(show) => Domain::new(&show.id).is_ok(),
        Query::Evaluation(show) => {
            let all = shown::evaluations(facts, &Filter::default(), Timestamp(0));
            all.iter().any(|row| row.evaluation.id.to_string() == show.id)
        }
        Query::Cluster(_) | Query::Status(_) => facts.cluster.is_some(),
        Query::Lrps(_)
        | Query::Instances(_)
        | Query::EndedInstances(_)
        | Query::EndedTasks(_)
        | Query::Periodics(_)
        | Query::Parameterised(_)
        | Query::Tasks(_)
        | Query::Domains(_)
        | Query::Cells(_)
        | Query::Evaluations(_) => true,
    }
}

/// The records of `PROCESS/INDEX`, with `@DEFINITION` if need be, or of a container.
fn records(facts: &Facts, id: &str) -> Option<Vec<InstanceRow>> {
    let rows: Vec<InstanceRow> = match (id.split_once('/'), id.parse::<InstanceGuid>()) {
        (Some((guid, place)), _) => {
            let guid = ProcessGuid::new(guid).ok()?;
            let process = facts.processes.get(&guid)?;
            shown::records(&guid, process, meant(process, place)?, true)
        }
        (None, Ok(container)) => {
            let all = shown::instances(facts, &Filter { all: true, ..Filter::default() });
            all.into_iter().filter(|row| row.instance_guid == Some(container)).collect()
        }
        (None, Err(_)) => vec![],
    };
    Some(rows).filter(|rows| !rows.is_empty())
}

/// The place that is meant: that of the definition that is named, or of the active one if there are several. What only
/// evacuates is meant if there is nothing else.
fn meant<'a>(process: &'a Process, named: &str) -> Option<&'a Place> {
    let (index, id) = match named.split_once('@') {
        Some((index, id)) => (index, Some(DefinitionId::new(id).ok()?)),
        None => (named, None),
    };
    let index: u32 = index.parse().ok()?;
    let mut there = process.places();
    there.retain(|place| place.index == index && id.as_ref().is_none_or(|id| place.definition_id == *id));
    if there.iter().any(|place| process.lrps.contains_key(place)) {
        there.retain(|place| process.lrps.contains_key(place));
    }
    let active = process.desired.as_ref().map(|desired| &desired.definition_id);
    let of_active = there.iter().find(|place| Some(&place.definition_id) == active).copied();
    of_active.or_else(|| there.pop_last())
}

/// The cells, with what whoever answers alone knows, and with what it says of room where nobody can know it.
fn cells(facts: &Facts, filter: &Filter, seen: &[CellRow]) -> Vec<CellRow> {
    let heard: Heard = seen.iter().map(|row| (row.cell_id.clone(), row.heartbeat_ms_ago)).collect();
    let rows = shown::cells(facts, filter, &heard).into_iter();
    rows.map(|(row, known)| {
        let said = seen.iter().find(|said| said.cell_id == row.cell_id && !known);
        CellRow { used: said.map_or(row.used, |said| said.used), ..row }
    })
    .collect()
}

/// The evaluations; near the moment at which one is due nobody can know which clock was asked.
fn evaluations(facts: &Facts, filter: &Filter, seen: &[EvaluationRow], when: When) -> Vec<EvaluationRow> {
    let early = shown::evaluations(facts, filter, Timestamp(when.asked.0.saturating_sub(nanos(when.slack))));
    let late = shown::evaluations(facts, filter, when.now + when.slack);
    let same = |row: &EvaluationRow| seen.iter().find(|one| one.evaluation.id == row.evaluation.id);
    let between = early.into_iter().zip(late).map(|(early, late)| {
        let is_late = same(&late).is_some_and(|seen| seen.state == late.state);
        if is_late { late } else { early }
    });
    between.collect()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The domains; near the moment at which one stops being fresh nobody can know which clock was asked.
fn domains(facts: &Facts, filter: &Filter, seen: &[DomainRow], when: When) -> Vec<DomainRow> {
    let named = facts
        .domains
        .iter()
        .filter(|(domain, _)| filter.domain.as_ref().is_none_or(|wanted| wanted == *domain));
    named
        .map(|(domain, (refreshed_at, expires_at))| {
            let at = |now| shown::is_fresh(*expires_at, now, when.slack);
            let sure = at(when.asked).filter(|fresh| at(when.now) == Some(*fresh));
            let said = seen.iter().find(|row| row.domain == *domain).is_some_and(|row| row.fresh);
            DomainRow {
                domain: domain.clone(),
                fresh: sure.unwrap_or(said),
                refreshed_at: *refreshed_at,
                expires_at: *expires_at,
            }
        })
        .collect()
}

/// Use and quotas of a domain, counted record by record.
fn domain_use(facts: &Facts, show: &Show) -> Option<DomainUseRow> {
    let domain = Domain::new(&show.id).ok()?;
    let of_process = |process: &Process| {
        let desired = process.desired.as_ref()?;
        let cells = process.cells.len() as u64;
        Some(if desired.mode == Mode::Global { cells } else { u64::from(desired.instances) })
    };
    let processes = facts.processes.values().filter(|process| process.domain == domain);
    let instances: Vec<u64> = processes.filter_map(of_process).collect();
    let tasks = facts.tasks.values().filter(|task| task.domain == domain && task.state.is_some()).count();
    let periodics = facts.periodics.values().filter_map(|known| known.desired.as_ref());
    let periodics = periodics.filter(|desired| desired.domain == domain).count();
    let templates = facts.parameterised.values().filter_map(|known| known.desired.as_ref());
    let templates = templates.filter(|desired| desired.domain == domain).count();
    let all = instances.len() + tasks + periodics + templates;
    let used = Usage { instances: instances.iter().sum(), processes_and_tasks: all as u64 };
    let (quotas, limited) = (facts.quotas.get(&domain).copied(), facts.quotas.contains_key(&domain));
    Some(DomainUseRow { domain, used, quotas: quotas.unwrap_or_default(), limited })
}

/// The row of the cluster: what it is, who leads, and how much there is of everything.
fn cluster(facts: &Facts, row: &ClusterRow) -> Result<(), String> {
    same(&Some((row.cluster_id, row.shards, row.format)), &facts.cluster)?;
    same(&row.preemption, &facts.preemption)?;
    same(&row.bbs, &facts.leaders.get(&Role::Bbs).cloned())?;
    same(&row.auctioneer, &facts.leaders.get(&Role::Auctioneer).cloned())?;
    let zones: BTreeSet<_> =
        facts.cells.values().filter(|cell| cell.present).map(|cell| cell.presence.zone.clone()).collect();
    same(&row.zones, &zones.into_iter().collect())?;
    let mut counts = BTreeMap::from([("lrps".to_owned(), row.lrps)]);
    counts.extend(row.instances.iter().map(|(state, count)| (format!("instances {state}"), *count)));
    counts.extend(row.tasks.iter().map(|(state, count)| (format!("tasks {state}"), *count)));
    let cells: u32 = row.cells.values().sum();
    counts.insert("cells".into(), cells.into());
    let absent = row.cells.get(&schemas::query::CellState::Absent).copied().unwrap_or_default();
    counts.insert("absent".into(), absent.into());
    let mut expected = shown::counted(facts);
    expected.retain(|name, _| counts.contains_key(name));
    same(&counts, &expected)
}

/// The row of its health: the counts, what is named, and the findings that must follow from them.
fn status(facts: &Facts, row: &StatusRow) -> Result<(), String> {
    cluster(facts, &row.cluster)?;
    let expected = shown::counted(facts);
    let counts = [
        ("wanted", row.instances_desired),
        ("unplaced", row.instances_unplaced),
        ("tasks unplaced", row.tasks_unplaced),
        ("blocked", row.evaluations_blocked),
        ("called again", row.callbacks_retried),
    ];
    for (name, count) in counts {
        same(&(name, count), &(name, expected[name]))?;
    }
    named(facts, row)?;
    health(row)
}

/// Those that a status names: the worst, those that start, and cells that aren't as they ought to be.
fn named(facts: &Facts, row: &StatusRow) -> Result<(), String> {
    let all = shown::instances(facts, &Filter { all: true, ..Filter::default() });
    for bad in &row.worst {
        let is_bad = bad.state == InstanceState::Crashed || bad.placement_error.is_some();
        if !is_bad || !all.contains(bad) {
            return Err(format!("names {bad:?} among the worst"));
        }
    }
    let crashed = all.iter().filter(|row| row.state == InstanceState::Crashed).count();
    let unplaced = all.iter().filter(|row| row.placement_error.is_some()).count();
    // Up to eight of each kind are looked for, the crashed ones come first, and eight are named.
    same(&row.worst.len(), &(crashed.min(NAMED) + unplaced.min(NAMED)).min(NAMED))?;
    let first = row.worst.iter().take_while(|bad| bad.state == InstanceState::Crashed).count();
    same(&first, &crashed.min(NAMED))?;
    let mut starting: Vec<(Timestamp, String)> = all
        .iter()
        .filter(|row| row.state == InstanceState::Claimed && !row.stopping)
        .map(|row| (row.since, format!("{}/{}", row.process_guid, row.index)))
        .collect();
    starting.sort();
    same(&row.starting, &starting.into_iter().take(NAMED).map(|(_, name)| name).collect())
}

/// The findings follow from the counts, the worst first, and the whole is as bad as the worst.
fn health(row: &StatusRow) -> Result<(), String> {
    let found = |code| row.findings.iter().any(|finding| finding.code == code);
    let waits = row.cluster.tasks.get(&TaskState::Pending).copied().unwrap_or_default();
    let crashed = row.cluster.instances.get(&InstanceState::Crashed).copied().unwrap_or_default();
    let takes = row.cluster.cells.get(&schemas::query::CellState::Present).copied().unwrap_or_default();
    let expected = [
        (FindingCode::InstancesCrashed, crashed > 0),
        (FindingCode::InstancesUnplaced, row.instances_unplaced > 0),
        (FindingCode::TasksUnplaced, row.tasks_unplaced > 0),
        (FindingCode::CallbacksRetried, row.callbacks_retried > 0),
        (FindingCode::NoCell, takes == 0 && row.instances_desired + waits > 0),
        (FindingCode::QuarantinedEntries, row.cluster.quarantined_entries.count > 0),
    ];
    for (code, is) in expected {
        same(&(code, found(code)), &(code, is))?;
    }
    let worst = row.findings.iter().map(|finding| finding.severity).max();
    same(&row.findings.first().map(|first| first.severity), &worst)?;
    let health = match worst {
        None | Some(Severity::Note) => Health::Healthy,
        Some(Severity::Degraded) => Health::Degraded,
        Some(Severity::Unhealthy) => Health::Unhealthy,
    };
    same(&row.health, &health)
}
