//! Rows of ended containers and tasks: the newest containers of each index, and the newest tasks of each
//! domain. A process may set the number of rows per index. Without this setting, the answering service uses
//! its own limit.

use std::iter::Peekable;

use machines::ended::{EndedInstance, EndedTask};
use schemas::limits::TASKS_PER_HISTORY;
use schemas::names::{CellId, Domain, ProcessGuid};
use schemas::query::{EndedInstanceRow, EndedTaskRow, Filter, Page};
use schemas::subject::Position;
use schemas::task::Outcome;
use schemas::verb::QueryVerb;
use schemas::{BadField, Refusal, Timestamp};

use super::{Observed, in_domain, is_process, page, parse_cursor};
use crate::ended::{EndOrder, EndedInstanceKey, EndedTaskKey};
use crate::world::World;

/// Returns the ended containers that pass the filter, by process and index. The containers of one index are
/// ordered by the time at which they ended.
///
/// # Errors
/// `InvalidRequest` if the filter or its cursor is invalid, or has an index without a process. `Expired` if
/// the position of the cursor is no longer held.
pub fn ended_instances(
    world: &World,
    filter: &Filter,
    observed: &Observed,
) -> Result<Page<EndedInstanceRow>, Refusal> {
    let after = parse_cursor(world, filter, QueryVerb::InstanceEnded, instance_key)?;
    if filter.index.is_some() && filter.process_guid.is_none() {
        let problem = "requires process_guid".to_owned();
        return Err(Refusal::invalid(vec![BadField { field: "index".into(), problem }]));
    }
    let first = after.as_ref().map(|after| (&after.process, after.index));
    let named = filter.process_guid.as_ref().map(|guid| (guid, filter.index.unwrap_or(0)));
    let history = &world.history;
    let all = history.instances_from(first.max(named));
    let all = all.take_while(|(key, _)| {
        let at = filter.index.is_none_or(|index| key.index <= index);
        filter.process_guid.as_ref().is_none_or(|guid| key.process == *guid && at)
    });
    let indices = GroupByKey {
        rest: all.peekable(),
        same: |one: &EndedInstanceKey, other: &EndedInstanceKey| {
            one.process == other.process && one.index == other.index
        },
    };
    let rows = indices
        .flat_map(|group| {
            let limit = group.first().and_then(|(key, _)| history.limit_of(&key.process));
            take_newest(group, limit.unwrap_or(observed.history_limit) as usize)
        })
        .filter(|(key, ended)| {
            after.as_ref().is_none_or(|after| *key > after)
                && is_process(&key.process, filter)
                && filter.cell_id.as_ref().is_none_or(|cell| ended.by.cell_id == *cell)
        })
        .filter(|(_, ended)| in_domain(&ended.domain, filter))
        .map(|(key, ended)| ended_instance_row(key, ended));
    Ok(page(world, rows, filter, observed, |row| {
        format!("{}/{}/{}/{}", row.process_guid, row.index, row.position, row.nth)
    }))
}

pub(crate) fn ended_instance_row(key: &EndedInstanceKey, ended: &EndedInstance) -> EndedInstanceRow {
    EndedInstanceRow {
        process_guid: key.process.clone(),
        index: key.index,
        domain: ended.domain.clone(),
        epoch: ended.epoch,
        definition_id: ended.place.definition_id.clone(),
        instance_guid: ended.by.instance_guid,
        cell_id: ended.by.cell_id.clone(),
        started_at: ended.started_at,
        ended_at: ended.ended_at,
        duration_ms: duration_ms(ended.started_at, ended.ended_at),
        end_kind: ended.end_kind,
        stop_reason: ended.stop_reason,
        reason: Some(ended.reason.to_string()).filter(|reason| !reason.is_empty()),
        exit_status: ended.exit_status,
        crash_count: ended.crash_count,
        position: key.when.position,
        nth: key.when.nth,
    }
}

/// Returns the ended tasks that pass the filter, by domain. The tasks of one domain are ordered by the time
/// of their deletion.
///
/// # Errors
/// See [`ended_instances`].
pub fn ended_tasks(
    world: &World,
    filter: &Filter,
    observed: &Observed,
) -> Result<Page<EndedTaskRow>, Refusal> {
    let after = parse_cursor(world, filter, QueryVerb::TaskEnded, task_key)?;
    let first = after.as_ref().map(|after| &after.domain);
    let all = world.history.tasks_from(first.max(filter.domain.as_ref()));
    let all = all.take_while(|(key, _)| in_domain(&key.domain, filter));
    let domains = GroupByKey {
        rest: all.peekable(),
        same: |one: &EndedTaskKey, other: &EndedTaskKey| one.domain == other.domain,
    };
    let shown = observed.history_limit as usize * TASKS_PER_HISTORY;
    let rows = domains
        .flat_map(|group| take_newest(group, shown))
        .filter(|(key, ended)| {
            let on = |cell: &CellId| ended.by.as_ref().is_some_and(|by| by.cell_id == *cell);
            after.as_ref().is_none_or(|after| *key > after) && filter.cell_id.as_ref().is_none_or(on)
        })
        .map(|(key, ended)| ended_task_row(key, ended));
    Ok(page(world, rows, filter, observed, |row| format!("{}/{}/{}", row.domain, row.position, row.nth)))
}

pub(crate) fn ended_task_row(key: &EndedTaskKey, ended: &EndedTask) -> EndedTaskRow {
    let (failed, failure_reason, result) = match &ended.outcome {
        Outcome::Succeeded { result } => (false, None, Some(result.clone())),
        Outcome::Failed { reason } => (true, Some(reason.clone()), None),
    };
    EndedTaskRow {
        task_guid: ended.guid.clone(),
        domain: ended.domain.clone(),
        epoch: ended.epoch,
        instance_guid: ended.by.as_ref().map(|by| by.instance_guid),
        cell_id: ended.by.as_ref().map(|by| by.cell_id.clone()),
        failed,
        failure_reason,
        result,
        callback: ended.callback.clone(),
        started_at: ended.started_at,
        first_completed_at: ended.completed_at,
        duration_ms: duration_ms(ended.started_at, ended.completed_at),
        deleted_at: ended.deleted_at,
        resolved: ended.resolved,
        position: key.when.position,
        nth: key.when.nth,
    }
}

fn duration_ms(from: Option<Timestamp>, to: Timestamp) -> Option<u64> {
    from.map(|from| u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX))
}

fn take_newest<T>(group: Vec<T>, most: usize) -> impl Iterator<Item = T> {
    let old = group.len().saturating_sub(most);
    group.into_iter().skip(old)
}

/// Iterator over groups of adjacent items with the same key.
struct GroupByKey<I: Iterator, F> {
    rest: Peekable<I>,
    same: F,
}

impl<'a, K: 'a, V: 'a, I, F> Iterator for GroupByKey<I, F>
where
    I: Iterator<Item = (&'a K, &'a V)>,
    F: Fn(&K, &K) -> bool,
{
    type Item = Vec<(&'a K, &'a V)>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.rest.next()?;
        let mut group = vec![first];
        while let Some(next) = self.rest.next_if(|(key, _)| (self.same)(first.0, key)) {
            group.push(next);
        }
        Some(group)
    }
}

fn instance_key(key: &str) -> Option<EndedInstanceKey> {
    let mut parts = key.split('/');
    let process = ProcessGuid::new(parts.next()?).ok()?;
    let index = parts.next()?.parse().ok()?;
    let when = when(&mut parts)?;
    Some(EndedInstanceKey { process, index, when })
}

fn task_key(key: &str) -> Option<EndedTaskKey> {
    let mut parts = key.split('/');
    let domain = Domain::new(parts.next()?).ok()?;
    Some(EndedTaskKey { domain, when: when(&mut parts)? })
}

fn when<'a>(parts: &mut impl Iterator<Item = &'a str>) -> Option<EndOrder> {
    let position = Position(parts.next()?.parse().ok()?);
    let nth = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(EndOrder { position, nth })
}
