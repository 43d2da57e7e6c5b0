//! `muster evaluation`: lists, shows, follows and retries evaluations. The details of an evaluation contain
//! its cause, its chain and its placements.

use std::collections::{BTreeMap, BTreeSet};

use clap::Subcommand;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::moment::AsOfOption;
use cli_base::options::Global;
use cli_base::output::{Output, RenderOptions};
use cli_base::table::{Cell, Table, facts};
use client::{Client, ListFilter};
use explain::decisions::{PositionedDecision, decisions_of, end_of_log, entries_about};
use explain::why::placements;
use machines::evaluation;
use runtime::exit::Exit;
use schemas::entry::{Aggregate, Event};
use schemas::evaluation::{Evaluation, Status};
use schemas::names::{DecisionId, Domain, EvaluationId, ProcessGuid, TaskGuid};
use schemas::placement::Eligibility;
use schemas::query::{EvaluationRow, EvaluationState, EvaluationSubject, QueuePosition, RecordedEntry};
use schemas::{Position, Timestamp};
use serde::Serialize;
use text::describe::{cancel_reason, placement, sentence, trigger_name, triggered_by};
use text::words::{age, count, one_line, short_id, time_of_day};

use super::find;
use super::why::describe;

/// Maximum number of links that are shown on each side of an evaluation in its chain.
const MAX_LINKS: usize = 16;

/// Subcommands of `muster evaluation`.
#[derive(Clone, Debug, Subcommand)]
pub enum EvaluationVerb {
    /// List the open evaluations and the newest ended ones
    #[command(alias = "ls")]
    List {
        /// Only evaluations of this process
        #[arg(long, value_name = "GUID")]
        lrp: Option<ProcessGuid>,
        /// Only evaluations of this task
        #[arg(long, value_name = "GUID", conflicts_with = "lrp")]
        task: Option<TaskGuid>,
        /// Only open evaluations
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show an evaluation: its cause, its chain and its placements
    Show {
        /// Id of the evaluation, or a prefix or suffix of it
        id: String,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Follow an evaluation until it ends; or all evaluations
    Watch {
        /// Id of the evaluation, or a prefix or suffix of it [default: all evaluations]
        id: Option<String>,
    },
    /// Retry a delayed, blocked or failed evaluation now
    Retry {
        /// Id of the evaluation, or a prefix or suffix of it
        id: String,
    },
}

/// Evaluation with its chain, and the decisions that placed its instances.
#[derive(Serialize)]
struct EvaluationDetails {
    evaluation: EvaluationRow,
    chain: Vec<Link>,
    decisions: Vec<PositionedDecision>,
}

/// Evaluation in a chain.
#[derive(Clone, Debug, Serialize)]
struct Link {
    evaluation: Evaluation,
    state: EvaluationState,
    /// Evaluation that caused this evaluation, or that this evaluation continues. `None` if this evaluation
    /// is the first of its chain.
    parent: Option<EvaluationId>,
}

/// Answer to a retry.
#[derive(Serialize)]
struct RetryAnswer {
    evaluation: EvaluationId,
    position: Position,
}

pub(crate) async fn run(verb: EvaluationVerb, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    let client = connect(global).await?;
    match verb {
        EvaluationVerb::List { lrp, task, open, .. } => {
            let only = ListFilter { domain: global.domain.clone(), process_guid: lrp, cell_id: None };
            let mut rows = client.evaluations(&only).await?.rows;
            rows.retain(|row| task.as_ref().is_none_or(|task| is_of_task(row, task)));
            rows.retain(|row| !open || row.evaluation.status.is_open());
            output.write_rows(&rows, table)
        }
        EvaluationVerb::Show { id, .. } => {
            let evaluation = find_evaluation(&client, &id, global).await?;
            let entries = history(&client, &evaluation.subject).await?;
            let known = stored_evaluations(&client, &evaluation.subject).await?;
            let all = decisions_of(entries);
            let chain = chain(links(&all, known), evaluation.evaluation.id);
            let decisions = placements(&all, evaluation.evaluation.id);
            output.write_one(&EvaluationDetails { evaluation, chain, decisions }, text)
        }
        EvaluationVerb::Watch { id: None } => watch_all(&client, global, output).await,
        EvaluationVerb::Watch { id: Some(id) } => {
            let evaluation = find_evaluation(&client, &id, global).await?;
            watch(&client, evaluation, output).await
        }
        EvaluationVerb::Retry { id } => {
            let row = find_evaluation(&client, &id, global).await?;
            let evaluation = row.evaluation.id;
            let client = client.in_domain(row.domain.clone());
            let done = match &row.subject {
                EvaluationSubject::Process(guid) => client.retry_lrp(guid.clone(), evaluation).await,
                EvaluationSubject::Task(guid) => client.retry_task(guid.clone(), evaluation).await,
            };
            let done =
                done.map_err(|error| Failure::from(error).while_doing(format!("retry evaluation {id}")))?;
            output.add_result(&RetryAnswer { evaluation, position: done.position }, |retried, look| {
                format!("evaluation {} is retried", short_id(&retried.evaluation, look.full_ids))
            })
        }
    }
}

async fn find_evaluation(client: &Client, id: &str, global: &Global) -> Result<EvaluationRow, Failure> {
    let evaluation = find::evaluation(client, id).await?;
    find::check_domain(global, format!("evaluation {id}"), evaluation.domain.clone())?;
    Ok(evaluation)
}

fn is_of_task(row: &EvaluationRow, task: &TaskGuid) -> bool {
    match &row.subject {
        EvaluationSubject::Task(guid) => guid == task,
        EvaluationSubject::Process(_) => false,
    }
}

fn filter_of(subject: &EvaluationSubject) -> String {
    match subject {
        EvaluationSubject::Process(guid) => format!("lrp:{guid}"),
        EvaluationSubject::Task(guid) => format!("task:{guid}"),
    }
}

async fn history(client: &Client, subject: &EvaluationSubject) -> Result<Vec<RecordedEntry>, Failure> {
    Ok(entries_about(client, Some(&filter_of(subject))).await?)
}

/// Returns the stored evaluations of a process or task.
async fn stored_evaluations(
    client: &Client,
    subject: &EvaluationSubject,
) -> Result<Vec<EvaluationRow>, Failure> {
    let process_guid = match subject {
        EvaluationSubject::Process(guid) => Some(guid.clone()),
        EvaluationSubject::Task(_) => None,
    };
    let only = ListFilter { domain: None, process_guid, cell_id: None };
    let rows = client.evaluations(&only).await?.rows;
    Ok(rows.into_iter().filter(|row| row.subject == *subject).collect())
}

/// Returns a link for every evaluation in the history. An evaluation that is no longer stored has the state
/// `Deleted`.
fn links(all: &[PositionedDecision], known: Vec<EvaluationRow>) -> Vec<Link> {
    let mut past = vec![];
    for PositionedDecision { decision, .. } in all {
        for event in &decision.events {
            if let Event::Evaluation(event) = event {
                evaluation::fold(&mut past, event, &decision.stamp());
            }
        }
    }
    let mut known: BTreeMap<EvaluationId, EvaluationRow> =
        known.into_iter().map(|row| (row.evaluation.id, row)).collect();
    let makers = evaluations_by_decision(&past);
    let links = past.into_iter().map(|evaluation| {
        let caused_by = evaluation.caused_by.and_then(|decision| makers.get(&decision)).copied();
        let parent = evaluation.previous.or(caused_by).filter(|parent| *parent != evaluation.id);
        match known.remove(&evaluation.id) {
            Some(row) => Link { evaluation: row.evaluation, state: row.state, parent },
            None => Link { evaluation, state: EvaluationState::Deleted, parent },
        }
    });
    links.collect()
}

/// Maps each decision to the evaluation that it created or joined.
fn evaluations_by_decision(all: &[Evaluation]) -> BTreeMap<DecisionId, EvaluationId> {
    let joined = all.iter().flat_map(|one| one.joined.iter().map(|joined| (joined.decision, one.id)));
    let made = all.iter().rev().map(|one| (one.decision, one.id));
    joined.chain(made).collect()
}

/// Returns the chain of an evaluation: its predecessors, the oldest first, the evaluation itself, and its
/// successors.
fn chain(all: Vec<Link>, id: EvaluationId) -> Vec<Link> {
    let parents: BTreeMap<EvaluationId, Option<EvaluationId>> =
        all.iter().map(|link| (link.evaluation.id, link.parent)).collect();
    let mut chain = BTreeSet::from([id]);
    let mut above = parents.get(&id).copied().flatten();
    while let Some(parent) = above.filter(|parent| chain.len() <= MAX_LINKS && chain.insert(*parent)) {
        above = parents.get(&parent).copied().flatten();
    }
    let of = all.iter().find(|link| link.evaluation.id == id);
    let since = of.map_or(Timestamp(0), |link| link.evaluation.created_at);
    let mut behind = 0;
    for link in all.iter().filter(|link| link.evaluation.created_at >= since) {
        let is_behind = link.parent.is_some_and(|parent| chain.contains(&parent));
        if is_behind && behind < MAX_LINKS && chain.insert(link.evaluation.id) {
            behind += 1;
        }
    }
    all.into_iter().filter(|link| chain.contains(&link.evaluation.id)).collect()
}

/// Formats the chain as a tree. Each evaluation is below the evaluation that it continues.
fn tree(chain: &[Link], of: EvaluationId, look: RenderOptions) -> Vec<String> {
    let there: BTreeSet<EvaluationId> = chain.iter().map(|link| link.evaluation.id).collect();
    let roots = chain.iter().filter(|link| link.parent.is_none_or(|parent| !there.contains(&parent)));
    let mut lines = vec![];
    for root in roots {
        branch(chain, root, of, (String::new(), String::new()), look, &mut lines);
    }
    lines
}

fn branch(
    chain: &[Link],
    link: &Link,
    of: EvaluationId,
    (first, rest): (String, String),
    look: RenderOptions,
    lines: &mut Vec<String>,
) {
    let one = &link.evaluation;
    let mark = if one.id == of { " <" } else { "" };
    let note = note(one).map(|note| format!(": {}", one_line(&note))).unwrap_or_default();
    lines.push(format!(
        "{first}{}  {} {}{note}{mark}",
        short_id(&one.id, look.full_ids),
        trigger_name(one.trigger),
        link.state.as_str().to_uppercase(),
    ));
    let children: Vec<&Link> = chain.iter().filter(|child| child.parent == Some(one.id)).collect();
    let last = children.len().saturating_sub(1);
    for (at, child) in children.into_iter().enumerate() {
        let (to, on) = if at == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        branch(chain, child, of, (format!("{rest}{to}"), format!("{rest}{on}")), look, lines);
    }
}

/// Returns the table of evaluations.
fn table(rows: &[EvaluationRow], look: RenderOptions) -> Table {
    let headers = ["EVALUATION", "TARGET", "DOMAIN", "CAUSE", "STATE", "PLACED", "LEFT", "AGE", "NOTE"];
    Table::with_rows(headers, rows, |row| {
        let one = &row.evaluation;
        [
            Cell::text(short_id(&one.id, look.full_ids)),
            Cell::text(&row.subject),
            Cell::text(&row.domain),
            Cell::text(trigger_name(one.trigger)),
            Cell::state(row.state.as_str().to_uppercase()),
            Cell::number(one.placed),
            Cell::number(row.remaining),
            Cell::text(age(look.now, one.created_at)),
            Cell::optional(note(one)),
        ]
    })
}

/// Returns the reason for the state of an evaluation.
fn note(one: &Evaluation) -> Option<String> {
    match &one.status {
        Status::Pending => one.wait.until().map(|until| format!("until {until}")),
        Status::Blocked { reason } | Status::Failed { reason } => Some(reason.clone()),
        Status::Complete => Some(placement(one.placed, one.queued, one.rejected, one.stopped)),
        Status::Canceled { reason: why } => Some(cancel_reason(*why).to_owned()),
    }
}

/// Describes the changes that would unblock an evaluation.
fn unblocked_by(tried: &Eligibility) -> String {
    let may = tried.eligible.len() as u64;
    let all = may + tried.ineligible.len() as u64 + u64::from(tried.unlisted);
    let room = match may {
        0 => None,
        _ if may == all => Some("room on any cell".to_owned()),
        _ => Some(format!("room on a cell of {may} of the {} tried", count(all, "kind"))),
    };
    let unseen = format!("a cell of a kind that did not exist at position {}", tried.observed_position.0);
    let holds = if tried.escaped.len() == 1 { "holds" } else { "hold" };
    let escaped = (!tried.escaped.is_empty())
        .then(|| format!("any cell where {} {holds}", tried.escaped.join(" and ")));
    room.into_iter().chain([unseen]).chain(escaped).collect::<Vec<_>>().join(", or ")
}

/// Describes the position of an evaluation among the work that waits for a cell.
fn describe_turn(turn: QueuePosition) -> String {
    let others = turn.waiting.saturating_sub(1);
    format!("{} of {others} other waiting items come first", turn.before)
}

fn text(explained: &EvaluationDetails, look: RenderOptions) -> String {
    let row = &explained.evaluation;
    let one = &row.evaluation;
    let id = |id: Option<EvaluationId>| id.map(|id| id.to_string()).unwrap_or_default();
    let joined: Vec<String> =
        one.joined.iter().map(|joined| trigger_name(joined.trigger).to_owned()).collect();
    let more = usize::try_from(one.joins).unwrap_or(usize::MAX).saturating_sub(joined.len());
    let more = if more > 0 { format!(", and {more} before") } else { String::new() };
    let joined = if joined.is_empty() { String::new() } else { joined.join(", ") + &more };
    let state = row.state.as_str().to_uppercase();
    let head = facts(&[
        ("evaluation", one.id.to_string()),
        ("target", row.subject.to_string()),
        ("domain", row.domain.to_string()),
        ("cause", format!("{} ({})", trigger_name(one.trigger), triggered_by(one.trigger))),
        ("joined by", joined),
        ("state", format!("{state} since {} ({})", one.since, age(look.now, one.since))),
        ("reason", note(one).map(|note| one_line(&note)).unwrap_or_default()),
        ("unblocked by", one.eligibility.as_deref().map(unblocked_by).unwrap_or_default()),
        ("left", row.remaining.to_string()),
        ("turn", row.queue_position.map(describe_turn).unwrap_or_default()),
        ("deliveries", one.delivery.to_string()),
        ("created", format!("{} ({} ago)", one.created_at, age(look.now, one.created_at))),
        ("previous", id(one.previous)),
        ("next", id(one.next)),
        ("blocked", id(one.blocked)),
        ("caused by", one.caused_by.map(|decision| format!("decision {decision}")).unwrap_or_default()),
        ("first command", one.correlation.to_string()),
    ]);
    let chain = match explained.chain.len() {
        0 | 1 => String::new(),
        _ => format!("\n\nchain\n{}", tree(&explained.chain, one.id, look).join("\n")),
    };
    let decisions = describe(&explained.decisions, look);
    let decisions = if decisions.is_empty() { decisions } else { format!("\n\n{decisions}") };
    format!("{head}{chain}{decisions}")
}

/// Prints the changes of an evaluation until it ends.
async fn watch(client: &Client, first: EvaluationRow, output: Output) -> Result<(), Failure> {
    let id = first.evaluation.id;
    let mut events = client.events(end_of_log(client).await?).for_target(filter_of(&first.subject));
    let (mut row, mut told) = (first, None);
    loop {
        if told.as_ref() != Some(&row) {
            output.write_stream_item(&row, line)?;
            told = Some(row.clone());
        }
        if !row.evaluation.status.is_open() {
            return result_of(&row);
        }
        events.next().await?;
        row = client.evaluation(id).await?.row;
    }
}

fn line(row: &EvaluationRow, look: RenderOptions) -> String {
    let one = &row.evaluation;
    let note = note(one).map(|note| format!(": {}", one_line(&note))).unwrap_or_default();
    let state = row.state.as_str().to_uppercase();
    let (at, name) = (time_of_day(look.now), short_id(&one.id, look.full_ids));
    format!("{at}  {name}  {} {state}, {} placed, {} left{note}", row.subject, one.placed, row.remaining)
}

/// Returns the result that determines the exit status for an evaluation.
fn result_of(row: &EvaluationRow) -> Result<(), Failure> {
    let one = &row.evaluation;
    let name = one.id;
    let not_placed = |why: String| Err(Failure::new(Exit::NotPlaced, "NotPlaced", why));
    match &one.status {
        Status::Pending | Status::Blocked { .. } | Status::Canceled { .. } => Ok(()),
        Status::Complete if one.queued + one.rejected == 0 => Ok(()),
        Status::Complete => {
            let what = placement(one.placed, one.queued, one.rejected, one.stopped);
            let goes_on =
                one.blocked.map(|child| format!("; evaluation {child} waits for room")).unwrap_or_default();
            not_placed(format!("evaluation {name}: {what}{goes_on}"))
        }
        Status::Failed { reason } => {
            let child = one.next.or(one.blocked);
            let goes_on = child.map(|child| format!("; evaluation {child} continues")).unwrap_or_default();
            not_placed(format!("evaluation {name} failed: {reason}{goes_on}"))
        }
    }
}

fn belongs_to(aggregate: &Aggregate, domain: &Domain) -> bool {
    match aggregate {
        Aggregate::Process { domain: of, .. }
        | Aggregate::Task { domain: of, .. }
        | Aggregate::Periodic { domain: of, .. }
        | Aggregate::Parameterised { domain: of, .. } => of == domain,
        Aggregate::Domain(_) | Aggregate::Cell(_) | Aggregate::Cluster => false,
    }
}

/// Prints the evaluation events of one domain, or of all domains.
async fn watch_all(client: &Client, global: &Global, output: Output) -> Result<(), Failure> {
    let mut events = client.events(end_of_log(client).await?);
    loop {
        let entry = events.next().await?;
        for one in decisions_of(vec![entry]) {
            if global.domain.as_ref().is_some_and(|only| !belongs_to(&one.decision.aggregate, only)) {
                continue;
            }
            let about = one.decision.events.iter().filter(|event| matches!(event, Event::Evaluation(_)));
            let lines: Vec<String> =
                about.map(|event| sentence(&one.decision, event, output.look().full_ids)).collect();
            if !lines.is_empty() {
                let at = time_of_day(one.decision.at);
                output.write_stream_item(&one, |_, _| {
                    lines.iter().map(|line| format!("{at}  {line}")).collect::<Vec<_>>().join("\n")
                })?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::evaluation::{Event, InitialStatus, Trigger};
    use schemas::names::ProcessGuid;
    use uuid::Uuid;

    use super::*;

    const LOOK: RenderOptions =
        RenderOptions { now: Timestamp::from_millis(60_000), full_ids: false, colour: false };

    fn decision(number: u128) -> DecisionId {
        DecisionId(Uuid::from_u128(number))
    }

    fn stamp(number: u128, cause: Option<u128>) -> schemas::stamp::Stamp {
        let at = Timestamp::from_millis(53_000);
        let stamp = schemas::stamp::Stamp::root(decision(number), at);
        schemas::stamp::Stamp { cause: cause.map(decision), correlation: decision(1), ..stamp }
    }

    /// Two of three instances are placed, and one of them crashes later.
    fn sample_evaluations() -> Vec<Evaluation> {
        let id = |number| EvaluationId::from_decision(decision(number), 0);
        let created =
            |trigger, begin, previous| Event::Created { number: 0, trigger, initial_status: begin, previous };
        let reason = "insufficient resources: memory".to_owned();
        let complete =
            Event::Completed { evaluation: id(1), placed: 2, queued: 1, rejected: 0, blocked: None };
        let mut all = vec![];
        for (number, cause, event) in [
            (1, None, created(Trigger::Desire, InitialStatus::Pending, None)),
            (
                2,
                Some(1),
                created(Trigger::Queued, InitialStatus::Blocked { reason, eligibility: None }, Some(id(1))),
            ),
            (3, Some(1), complete),
            (4, Some(1), created(Trigger::Crash, InitialStatus::Pending, None)),
        ] {
            evaluation::fold(&mut all, &event, &stamp(number, cause));
        }
        all
    }

    #[test]
    fn unblocking_changes_are_described_without_classes() {
        let class = schemas::resources::CellClass;
        let tried = |eligible: &[u64], ineligible: &[u64], others, escaped: &[&str]| {
            unblocked_by(&Eligibility {
                observed_position: Position(41),
                eligible: eligible.iter().copied().map(class).collect(),
                ineligible: ineligible.iter().copied().map(class).collect(),
                unlisted: others,
                escaped: escaped.iter().map(ToString::to_string).collect(),
            })
        };
        let unseen = "a cell of a kind that did not exist at position 41";
        assert_eq!(tried(&[1, 2], &[], 0, &[]), format!("room on any cell, or {unseen}"));
        assert_eq!(tried(&[], &[1], 0, &[]), unseen);
        assert_eq!(
            tried(&[1], &[2], 1, &["distinct_cell", "unique.hostname = a"]),
            format!(
                "room on a cell of 1 of the 3 kinds tried, or {unseen}, or any cell where distinct_cell and \
                 unique.hostname = a hold"
            )
        );
    }

    #[test]
    fn evaluations_are_shown_as_a_table() {
        let row = |one: Evaluation| EvaluationRow {
            subject: EvaluationSubject::Process(ProcessGuid::new("web").unwrap()),
            domain: Domain::new("shop").unwrap(),
            state: EvaluationState::from_evaluation(&one, LOOK.now, true),
            remaining: u32::from(one.status.is_open()),
            queue_position: None,
            evaluation: one,
        };
        let rows: Vec<EvaluationRow> = sample_evaluations().into_iter().map(row).collect();
        assert_eq!(
            table(&rows, LOOK).render(false),
            "EVALUATION   TARGET        DOMAIN   CAUSE                      STATE        PLACED   LEFT   AGE   NOTE\n\
             00000001     process web   shop     desired                    COMPLETE          2      0   7s    2 placed, 1 waiting for room\n\
             00000002     process web   shop     work could not be placed   BLOCKED           0      1   7s    insufficient resources: memory\n\
             00000004     process web   shop     crash                      SCHEDULING        0      1   7s    -"
        );
    }

    #[test]
    fn chain_is_shown_as_a_tree_of_continuations() {
        let makers = evaluations_by_decision(&sample_evaluations());
        let links = sample_evaluations().into_iter().map(|evaluation| Link {
            state: EvaluationState::from_evaluation(&evaluation, LOOK.now, true),
            parent: evaluation.previous.or_else(|| makers.get(&evaluation.caused_by?).copied()),
            evaluation,
        });
        let of = EvaluationId::from_decision(decision(2), 0);
        let chain = chain(links.collect(), of);
        assert_eq!(
            tree(&chain, of, LOOK),
            [
                "00000001  desired COMPLETE: 2 placed, 1 waiting for room",
                "├─ 00000002  work could not be placed BLOCKED: insufficient resources: memory <",
                "└─ 00000004  crash SCHEDULING",
            ]
        );
    }
}
