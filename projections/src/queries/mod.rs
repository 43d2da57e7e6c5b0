//! Queries: what is true at one position, as rows. Pure reads of the World.

mod ended;
mod hidden;
mod parameterised;
mod periodic;
mod rows;
mod status;
mod turn;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use schemas::limits::{PAGE_BYTES, PAGE_ROWS};
use schemas::names::{
    BadName, CellId, DefinitionId, Domain, EvaluationId, InstanceGuid, ProcessGuid, ServiceId, TaskGuid,
};
use schemas::process::{Process, Slot};
use schemas::query::{
    AsOf, CellRow, ClusterRow, Cursor, DomainRow, DomainUseRow, EvaluationRow, EvaluationSubject, Filter,
    InstancePresence, InstanceRow, LogRow, LrpRow, MalformedEntries, One, Page, Services, Show, StatusRow,
    TaskRow,
};
use schemas::sight::Sight;
use schemas::task::Task;
use schemas::{ActualLrpKey, BadField, Code, Place, Position, Refusal, Timestamp};

pub(crate) use self::ended::{ended_instance_row, ended_task_row};
pub use self::ended::{ended_instances, ended_tasks};
pub(crate) use self::parameterised::parameterised_row;
pub use self::parameterised::{parameterised, parameterised_one};
pub(crate) use self::periodic::periodic_row;
pub use self::periodic::{periodic, periodics};
pub(crate) use self::rows::{Which, cell_row, lrp_row, slot_rows, task_row};
use self::rows::{cluster_row, evaluations_from, instance_rows};
use crate::index::WorkRef;
use crate::world::World;

/// What rows show that the log doesn't hold: known to the BBS that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Who answers: cursors name it, since it holds the picture that their pages are of.
    pub bbs: ServiceId,
    /// What its clock shows.
    pub now: Timestamp,
    /// Whether what is acknowledged survives a power cut, as far as it can see.
    pub durability: String,
    /// What the journal holds that is not an entry.
    pub set_aside: MalformedEntries,
    /// Who beats, BBSs and auctioneers.
    pub services: Services,
    /// How many ended containers are shown of each index, where its process doesn't say it.
    pub history_limit: u32,
    /// How often somebody asked of an evaluation what its status doesn't allow, since it started.
    pub refused_transitions: u64,
    /// The stream that holds the log; `None` if it is not a stream or was not read yet.
    pub log: Option<LogRow>,
    /// How long ago each cell was heard; those of which it heard nothing yet are missing.
    pub heard: BTreeMap<CellId, Duration>,
}

impl Observed {
    /// What this BBS knows of the past, besides the log, when it shows a moment of it: nothing. Heartbeats and beats are
    /// of now alone, and what is fresh is judged at that moment.
    #[must_use]
    pub fn of_past(&self, now: Timestamp, set_aside: MalformedEntries) -> Self {
        Self {
            bbs: self.bbs.clone(),
            now,
            durability: self.durability.clone(),
            set_aside,
            services: Services::default(),
            history_limit: self.history_limit,
            refused_transitions: 0,
            log: None,
            heard: BTreeMap::new(),
        }
    }
}

/// What can be asked that has rows as its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The DesiredLRPs.
    Lrps(Filter),
    /// One of them.
    Lrp(Show),
    /// The ActualLRPs.
    Instances(Filter),
    /// Those of one index.
    Instance(Show),
    /// The containers of instances that ended.
    EndedInstances(Filter),
    /// The tasks.
    Tasks(Filter),
    /// One of them.
    Task(Show),
    /// The tasks that ended.
    EndedTasks(Filter),
    /// The periodic tasks.
    Periodics(Filter),
    /// One of them.
    Periodic(Show),
    /// The parameterised tasks.
    Parameterised(Filter),
    /// One of them.
    ParameterisedOne(Show),
    /// The domains.
    Domains(Filter),
    /// Usage and quotas of one domain.
    DomainUse(Show),
    /// The cells.
    Cells(Filter),
    /// One of them.
    Cell(Show),
    /// The evaluations.
    Evaluations(Filter),
    /// One of them.
    Evaluation(Show),
    /// The cluster.
    Cluster(Filter),
    /// How it is.
    Status(Filter),
}

impl Query {
    /// What it narrows its list by; none: it shows one thing.
    #[must_use]
    pub const fn filter(&self) -> Option<&Filter> {
        match self {
            Self::Lrps(filter)
            | Self::Instances(filter)
            | Self::EndedInstances(filter)
            | Self::Tasks(filter)
            | Self::EndedTasks(filter)
            | Self::Periodics(filter)
            | Self::Parameterised(filter)
            | Self::Domains(filter)
            | Self::Cells(filter)
            | Self::Evaluations(filter)
            | Self::Cluster(filter)
            | Self::Status(filter) => Some(filter),
            Self::Lrp(_)
            | Self::Instance(_)
            | Self::Task(_)
            | Self::Periodic(_)
            | Self::ParameterisedOne(_)
            | Self::Cell(_)
            | Self::DomainUse(_)
            | Self::Evaluation(_) => None,
        }
    }

    /// The position that its answer must stand at.
    #[must_use]
    pub const fn at_least(&self) -> Option<Position> {
        self.terms().0
    }

    /// As of which moment of the past it is asked; none: of now.
    #[must_use]
    pub const fn as_of(&self) -> Option<AsOf> {
        self.terms().1
    }

    const fn terms(&self) -> (Option<Position>, Option<AsOf>) {
        match self {
            Self::Lrps(filter)
            | Self::Instances(filter)
            | Self::EndedInstances(filter)
            | Self::Tasks(filter)
            | Self::EndedTasks(filter)
            | Self::Periodics(filter)
            | Self::Parameterised(filter)
            | Self::Domains(filter)
            | Self::Cells(filter)
            | Self::Evaluations(filter)
            | Self::Cluster(filter)
            | Self::Status(filter) => (filter.at_least, filter.as_of),
            Self::Lrp(show)
            | Self::Instance(show)
            | Self::Task(show)
            | Self::Periodic(show)
            | Self::ParameterisedOne(show)
            | Self::Cell(show)
            | Self::DomainUse(show)
            | Self::Evaluation(show) => (show.at_least, show.as_of),
        }
    }

    /// The answer to somebody who may read everything, as JSON text of a [`Page`] or of [`One`].
    ///
    /// # Errors
    /// What is wrong with the question, or that there is no such thing.
    pub fn answer(&self, world: &World, observed: &Observed) -> Result<String, Refusal> {
        self.answer_to(&Sight::Everything, world, observed)
    }

    /// The answer to somebody, without the values of the environment that he may not read.
    ///
    /// # Errors
    /// See [`Query::answer`].
    pub fn answer_to(&self, sight: &Sight, world: &World, observed: &Observed) -> Result<String, Refusal> {
        match self {
            Self::Lrps(filter) => page_to(lrps(world, filter, observed), |row| hidden::of_lrp(sight, row)),
            Self::Lrp(show) => one_to(lrp(world, show), |row| hidden::of_lrp(sight, row)),
            Self::Instances(filter) => instances(world, filter, observed).and_then(|page| json(&page)),
            Self::Instance(show) => instance(world, show).and_then(|row| json(&row)),
            Self::Tasks(filter) => page_to(tasks(world, filter, observed), |row| hidden::of_task(sight, row)),
            Self::EndedInstances(filter) => {
                ended_instances(world, filter, observed).and_then(|page| json(&page))
            }
            Self::EndedTasks(filter) => ended_tasks(world, filter, observed).and_then(|page| json(&page)),
            Self::Task(show) => one_to(task(world, show), |row| hidden::of_task(sight, row)),
            Self::Periodics(filter) => {
                page_to(periodics(world, filter, observed), |row| hidden::of_periodic(sight, row))
            }
            Self::Periodic(show) => one_to(periodic(world, show), |row| hidden::of_periodic(sight, row)),
            Self::Parameterised(filter) => {
                page_to(parameterised(world, filter, observed), |row| hidden::of_parameterised(sight, row))
            }
            Self::ParameterisedOne(show) => {
                one_to(parameterised_one(world, show), |row| hidden::of_parameterised(sight, row))
            }
            Self::Domains(filter) => domains(world, filter, observed).and_then(|page| json(&page)),
            Self::DomainUse(show) => domain_use(world, show).and_then(|row| json(&row)),
            Self::Cells(filter) => cells(world, filter, observed).and_then(|page| json(&page)),
            Self::Cell(show) => cell(world, show, observed).and_then(|row| json(&row)),
            Self::Evaluations(filter) => evaluations(world, filter, observed).and_then(|page| json(&page)),
            Self::Evaluation(show) => evaluation(world, show, observed).and_then(|row| json(&row)),
            Self::Cluster(filter) => {
                begin(world, filter, &[], |_| None::<()>)?;
                cluster(world, observed).and_then(|row| json(&row))
            }
            Self::Status(filter) => {
                begin(world, filter, &[], |_| None::<()>)?;
                status(world, observed).and_then(|row| json(&row))
            }
        }
    }
}

/// A page as somebody may see it.
fn page_to<T: serde::Serialize>(
    page: Result<Page<T>, Refusal>,
    hide: impl FnMut(&mut T),
) -> Result<String, Refusal> {
    let mut page = page?;
    page.rows.iter_mut().for_each(hide);
    json(&page)
}

/// One thing as somebody may see it.
fn one_to<T: serde::Serialize>(
    one: Result<One<T>, Refusal>,
    mut hide: impl FnMut(&mut T),
) -> Result<String, Refusal> {
    let mut one = one?;
    hide(&mut one.row);
    json(&one)
}

fn json<T: serde::Serialize>(rows: &T) -> Result<String, Refusal> {
    serde_json::to_string(rows).map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))
}

/// The DesiredLRPs that pass the filter, in order of their guids.
///
/// # Errors
/// What of the filter can't be, as for every list.
pub fn lrps(world: &World, filter: &Filter, observed: &Observed) -> Result<Page<LrpRow>, Refusal> {
    let can = [Field::Domain, Field::Process, Field::Processes, Field::Cell, Field::Definitions];
    let after = begin(world, filter, &can, |key| ProcessGuid::new(key).ok())?;
    let on = |process: &&Process| filter.cell_id.as_ref().is_none_or(|cell| is_on(process, cell));
    let processes: Box<dyn Iterator<Item = &Process>> = if filter.process_guids.is_empty() {
        Box::new(world.processes_from(after.as_ref()))
    } else {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let guids = filter.process_guids.range((start, Bound::Unbounded));
        Box::new(guids.filter_map(|guid| world.process(guid)))
    };
    let rows = processes
        .filter(|process| !process.is_gone() && in_domain(&process.domain, filter))
        .filter(|process| of_process(&process.guid, filter))
        .filter(on)
        .map(|process| lrp_row(process, filter.definitions));
    Ok(page(world, rows, filter, observed, |row| row.process_guid.to_string()))
}

/// Whether an instance of a process, or an evacuating twin, is on a cell.
fn is_on(process: &Process, cell: &CellId) -> bool {
    process.slots.iter().flat_map(Slot::holders).any(|by| by.cell_id == *cell)
}

/// One DesiredLRP with its definition.
///
/// # Errors
/// `ResourceNotFound`.
pub fn lrp(world: &World, show: &Show) -> Result<One<LrpRow>, Refusal> {
    let found = ProcessGuid::new(&show.id).ok().and_then(|guid| world.process(&guid));
    let found = found.filter(|process| !process.is_gone());
    let row = found.map(|process| lrp_row(process, true));
    one(world, row, format!("process {}", show.id))
}

/// The ActualLRPs that pass the filter, in order of process, index and definition. Of one that is being evacuated the record
/// that counts, or both: then the evacuating twin follows its instance.
///
/// # Errors
/// See [`lrps`].
pub fn instances(world: &World, filter: &Filter, observed: &Observed) -> Result<Page<InstanceRow>, Refusal> {
    let can = [Field::Domain, Field::Process, Field::Cell, Field::All];
    let after = begin(world, filter, &can, instance_key)?;
    let which = if filter.all { Which::Both } else { Which::Counting };
    let rows: Box<dyn Iterator<Item = InstanceRow>> = match (&filter.process_guid, &filter.cell_id) {
        (Some(guid), _) => {
            let process = world.process(guid).into_iter();
            Box::new(process.flat_map(move |process| instance_rows(process, which)))
        }
        (None, Some(cell)) => Box::new(on_cell(world, cell, which)),
        (None, None) => {
            let start = after.as_ref().map(|(key, _)| &key.process_guid);
            let first = start.and_then(|guid| world.process(guid));
            let processes = first.into_iter().chain(world.processes_from(start));
            Box::new(processes.flat_map(move |process| instance_rows(process, which)))
        }
    };
    let rows = rows.filter(|row| in_domain(&row.domain, filter)).filter(|row| {
        let on = filter.cell_id.as_ref().is_none_or(|cell| row.cell_id.as_ref() == Some(cell));
        let place = Place::new(row.index, row.definition_id.clone());
        let key = (ActualLrpKey::new(row.process_guid.clone(), place), row.presence);
        on && after.as_ref().is_none_or(|after| key > *after)
    });
    Ok(page(world, rows, filter, observed, |row| {
        format!("{}/{}/{}/{}", row.process_guid, row.index, row.definition_id, row.presence)
    }))
}

fn instance_key(key: &str) -> Option<(ActualLrpKey, InstancePresence)> {
    let mut parts = key.split('/');
    let guid = ProcessGuid::new(parts.next()?).ok()?;
    let index = parts.next()?.parse().ok()?;
    let place = Place::new(index, DefinitionId::new(parts.next()?).ok()?);
    let presence = parts.next()?;
    let presence = InstancePresence::ALL.into_iter().find(|one| one.as_str() == presence)?;
    parts.next().is_none().then_some((ActualLrpKey::new(guid, place), presence))
}

fn on_cell<'a>(world: &'a World, cell: &'a CellId, which: Which) -> impl Iterator<Item = InstanceRow> + 'a {
    let slots = world.on_cell(cell).filter_map(|work| match work {
        WorkRef::Lrp(key) => world.process(&key.process_guid).zip(Some(&key.place)),
        WorkRef::Task(_) => None,
    });
    slots.flat_map(move |(process, place)| {
        let rows = process.slot(place).map(|slot| slot_rows(process, slot, which));
        rows.into_iter().flatten()
    })
}

/// The ActualLRPs of a place, `PROCESS/INDEX@DEFINITION` (of the active one, if that is left open), or of a container,
/// by its guid.
///
/// # Errors
/// `ResourceNotFound`.
pub fn instance(world: &World, show: &Show) -> Result<One<Vec<InstanceRow>>, Refusal> {
    let rows: Vec<InstanceRow> = match (show.id.split_once('/'), show.id.parse::<InstanceGuid>()) {
        (Some((guid, place)), _) => {
            let process = ProcessGuid::new(guid).ok().and_then(|guid| world.process(&guid));
            let slot = process.and_then(|process| find(process, place));
            let rows = process.zip(slot).map(|(process, slot)| slot_rows(process, slot, Which::Both));
            rows.into_iter().flatten().collect()
        }
        (None, Ok(guid)) => {
            let all = world.processes_from(None).flat_map(|process| instance_rows(process, Which::Both));
            all.filter(|row| row.instance_guid == Some(guid)).collect()
        }
        (None, Err(_)) => vec![],
    };
    one(world, Some(rows).filter(|rows| !rows.is_empty()), format!("instance {}", show.id))
}

fn find<'a>(process: &'a Process, place: &str) -> Option<&'a Slot> {
    let (index, id) = place.split_once('@').map_or((place, None), |(index, id)| (index, Some(id)));
    let id = match id {
        Some(id) => Some(DefinitionId::new(id).ok()?),
        None => None,
    };
    process.find(index.parse().ok()?, id.as_ref())
}

/// The tasks that pass the filter, in order of their guids.
///
/// # Errors
/// See [`lrps`].
pub fn tasks(world: &World, filter: &Filter, observed: &Observed) -> Result<Page<TaskRow>, Refusal> {
    let can = [Field::Domain, Field::Cell, Field::Definitions];
    let after = begin(world, filter, &can, |key| TaskGuid::new(key).ok())?;
    let on = |task: &&Task| {
        filter.cell_id.as_ref().is_none_or(|cell| task.holder().is_some_and(|by| by.cell_id == *cell))
    };
    let rows = world
        .tasks_from(after.as_ref())
        .filter(|task| in_domain(&task.domain, filter))
        .filter(on)
        .filter_map(|task| task_row(task, filter.definitions));
    Ok(page(world, rows, filter, observed, |row| row.task_guid.to_string()))
}

/// One task with its definition.
///
/// # Errors
/// `ResourceNotFound`.
pub fn task(world: &World, show: &Show) -> Result<One<TaskRow>, Refusal> {
    let found = TaskGuid::new(&show.id).ok().and_then(|guid| world.task(&guid));
    one(world, found.and_then(|task| task_row(task, true)), format!("task {}", show.id))
}

/// The domains that were ever refreshed.
///
/// # Errors
/// See [`lrps`].
pub fn domains(world: &World, filter: &Filter, observed: &Observed) -> Result<Page<DomainRow>, Refusal> {
    let after = begin(world, filter, &[Field::Domain], |key| Domain::new(key).ok())?;
    let rows = world
        .domains()
        .filter(|(domain, _)| in_domain(domain, filter))
        .filter(|(domain, _)| after.as_ref().is_none_or(|after| *domain > after))
        .map(|(domain, freshness)| DomainRow {
            domain: domain.clone(),
            fresh: freshness.is_fresh(observed.now),
            refreshed_at: freshness.refreshed_at,
            expires_at: freshness.expires_at,
        });
    Ok(page(world, rows, filter, observed, |row| row.domain.to_string()))
}

/// Returns the usage and the quotas of one domain. A domain without records has the default quotas.
///
/// # Errors
/// `InvalidRequest` if the id is not a valid name.
pub fn domain_use(world: &World, show: &Show) -> Result<One<DomainUseRow>, Refusal> {
    let bad =
        |error: BadName| Refusal::invalid(vec![BadField { field: "id".into(), problem: error.to_string() }]);
    let domain = Domain::new(&show.id).map_err(bad)?;
    let (used, quotas) = (world.usage(&domain), world.quotas(&domain));
    let limited = world.limited(&domain).is_some();
    Ok(One { position: world.position(), row: DomainUseRow { domain, used, quotas, limited } })
}

/// The cells that were ever seen.
///
/// # Errors
/// See [`lrps`].
pub fn cells(world: &World, filter: &Filter, observed: &Observed) -> Result<Page<CellRow>, Refusal> {
    let after = begin(world, filter, &[Field::Cell], |key| CellId::new(key).ok())?;
    let rows = world
        .cells()
        .filter(|(id, _)| filter.cell_id.as_ref().is_none_or(|wanted| wanted == *id))
        .filter(|(id, _)| after.as_ref().is_none_or(|after| *id > after))
        .map(|(id, cell)| cell_row(world, id, cell, observed.heard.get(id).copied()));
    Ok(page(world, rows, filter, observed, |row| row.cell_id.to_string()))
}

/// One cell.
///
/// # Errors
/// `ResourceNotFound`.
pub fn cell(world: &World, show: &Show, observed: &Observed) -> Result<One<CellRow>, Refusal> {
    let id = CellId::new(&show.id).ok();
    let heard = id.as_ref().and_then(|id| observed.heard.get(id).copied());
    let row = id.as_ref().and_then(|id| world.cell(id).map(|cell| cell_row(world, id, cell, heard)));
    one(world, row, format!("cell {}", show.id))
}

/// The evaluations that are kept, of processes first, each thing's in the order in which they were made.
///
/// # Errors
/// See [`lrps`].
pub fn evaluations(
    world: &World,
    filter: &Filter,
    observed: &Observed,
) -> Result<Page<EvaluationRow>, Refusal> {
    let after = begin(world, filter, &[Field::Domain, Field::Process], evaluation_key)?;
    let start = after.as_ref().map(|(subject, _)| subject);
    let mut behind = after.is_none();
    let rows = evaluations_from(world, start, observed.now)
        .filter(|row| {
            let (subject, id) = match &after {
                Some(after) if !behind => after,
                Some(_) | None => return true,
            };
            behind = row.subject != *subject || row.evaluation.id == *id;
            row.subject != *subject
        })
        .filter(|row| in_domain(&row.domain, filter))
        .filter(|row| match &row.subject {
            EvaluationSubject::Process(guid) => of_process(guid, filter),
            EvaluationSubject::Task(_) => filter.process_guid.is_none(),
        });
    Ok(page(world, rows, filter, observed, |row| match &row.subject {
        EvaluationSubject::Process(guid) => format!("process/{guid}/{}", row.evaluation.id),
        EvaluationSubject::Task(guid) => format!("task/{guid}/{}", row.evaluation.id),
    }))
}

fn evaluation_key(key: &str) -> Option<(EvaluationSubject, EvaluationId)> {
    let mut parts = key.split('/');
    let (kind, guid, id) = (parts.next()?, parts.next()?, parts.next()?);
    let subject = match kind {
        "process" => EvaluationSubject::Process(ProcessGuid::new(guid).ok()?),
        "task" => EvaluationSubject::Task(TaskGuid::new(guid).ok()?),
        _ => return None,
    };
    let id: EvaluationId = id.parse().ok()?;
    parts.next().is_none().then_some((subject, id))
}

/// One evaluation by its id.
///
/// # Errors
/// `ResourceNotFound`: no such one, or it is no longer kept.
pub fn evaluation(world: &World, show: &Show, observed: &Observed) -> Result<One<EvaluationRow>, Refusal> {
    let row =
        evaluations_from(world, None, observed.now).find(|row| row.evaluation.id.to_string() == show.id);
    let row = row.map(|row| EvaluationRow { turn: turn::of_evaluation(world, &row), ..row });
    one(world, row, format!("evaluation {}", show.id))
}

/// The cluster.
///
/// # Errors
/// `ResourceNotFound` before it is founded.
pub fn cluster(world: &World, observed: &Observed) -> Result<One<ClusterRow>, Refusal> {
    one(world, cluster_row(world, observed), "the cluster".into())
}

/// How the cluster is.
///
/// # Errors
/// `ResourceNotFound` before it is founded.
pub fn status(world: &World, observed: &Observed) -> Result<One<StatusRow>, Refusal> {
    one(world, status::status_row(world, observed), "the cluster".into())
}

fn in_domain(domain: &Domain, filter: &Filter) -> bool {
    filter.domain.as_ref().is_none_or(|wanted| wanted == domain)
}

fn of_process(guid: &ProcessGuid, filter: &Filter) -> bool {
    filter.process_guid.as_ref().is_none_or(|wanted| wanted == guid)
}

fn one<T>(world: &World, row: Option<T>, what: String) -> Result<One<T>, Refusal> {
    row.map(|row| One { position: world.position(), row }).ok_or_else(|| Refusal::not_found(what))
}

/// A page ends at its limit of rows, or of bytes as JSON.
fn page<T: serde::Serialize>(
    world: &World,
    rows: impl Iterator<Item = T>,
    filter: &Filter,
    observed: &Observed,
    key: impl Fn(&T) -> String,
) -> Page<T> {
    let limit = filter.limit.unwrap_or(PAGE_ROWS).clamp(1, PAGE_ROWS);
    let position = world.position();
    let mut page = Page { position, rows: vec![], next: None };
    let mut bytes = 0;
    for row in rows {
        let size = serde_json::to_vec(&row).map_or(0, |json| json.len());
        let full = page.rows.len() >= limit || bytes + size > PAGE_BYTES;
        if let Some(last) = page.rows.last().filter(|_| full) {
            page.next = Some(Cursor { bbs: observed.bbs.clone(), position, key: key(last) }.to_string());
            break;
        }
        bytes += size;
        page.rows.push(row);
    }
    page
}

/// What a list can be narrowed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Domain,
    Process,
    Processes,
    Cell,
    Index,
    All,
    Definitions,
}

impl Field {
    const EVERY: [Self; 7] =
        [Self::Domain, Self::Process, Self::Processes, Self::Cell, Self::Index, Self::All, Self::Definitions];

    const fn name(self) -> &'static str {
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

    fn is_set(self, filter: &Filter) -> bool {
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

/// Checks a filter against what the list can do, and says behind which row the page begins.
fn begin<K>(
    world: &World,
    filter: &Filter,
    can: &[Field],
    key: impl Fn(&str) -> Option<K>,
) -> Result<Option<K>, Refusal> {
    let mut bad = vec![];
    for field in Field::EVERY.into_iter().filter(|field| field.is_set(filter) && !can.contains(field)) {
        let others = can.iter().map(|field| field.name()).collect::<Vec<_>>().join(", ");
        let others = if others.is_empty() { "it has none".to_owned() } else { format!("use {others}") };
        let problem = format!("is not a filter of this query: {others}");
        bad.push(BadField { field: field.name().into(), problem });
    }
    if let Some(limit) = filter.limit.filter(|limit| !(1..=PAGE_ROWS).contains(limit)) {
        let problem = format!("{limit} is not a number of rows: use 1 to {PAGE_ROWS}");
        bad.push(BadField { field: "limit".into(), problem });
    }
    let guids = filter.process_guids.len();
    if guids > PAGE_ROWS {
        let problem = format!("has {guids} names: use at most {PAGE_ROWS}");
        bad.push(BadField { field: Field::Processes.name().into(), problem });
    }
    if guids > 0 && filter.process_guid.is_some() {
        let problem = "is set together with process_guid: use one of them".into();
        bad.push(BadField { field: Field::Processes.name().into(), problem });
    }
    if !bad.is_empty() {
        return Err(Refusal::invalid(bad));
    }
    let Some(text) = &filter.cursor else { return Ok(None) };
    let cursor = Cursor::parse(text)?;
    let key = key(&cursor.key).ok_or_else(|| Cursor::bad(text))?;
    if cursor.position != world.position() {
        return Err(expired(&cursor));
    }
    Ok(Some(key))
}

/// What a cursor is answered whose position is no longer held.
#[must_use]
pub fn expired(cursor: &Cursor) -> Refusal {
    let why = format!("position {} is no longer held here: list again from the beginning", cursor.position);
    Refusal::new(Code::Expired, why)
}
