//! Specs of periodic tasks: a task definition, a schedule, and the handling of overlapping runs.

use std::sync::Arc;

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::policies::take_word;
use super::{
    DefaultDomain, UNSUPPORTED_FIELDS, check_size, compact, must_domain, take_task_definition,
    task_definition_to_json,
};
use crate::definition::{DesiredPeriodic, Overlap};
use crate::fields::{Field, Fields};
use crate::limits;
use crate::names::{BadName, LAUNCH_SEPARATOR, PeriodicGuid, TaskGuid};
use crate::schedule::{BadSchedule, Schedule};

/// Default time zone of schedules.
const DEFAULT_TIME_ZONE: &str = "UTC";

const OVERLAPS: [(&str, Overlap); 3] =
    [("allowed", Overlap::Allowed), ("skipped", Overlap::Skipped), ("queued", Overlap::Queued)];

/// Converts a periodic task to JSON that [`take`] can parse.
pub(super) fn to_json(periodic: &DesiredPeriodic) -> Value {
    let mut value = compact(json!({
        "periodic_guid": periodic.periodic_guid,
        "domain": periodic.domain,
        "cron": periodic.schedule.cron(),
        "time_zone": periodic.schedule.time_zone(),
        "overlap": periodic.overlap,
    }));
    if let (Value::Object(all), Value::Object(definition)) =
        (&mut value, compact(task_definition_to_json(&periodic.definition)))
    {
        all.extend(definition);
    }
    value
}

pub(super) fn take(root: Field<'_>, default_domain: DefaultDomain<'_>) -> Option<DesiredPeriodic> {
    check_size(&root);
    let (path, problems) = (root.path.clone(), root.problems);
    let mut fields = root.object_of::<DesiredPeriodic>("PeriodicDesire")?;
    let periodic_guid = fields.required("periodic_guid", |field| {
        take_launcher_guid(field, limits::PERIODIC_GUID_BYTES, "TIME", PeriodicGuid::as_str)
    });
    let domain = must_domain(&mut fields, default_domain);
    let schedule = take_schedule(&mut fields);
    let overlap = fields.with_default("overlap", Overlap::default(), |field| take_word(field, &OVERLAPS));
    let definition = take_task_definition(&mut fields);
    fields.finish(UNSUPPORTED_FIELDS);
    let periodic = DesiredPeriodic {
        periodic_guid: periodic_guid?,
        domain: domain?,
        schedule: schedule?,
        overlap: overlap?,
        definition: Arc::new(definition?),
    };
    let bytes = serde_json::to_vec(&periodic).map_or(usize::MAX, |text| text.len());
    if bytes > limits::PERIODIC_BYTES {
        let name = if path.is_empty() { "message" } else { &path };
        problems.add(name, format!("takes {bytes} bytes of the log, more than {}", limits::PERIODIC_BYTES));
    }
    Some(periodic)
}

/// Parses the guid of a periodic or parameterised task. The guids of its launched tasks start with this guid,
/// so it must not contain the launch mark.
pub(super) fn take_launcher_guid<T: TryFrom<String, Error = BadName> + JsonSchema>(
    field: Field<'_>,
    most: usize,
    behind: &str,
    as_str: fn(&T) -> &str,
) -> Option<T> {
    let (path, problems) = (field.path.clone(), field.problems);
    let guid: T = field.name()?;
    let text = as_str(&guid);
    if text.len() > most {
        problems.add(path, format!("has {} bytes, more than {most}", text.len()));
    } else if text.contains(LAUNCH_SEPARATOR) || text.ends_with('-') {
        let mark = format!(
            "{text} must not contain {LAUNCH_SEPARATOR} or end with -: its tasks are named \
             {text}{LAUNCH_SEPARATOR}{behind}"
        );
        problems.add(path, mark);
    }
    Some(guid)
}

/// Parses the guid of a task from a client. The guid must not have the form of a launched task's guid.
pub(super) fn take_task_guid(field: Field<'_>) -> Option<TaskGuid> {
    let (path, problems) = (field.path.clone(), field.problems);
    let guid: TaskGuid = field.name()?;
    if guid.as_str().contains(LAUNCH_SEPARATOR) {
        problems.add(
            path,
            format!(
                "{guid} must not contain {LAUNCH_SEPARATOR}: it is reserved for the tasks of periodic \
                     and parameterised tasks"
            ),
        );
    }
    Some(guid)
}

fn take_schedule(fields: &mut Fields<'_>) -> Option<Schedule> {
    fields.document(
        "cron",
        "Schedule: minute, hour, day of the month, month, day of the week, such as `30 3 * * MON-FRI`. Also \
         `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.",
    );
    fields.document("time_zone", "Time zone of the schedule, from the IANA database, UTC by default.");
    let cron = fields.required("cron", |field| field.text(limits::CRON_BYTES));
    let zone = fields
        .with_default("time_zone", DEFAULT_TIME_ZONE.to_owned(), |field| field.text(limits::CRON_BYTES));
    let (cron, zone) = (cron?, zone?);
    match Schedule::new(&cron, &zone) {
        Ok(schedule) => Some(schedule),
        Err(error) => {
            let field = match &error {
                BadSchedule::Cron(..) | BadSchedule::Never(_) => "cron",
                BadSchedule::TimeZone(..) => "time_zone",
            };
            fields.bad(field, error.to_string());
            None
        }
    }
}
