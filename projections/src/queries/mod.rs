//! Queries: the state at one position, returned as rows. A query only reads the World (the state folded from
//! the log).

mod ended;
mod parameterised;
mod periodic;
mod queue_position;
mod redaction;
mod rows;
mod states;
mod status;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use machines::process::{Process, Slot};
use machines::task::Task;
use schemas::limits::{PAGE_BYTES, PAGE_ROWS};
use schemas::names::{
    BadName, CellId, DefinitionId, Domain, EvaluationId, InstanceGuid, ProcessGuid, ServiceId, TaskGuid,
};
use schemas::query::{
    AsOf, CellRow, ClusterRow, Cursor, DomainRow, DomainUseRow, EvaluationRow, EvaluationSubject, Filter,
    FilterField, InstancePresence, InstanceRow, LogRow, LrpRow, Page, QuarantinedEntries, Services, Show,
    ShowAnswer, StatusRow, TaskRow,
};
use schemas::sight::ReadScope;
use schemas::verb::QueryVerb;
use schemas::{ActualLrpKey, BadField, Code, Place, Position, Refusal, Timestamp};

pub(crate) use self::ended::{ended_instance_row, ended_task_row};
pub use self::ended::{ended_instances, ended_tasks};
pub(crate) use self::parameterised::parameterised_row;
pub use self::parameterised::{parameterised, parameterised_one};
pub(crate) use self::periodic::periodic_row;
pub use self::periodic::{periodic, periodics};
pub(crate) use self::rows::{RecordSelection, cell_row, lrp_row, slot_rows, task_row};
use self::rows::{cluster_row, evaluations_from, instance_rows};
pub use self::states::cell_state;
pub(crate) use self::states::rollout_row;
use crate::index::WorkRef;
use crate::world::World;

/// State that rows show but the log does not contain. The BBS that answers the query observes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// BBS that answers the query. Cursors name this BBS, because it holds the World snapshot of their pages.
    pub bbs: ServiceId,
    /// Current time of that BBS's clock.
    pub now: Timestamp,
    /// Durability guarantee of acknowledged entries, as far as the BBS can determine it.
    pub durability: String,
    /// Journal messages that are not valid entries.
    pub quarantined_entries: QuarantinedEntries,
    /// BBSs and auctioneers whose heartbeats arrive.
    pub services: Services,
    /// Number of ended containers to show for each index, unless the process sets its own limit.
    pub history_limit: u32,
    /// Number of refused transitions of evaluations since the BBS started. A transition is refused if the
    /// status of the evaluation does not allow it.
    pub refused_transitions: u64,
    /// Stream that holds the log. `None` if the log is not in a stream, or the stream was not read yet.
    pub log: Option<LogRow>,
    /// Time since the last heartbeat of each cell. Cells that have not sent a heartbeat are missing.
    pub heartbeat_ages: BTreeMap<CellId, Duration>,
}

impl Observed {
    /// Returns the observations for a query about a past time. Heartbeats are known only for the present, so
    /// they are left out. Freshness is evaluated at `now`, which is the past time.
    #[must_use]
    pub fn for_past(&self, now: Timestamp, quarantined_entries: QuarantinedEntries) -> Self {
        Self {
            bbs: self.bbs.clone(),
            now,
            durability: self.durability.clone(),
            quarantined_entries,
            services: Services::default(),
            history_limit: self.history_limit,
            refused_transitions: 0,
            log: None,
            heartbeat_ages: BTreeMap::new(),
        }
    }
}

/// Query that is answered with rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// DesiredLRPs.
    Lrps(Filter),
    /// One DesiredLRP.
    Lrp(Show),
    /// ActualLRPs.
    Instances(Filter),
    /// ActualLRPs of one index.
    Instance(Show),
    /// Ended containers of instances.
    EndedInstances(Filter),
    Tasks(Filter),
    /// One task.
    Task(Show),
    /// Ended tasks.
    EndedTasks(Filter),
    /// Periodic tasks.
    Periodics(Filter),
    /// One periodic task.
    Periodic(Show),
    /// Parameterised tasks.
    Parameterised(Filter),
    /// One parameterised task.
    ParameterisedOne(Show),
    Domains(Filter),
    /// Usage and quotas of one domain.
    DomainUse(Show),
    Cells(Filter),
    /// One cell.
    Cell(Show),
    Evaluations(Filter),
    /// One evaluation.
    Evaluation(Show),
    /// Properties and counts of the cluster.
    Cluster(Filter),
    /// Health of the cluster.
    Status(Filter),
}

impl Query {
    /// Returns the filter of a list query, or `None` if the query shows one thing.
    #[must_use]
    pub const fn filter(&self) -> Option<&Filter> {
        match self.request() {
            Ok(filter) => Some(filter),
            Err(_) => None,
        }
    }

    /// Returns the minimum position of the answer, or `None` if any position is sufficient.
    #[must_use]
    pub const fn at_least(&self) -> Option<Position> {
        match self.request() {
            Ok(filter) => filter.at_least,
            Err(show) => show.at_least,
        }
    }

    /// Returns the past position or time that the query is about, or `None` for the present.
    #[must_use]
    pub const fn as_of(&self) -> Option<AsOf> {
        match self.request() {
            Ok(filter) => filter.as_of,
            Err(show) => show.as_of,
        }
    }

    /// Returns the filter of a list query, or else the request for one thing.
    const fn request(&self) -> Result<&Filter, &Show> {
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
            | Self::Status(filter) => Ok(filter),
            Self::Lrp(show)
            | Self::Instance(show)
            | Self::Task(show)
            | Self::Periodic(show)
            | Self::ParameterisedOne(show)
            | Self::Cell(show)
            | Self::DomainUse(show)
            | Self::Evaluation(show) => Err(show),
        }
    }

    /// Answers the query for a client that may read everything, as JSON text of a [`Page`] or of [`ShowAnswer`].
    ///
    /// # Errors
    /// Returns the refusal of an invalid query. Also refuses if the requested thing does not exist.
    pub fn answer(&self, world: &World, observed: &Observed) -> Result<String, Refusal> {
        self.answer_to(&ReadScope::Everything, world, observed)
    }

    /// Answers the query for a client with this read scope. Environment values outside of the scope are
    /// removed.
    ///
    /// # Errors
    ///
    /// See [`Query::answer`].
    pub fn answer_to(
        &self,
        sight: &ReadScope,
        world: &World,
        observed: &Observed,
    ) -> Result<String, Refusal> {
        match self {
            Self::Lrps(filter) => {
                redacted_page(lrps(world, filter, observed), |row| redaction::redact_lrp(sight, row))
            }
            Self::Lrp(show) => redacted_row(lrp(world, show), |row| redaction::redact_lrp(sight, row)),
            Self::Instances(filter) => instances(world, filter, observed).and_then(|page| to_json(&page)),
            Self::Instance(show) => instance(world, show).and_then(|row| to_json(&row)),
            Self::Tasks(filter) => {
                redacted_page(tasks(world, filter, observed), |row| redaction::redact_task(sight, row))
            }
            Self::EndedInstances(filter) => {
                ended_instances(world, filter, observed).and_then(|page| to_json(&page))
            }
            Self::EndedTasks(filter) => ended_tasks(world, filter, observed).and_then(|page| to_json(&page)),
            Self::Task(show) => redacted_row(task(world, show), |row| redaction::redact_task(sight, row)),
            Self::Periodics(filter) => redacted_page(periodics(world, filter, observed), |row| {
                redaction::redact_periodic(sight, row);
            }),
            Self::Periodic(show) => {
                redacted_row(periodic(world, show), |row| redaction::redact_periodic(sight, row))
            }
            Self::Parameterised(filter) => redacted_page(parameterised(world, filter, observed), |row| {
                redaction::redact_parameterised(sight, row);
            }),
            Self::ParameterisedOne(show) => redacted_row(parameterised_one(world, show), |row| {
                redaction::redact_parameterised(sight, row);
            }),
            Self::Domains(filter) => domains(world, filter, observed).and_then(|page| to_json(&page)),
            Self::DomainUse(show) => domain_use(world, show).and_then(|row| to_json(&row)),
            Self::Cells(filter) => cells(world, filter, observed).and_then(|page| to_json(&page)),
            Self::Cell(show) => cell(world, show, observed).and_then(|row| to_json(&row)),
            Self::Evaluations(filter) => evaluations(world, filter, observed).and_then(|page| to_json(&page)),
            Self::Evaluation(show) => evaluation(world, show, observed).and_then(|row| to_json(&row)),
            Self::Cluster(filter) => {
                parse_cursor(world, filter, QueryVerb::ClusterShow, |_| None::<()>)?;
                cluster(world, observed).and_then(|row| to_json(&row))
            }
            Self::Status(filter) => {
                parse_cursor(world, filter, QueryVerb::ClusterStatus, |_| None::<()>)?;
                status(world, observed).and_then(|row| to_json(&row))
            }
        }
    }
}

/// Redacts the rows of a page and serializes it.
fn redacted_page<T: serde::Serialize>(
    page: Result<Page<T>, Refusal>,
    hide: impl FnMut(&mut T),
) -> Result<String, Refusal> {
    let mut page = page?;
    page.rows.iter_mut().for_each(hide);
    to_json(&page)
}

/// Redacts one row and serializes it.
fn redacted_row<T: serde::Serialize>(
    one: Result<ShowAnswer<T>, Refusal>,
    mut hide: impl FnMut(&mut T),
) -> Result<String, Refusal> {
    let mut one = one?;
    hide(&mut one.row);
    to_json(&one)
}

fn to_json<T: serde::Serialize>(rows: &T) -> Result<String, Refusal> {
    serde_json::to_string(rows).map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))
}

/// Returns the DesiredLRPs that pass the filter, in order of their guids.
///
/// # Errors
/// `InvalidRequest` if the filter or its cursor is invalid. `Expired` if the World snapshot at the position
/// of the cursor is no longer held.
pub fn lrps(world: &World, filter: &Filter, observed: &Observed) -> Result<Page<LrpRow>, Refusal> {
    let after = parse_cursor(world, filter, QueryVerb::LrpList, |key| ProcessGuid::new(key).ok())?;
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
        .filter(|process| is_process(&process.guid, filter))
        .filter(on)
        .map(|process| lrp_row(process, filter.definitions));
    Ok(page(world, rows, filter, observed, |row| row.process_guid.to_string()))
}

/// Returns `true` if an instance or an evacuating instance of a process is on a cell.
fn is_on(process: &Process, cell: &CellId) -> bool {
    process.slots.iter().flat_map(Slot::holders).any(|by| by.cell_id == *cell)
}

/// Returns one DesiredLRP with its definitions.
///
/// # Errors
/// `ResourceNotFound` if there is no such process.
pub fn lrp(world: &World, show: &Show) -> Result<ShowAnswer<LrpRow>, Refusal> {
    let found = ProcessGuid::new(&show.id).ok().and_then(|guid| world.process(&guid));
    let found = found.filter(|process| !process.is_gone());
    let row = found.map(|process| lrp_row(process, true));
    single_row(world, row, format!("process {}", show.id))
}

/// Returns the ActualLRPs that pass the filter, in order of process, index and definition. An index that is
/// being evacuated has two records. The filter selects either the record that counts or both records. If the
/// filter selects both, the evacuating instance comes second.
///
/// # Errors
///
/// See [`lrps`].
pub fn instances(world: &World, filter: &Filter, observed: &Observed) -> Result<Page<InstanceRow>, Refusal> {
    let after = parse_cursor(world, filter, QueryVerb::InstanceList, instance_key)?;
    let which = if filter.all { RecordSelection::Both } else { RecordSelection::Effective };
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

fn on_cell<'a>(
    world: &'a World,
    cell: &'a CellId,
    which: RecordSelection,
) -> impl Iterator<Item = InstanceRow> + 'a {
    let slots = world.on_cell(cell).filter_map(|work| match work {
        WorkRef::Lrp(key) => world.process(&key.process_guid).zip(Some(&key.place)),
        WorkRef::Task(_) => None,
    });
    slots.flat_map(move |(process, place)| {
        let rows = process.slot(place).map(|slot| slot_rows(process, slot, which));
        rows.into_iter().flatten()
    })
}

/// Returns the ActualLRPs of a slot, `PROCESS/INDEX@DEFINITION`, or of a container, by its guid. If the slot
/// names no definition, [`Process::find`] selects one.
///
/// # Errors
/// `ResourceNotFound` if there is no such instance.
pub fn instance(world: &World, show: &Show) -> Result<ShowAnswer<Vec<InstanceRow>>, Refusal> {
    let rows: Vec<InstanceRow> = match (show.id.split_once('/'), show.id.parse::<InstanceGuid>()) {
        (Some((guid, place)), _) => {
            let process = ProcessGuid::new(guid).ok().and_then(|guid| world.process(&guid));
            let slot = process.and_then(|process| find_slot(process, place));
            let rows =
                process.zip(slot).map(|(process, slot)| slot_rows(process, slot, RecordSelection::Both));
            rows.into_iter().flatten().collect()
        }
        (None, Ok(guid)) => {
            let all =
                world.processes_from(None).flat_map(|process| instance_rows(process, RecordSelection::Both));
            all.filter(|row| row.instance_guid == Some(guid)).collect()
        }
        (None, Err(_)) => vec![],
    };
    single_row(world, Some(rows).filter(|rows| !rows.is_empty()), format!("instance {}", show.id))
}

fn find_slot<'a>(process: &'a Process, place: &str) -> Option<&'a Slot> {
    let (index, id) = place.split_once('@').map_or((place, None), |(index, id)| (index, Some(id)));
    let id = match id {
        Some(id) => Some(DefinitionId::new(id).ok()?),
        None => None,
    };
    process.find(index.parse().ok()?, id.as_ref())
}

/// Returns the tasks that pass the filter, in order of their guids.
///
/// # Errors
/// See [`lrps`].
pub fn tasks(world: &World, filter: &Filter, observed: &Observed) -> Result<Page<TaskRow>, Refusal> {
    let after = parse_cursor(world, filter, QueryVerb::TaskList, |key| TaskGuid::new(key).ok())?;
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

/// Returns one task with its definition.
///
/// # Errors
/// `ResourceNotFound` if there is no such task.
pub fn task(world: &World, show: &Show) -> Result<ShowAnswer<TaskRow>, Refusal> {
    let found = TaskGuid::new(&show.id).ok().and_then(|guid| world.task(&guid));
    single_row(world, found.and_then(|task| task_row(task, true)), format!("task {}", show.id))
}

/// Returns the domains that were ever refreshed.
///
/// # Errors
/// See [`lrps`].
pub fn domains(world: &World, filter: &Filter, observed: &Observed) -> Result<Page<DomainRow>, Refusal> {
    let after = parse_cursor(world, filter, QueryVerb::DomainList, |key| Domain::new(key).ok())?;
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
pub fn domain_use(world: &World, show: &Show) -> Result<ShowAnswer<DomainUseRow>, Refusal> {
    let bad =
        |error: BadName| Refusal::invalid(vec![BadField { field: "id".into(), problem: error.to_string() }]);
    let domain = Domain::new(&show.id).map_err(bad)?;
    let (used, quotas) = (world.usage(&domain), world.quotas(&domain));
    let limited = world.limited(&domain).is_some();
    Ok(ShowAnswer { position: world.position(), row: DomainUseRow { domain, used, quotas, limited } })
}

/// Returns the known cells that pass the filter, in order of their ids.
///
/// # Errors
/// See [`lrps`].
pub fn cells(world: &World, filter: &Filter, observed: &Observed) -> Result<Page<CellRow>, Refusal> {
    let after = parse_cursor(world, filter, QueryVerb::CellList, |key| CellId::new(key).ok())?;
    let rows = world
        .cells()
        .filter(|(id, _)| filter.cell_id.as_ref().is_none_or(|wanted| wanted == *id))
        .filter(|(id, _)| after.as_ref().is_none_or(|after| *id > after))
        .map(|(id, cell)| cell_row(world, id, cell, observed.heartbeat_ages.get(id).copied()));
    Ok(page(world, rows, filter, observed, |row| row.cell_id.to_string()))
}

/// Returns one cell.
///
/// # Errors
/// `ResourceNotFound` if there is no such cell.
pub fn cell(world: &World, show: &Show, observed: &Observed) -> Result<ShowAnswer<CellRow>, Refusal> {
    let id = CellId::new(&show.id).ok();
    let heard = id.as_ref().and_then(|id| observed.heartbeat_ages.get(id).copied());
    let row = id.as_ref().and_then(|id| world.cell(id).map(|cell| cell_row(world, id, cell, heard)));
    single_row(world, row, format!("cell {}", show.id))
}

/// Returns the recorded evaluations that pass the filter. The evaluations of processes come before those of
/// tasks. The evaluations of one process or task are in the order of their creation.
///
/// # Errors
///
/// See [`lrps`].
pub fn evaluations(
    world: &World,
    filter: &Filter,
    observed: &Observed,
) -> Result<Page<EvaluationRow>, Refusal> {
    let after = parse_cursor(world, filter, QueryVerb::EvaluationList, evaluation_key)?;
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
            EvaluationSubject::Process(guid) => is_process(guid, filter),
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

/// Returns one evaluation by its id.
///
/// # Errors
///
/// `ResourceNotFound` if the evaluation does not exist or is no longer recorded.
pub fn evaluation(
    world: &World,
    show: &Show,
    observed: &Observed,
) -> Result<ShowAnswer<EvaluationRow>, Refusal> {
    let row =
        evaluations_from(world, None, observed.now).find(|row| row.evaluation.id.to_string() == show.id);
    let row =
        row.map(|row| EvaluationRow { queue_position: queue_position::of_evaluation(world, &row), ..row });
    single_row(world, row, format!("evaluation {}", show.id))
}

/// Returns properties and counts of the cluster.
///
/// # Errors
///
/// `ResourceNotFound` before the cluster is founded.
pub fn cluster(world: &World, observed: &Observed) -> Result<ShowAnswer<ClusterRow>, Refusal> {
    single_row(world, cluster_row(world, observed), "the cluster".into())
}

/// Returns the health of the cluster with its findings.
///
/// # Errors
///
/// `ResourceNotFound` before the cluster is founded.
pub fn status(world: &World, observed: &Observed) -> Result<ShowAnswer<StatusRow>, Refusal> {
    single_row(world, status::status_row(world, observed), "the cluster".into())
}

fn in_domain(domain: &Domain, filter: &Filter) -> bool {
    filter.domain.as_ref().is_none_or(|wanted| wanted == domain)
}

fn is_process(guid: &ProcessGuid, filter: &Filter) -> bool {
    filter.process_guid.as_ref().is_none_or(|wanted| wanted == guid)
}

fn single_row<T>(world: &World, row: Option<T>, what: String) -> Result<ShowAnswer<T>, Refusal> {
    row.map(|row| ShowAnswer { position: world.position(), row }).ok_or_else(|| Refusal::not_found(what))
}

/// Collects rows into a page, up to the limits on its number of rows and on its size as JSON.
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

/// Validates a filter against the fields that the query supports. Returns the key of the last row of the
/// previous page, or `None` for the first page.
fn parse_cursor<K>(
    world: &World,
    filter: &Filter,
    query: QueryVerb,
    key: impl Fn(&str) -> Option<K>,
) -> Result<Option<K>, Refusal> {
    let can = FilterField::honoured_by(query);
    let mut bad = vec![];
    for field in FilterField::ALL.into_iter().filter(|field| field.is_set(filter) && !can.contains(field)) {
        let others = can.iter().map(|field| field.name()).collect::<Vec<_>>().join(", ");
        let others = if others.is_empty() { "it has none".to_owned() } else { format!("use {others}") };
        let problem = format!("is not a filter of this query: {others}");
        bad.push(BadField { field: field.name().into(), problem });
    }
    if let Some(limit) = filter.limit.filter(|limit| !(1..=PAGE_ROWS).contains(limit)) {
        let problem = format!("{limit} is out of range: expected 1 to {PAGE_ROWS}");
        bad.push(BadField { field: "limit".into(), problem });
    }
    let guids = filter.process_guids.len();
    if guids > PAGE_ROWS {
        let problem = format!("has {guids} names: use at most {PAGE_ROWS}");
        bad.push(BadField { field: FilterField::Processes.name().into(), problem });
    }
    if guids > 0 && filter.process_guid.is_some() {
        let problem = "is set together with process_guid: use one of them".into();
        bad.push(BadField { field: FilterField::Processes.name().into(), problem });
    }
    if !bad.is_empty() {
        return Err(Refusal::invalid(bad));
    }
    let Some(text) = &filter.cursor else { return Ok(None) };
    let cursor = Cursor::parse(text)?;
    let key = key(&cursor.key).ok_or_else(|| Cursor::invalid(text))?;
    if cursor.position != world.position() {
        return Err(expired_cursor(&cursor));
    }
    Ok(Some(key))
}

/// Returns the refusal of a cursor if the BBS no longer holds the World snapshot at the cursor's position.
#[must_use]
pub fn expired_cursor(cursor: &Cursor) -> Refusal {
    let why = format!("position {} is no longer available: list again from the beginning", cursor.position);
    Refusal::new(Code::Expired, why)
}
