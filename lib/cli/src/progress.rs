//! Progress of a command on standard error: an updating line on a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use cli_base::failure::Failure;
use cli_base::output::Output;
use client::{Client, LrpWatch, Progress as Far, Snapshot, instance_key};
use explain::names::Names;
use runtime::exit::Exit;
use schemas::names::{DefinitionId, ProcessGuid};
use schemas::query::{
    ClusterRow, Finding, FindingCode, InstancePresence, InstanceRow, InstanceState, LrpRow,
};
use schemas::rollout::Kind;
use schemas::{ActualLrpKey, Position};
use text::describe::rollout_name;
use text::words::one_line;
use tokio::time::{Instant, timeout};

use super::bar::Bar;
use super::past::Crash;
use super::restarts::restart_text;
use super::rows::addresses;
use super::stuck::stuck_process;
use super::{rollout_history, waits};

/// Interval between queries of the monitors of starting instances. The first query starts when nothing has
/// changed for one interval.
const MONITOR_QUERY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of instances whose monitors are queried.
const MAX_MONITOR_QUERIES: usize = 4;
/// Maximum number of instances that are reported one by one. For a larger process, only counts are reported.
const MAX_REPORTED_INSTANCES: usize = 20;
/// Minimum interval between reports of counts. The interval grows with the time since the start of the
/// command, so that a command prints fewer than 100 lines in a day.
const MIN_COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Divisor of the time since the start of the command. The quotient is the interval between two reports of
/// counts.
const COUNT_INTERVAL_DIVISOR: u32 = 10;

/// Result of waiting for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitResult {
    /// The process is in the requested state.
    Settled {
        /// Number of running instances.
        running: u32,
    },
    /// The command did not wait; the change continues.
    Detached,
    /// The user interrupted the wait; the change continues.
    Interrupted,
}

/// Condition that a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitCondition<'a> {
    /// All desired instances run, with any definition.
    Instances,
    /// The rollout to this definition has ended.
    Rollout(&'a DefinitionId),
}

/// Last reported state of each instance. `None` while the instance waits, starts or stops.
type ReportedStates = BTreeMap<(ActualLrpKey, InstancePresence), Option<String>>;

/// Follows a process from the position of a command. Returns when the process has settled or is stuck, the
/// time limit expires, or the user interrupts.
pub(crate) async fn wait_until_settled(
    client: &Client,
    (guid, after): (&ProcessGuid, Position),
    asked: WaitCondition<'_>,
    limit: Option<Duration>,
    output: Output,
) -> Result<WaitResult, Failure> {
    let bar = Bar::new(output, format!("process {guid}"));
    let mut standing = FollowState::default();
    let watch = client.watch_lrp(guid.clone(), after);
    let watch = follow(client, watch, (guid, asked), &bar, &mut standing);
    let watched = tokio::select! {
        watched = timeout(limit.unwrap_or(Duration::MAX), watch) => watched,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|error| Failure::new(Exit::Failed, "Signal", error.to_string()))?;
            return Ok(WaitResult::Interrupted);
        }
    };
    match watched {
        Ok(settled) => settled.map(|running| WaitResult::Settled { running }),
        Err(_) => {
            let waited = text::words::duration_text(limit.unwrap_or_default());
            let because = standing.blocked_reason.or_else(|| standing.waits.complaint());
            let because = because.map(|why| format!(": {why}")).unwrap_or_default();
            let why = format!("process {guid} did not reach the desired state within {waited}{because}");
            Err(Failure::new(Exit::TimedOut, "WaitTimedOut", why)
                .advise(format!("the change continues; see muster lrp show {guid}")))
        }
    }
}

/// Part of a followed process's state that was already reported to the user.
#[derive(Debug, Default)]
struct FollowState {
    seen: ReportedStates,
    /// Last reported line about the rollout.
    rollout: Option<String>,
    /// Reason why the rollout does not progress.
    blocked_reason: Option<String>,
    waits: WaitReasons,
}

async fn follow(
    client: &Client,
    mut watch: LrpWatch,
    (guid, asked): (&ProcessGuid, WaitCondition<'_>),
    bar: &Bar,
    now: &mut FollowState,
) -> Result<u32, Failure> {
    let mut first = true;
    loop {
        let snapshot = Box::pin(next_snapshot(client, &mut watch, bar, &mut now.waits)).await?;
        now.waits.watch(guid, &snapshot);
        if let Some(news) = now.rollout_news(&snapshot) {
            bar.print_line(&news);
        }
        let lines = changes(&mut now.seen, &snapshot.instances);
        if now.waits.is_large {
            now.waits.report_counts(bar);
        } else {
            // Instances that ran before the command are not reported.
            let ran = |line: &String| line.contains(" runs on ");
            lines.iter().filter(|line| !first || !ran(line)).for_each(|line| bar.print_line(line));
        }
        first = false;
        bar.set(now.waits.status.clone());
        if let Some(why) = superseded_failure(guid, asked, &snapshot) {
            return Err(why);
        }
        let running = || snapshot.lrp.as_ref().map_or(0, |lrp| lrp.running);
        match (snapshot.progress(), asked) {
            (Far::Changing, _) => {}
            (Far::Running | Far::Gone | Far::Paused, WaitCondition::Instances) => return Ok(running()),
            (Far::Running | Far::Gone | Far::Paused, WaitCondition::Rollout(target)) => {
                return rollout_result(client, guid, target, &snapshot).await.map(|()| running());
            }
            (Far::Stuck(rows), _) => {
                let of_rollout = snapshot
                    .lrp
                    .as_ref()
                    .and_then(|lrp| stuck_rollout_failure(lrp, &snapshot.instances, &rows));
                return Err(of_rollout.unwrap_or_else(|| stuck_process(guid.as_str(), &rows)));
            }
        }
    }
}

/// Returns the failure of a rollout that cannot continue. `None` if a stuck instance (one of `rows`) has
/// another definition than the rollout's target.
fn stuck_rollout_failure(lrp: &LrpRow, instances: &[InstanceRow], rows: &[InstanceRow]) -> Option<Failure> {
    let rollout = lrp.rollout_under_way()?;
    if rows.iter().any(|row| row.definition_id != rollout.target) {
        return None;
    }
    let (guid, name) = (&lrp.process_guid, rollout_name(rollout.kind, &rollout.target));
    let why = waits::waiting_reason(lrp, instances)?;
    let on_timeout = stuck_process(guid.as_str(), rows);
    let failure =
        Failure::new(on_timeout.exit, &on_timeout.code, format!("the {name} of process {guid} waits: {why}"));
    let crashed = rows.iter().find_map(|row| row.crashed_instance.as_ref());
    let logs = crashed.map(|by| format!("see muster logs {}", by.instance_guid));
    let can = match (rollout.kind, &rollout.rollback_to) {
        (Kind::Update, Some(_)) => format!(", or muster lrp rollback {guid}"),
        (Kind::Update, None) | (Kind::Rollback, _) => String::new(),
    };
    let told = format!("the old instances keep running; fix the update with muster apply FILE{can}");
    Some(failure.advise(told).advise_some(logs))
}

impl FollowState {
    /// Returns a line about the rollout (started, in progress or paused) if the line differs from the last
    /// one.
    fn rollout_news(&mut self, snapshot: &Snapshot) -> Option<String> {
        let lrp = snapshot.lrp.as_ref()?;
        self.blocked_reason = waits::waiting_reason(lrp, &snapshot.instances);
        let rollout = lrp.rollout_under_way()?;
        let name = rollout_name(rollout.kind, &rollout.target);
        let reason = rollout.reason.as_deref().map(one_line).unwrap_or_default();
        let news = match (rollout.is_paused(), reason.is_empty()) {
            (true, _) => format!("{name} is {}", self.blocked_reason.clone().unwrap_or_default()),
            (false, false) => format!("{name} started: {reason}"),
            (false, true) => format!("{name} is under way"),
        };
        (self.rollout.as_ref() != Some(&news)).then(|| self.rollout.insert(news).clone())
    }
}

/// Returns a failure if the awaited rollout was superseded by another one.
fn superseded_failure(guid: &ProcessGuid, asked: WaitCondition<'_>, snapshot: &Snapshot) -> Option<Failure> {
    let WaitCondition::Rollout(target) = asked else { return None };
    let rollout = snapshot.lrp.as_ref()?.rollout.as_ref()?;
    if rollout.target == *target || rollout.kind == Kind::Rollback {
        return None;
    }
    let why =
        format!("the rollout of process {guid} to {target} was superseded by one to {}", rollout.target);
    let failure = Failure::new(Exit::Conflict, "Superseded", why);
    Some(failure.advise(format!("see muster lrp rollout history {guid}")))
}

/// Number of recent rollouts that are searched for the awaited one.
const MAX_ROLLOUTS_SEARCHED: usize = 10;

/// Returns the result of the awaited rollout. The result is an error if the rollout is paused or was rolled
/// back, or if the process was removed.
async fn rollout_result(
    client: &Client,
    guid: &ProcessGuid,
    target: &DefinitionId,
    snapshot: &Snapshot,
) -> Result<(), Failure> {
    let Some(lrp) = &snapshot.lrp else {
        let why = format!("process {guid} was deleted before its rollout to {target} ended");
        return Err(Failure::new(Exit::Conflict, "Removed", why));
    };
    let Some(rollout) = lrp.rollout.as_ref().filter(|one| one.target != *target || !one.is_completed())
    else {
        return Ok(());
    };
    let past = rollout_history::past(client, guid, MAX_ROLLOUTS_SEARCHED).await?;
    let failed = past.iter().rev().find(|past| past.kind == Kind::Update || past.target == *target);
    let crash = failed.and_then(|past| past.last_crash.as_ref());
    let said = crash.map(Crash::advice);
    if !rollout.is_completed() {
        let name = rollout_name(rollout.kind, &rollout.target);
        let why = waits::waiting_reason(lrp, &snapshot.instances).unwrap_or_default();
        let failure = Failure::new(Exit::Paused, "Paused", format!("the {name} of process {guid} is {why}"));
        let resume = format!("muster lrp rollout resume {guid}, or muster lrp rollback {guid}");
        let can_go_back = rollout.kind == Kind::Update && rollout.rollback_to.is_some();
        let resume = if can_go_back { resume } else { format!("muster lrp rollout resume {guid}") };
        return Err(failure.advise(resume).advise_some(said));
    }
    let reason = past.last().and_then(|past| past.reason.clone()).unwrap_or_default();
    let reason = if reason.is_empty() { String::new() } else { format!(": {}", one_line(&reason)) };
    let why =
        format!("the rollout of process {guid} to {target} was rolled back to {}{reason}", rollout.target);
    Err(Failure::new(Exit::RolledBack, "RolledBack", why).advise_some(said))
}

/// Reasons why a process does not progress, and the reasons already reported to the user.
#[derive(Debug, Default)]
struct WaitReasons {
    /// Status of the process in one line.
    status: String,
    /// `true` if an instance is not assigned to a cell.
    has_unclaimed: bool,
    /// `true` while the change is in progress.
    unfinished: bool,
    /// `true` if the change cannot continue.
    is_stuck: bool,
    /// `true` once the process has had too many instances to report them one by one.
    is_large: bool,
    /// Reports about a large process.
    counts: CountReports,
    /// Names of starting instances.
    starting: Vec<String>,
    /// Last reported problem of each instance and of the cluster.
    reported_problems: BTreeMap<String, String>,
}

/// Key of the cluster among the reported problems. No instance has this name.
const CLUSTER: &str = "";

impl WaitReasons {
    /// Updates the state from a snapshot.
    fn watch(&mut self, guid: &ProcessGuid, snapshot: &Snapshot) {
        let rows = &snapshot.instances;
        let starting = rows.iter().filter(|row| row.state == InstanceState::Claimed && !row.stopping);
        let called = Names::from_rows(rows);
        let names = starting.map(|row| called.row_name(row));
        self.starting = names.take(MAX_MONITOR_QUERIES).collect();
        self.reported_problems.retain(|name, _| name == CLUSTER || self.starting.contains(name));
        self.has_unclaimed = snapshot.lrp.as_ref().is_some_and(|lrp| lrp.unclaimed > 0);
        let progress = snapshot.progress();
        self.is_stuck = matches!(progress, Far::Stuck(_));
        self.unfinished = progress == Far::Changing;
        self.is_large |= rows.len() > MAX_REPORTED_INSTANCES;
        self.status = status_line(guid, snapshot);
    }

    /// Returns the known reason for the lack of progress: a problem of the cluster, or the output of a
    /// failing monitor.
    fn complaint(&self) -> Option<String> {
        if let Some(problem) = self.reported_problems.get(CLUSTER) {
            return Some(problem.clone());
        }
        let (name, says) = self.reported_problems.iter().find(|(name, _)| *name != CLUSTER)?;
        Some(format!("{name} is not healthy yet: {}", one_line(says)))
    }

    /// Checks why nothing changes, and reports new problems.
    async fn check(&mut self, client: &Client, bar: &Bar) {
        self.check_cluster(client, bar).await;
        self.check_monitors(client, bar).await;
        if self.is_large {
            self.report_counts(bar);
        }
    }

    /// Reports the counts of a large process, with the output of a failing monitor. The command itself
    /// reports the result of a completed change.
    fn report_counts(&mut self, bar: &Bar) {
        if !self.unfinished && !self.is_stuck {
            return;
        }
        let monitor = self.reported_problems.iter().find(|(name, _)| *name != CLUSTER);
        let monitor = monitor.map(|(name, says)| format!("; {name} is not healthy yet: {}", one_line(says)));
        let line = format!("{}{}", self.status, monitor.unwrap_or_default());
        if let Some(line) = self.counts.next(line, Instant::now(), self.is_stuck) {
            bar.print_line(&line);
        }
    }

    /// Checks that the BBS and the auctioneer are working.
    async fn check_cluster(&mut self, client: &Client, bar: &Bar) {
        if !self.unfinished {
            return;
        }
        let problem = match client.cluster().await {
            Ok(cluster) => self.problem(&cluster.row),
            Err(error) => Some(format!("the cluster does not answer: {error}")),
        };
        match problem {
            None => {
                if self.reported_problems.remove(CLUSTER).is_some() {
                    bar.set(self.status.clone());
                }
            }
            Some(problem) => {
                bar.set(format!("{}; {problem}", self.status));
                if self.reported_problems.get(CLUSTER) != Some(&problem) {
                    bar.print_line(&format!("waits: {problem}"));
                    self.reported_problems.insert(CLUSTER.to_owned(), problem);
                }
            }
        }
    }

    /// Returns the problem of the cluster that affects this process, if there is one.
    fn problem(&self, cluster: &ClusterRow) -> Option<String> {
        let no_decisions = [FindingCode::AppendsFail, FindingCode::NoBbsLeads];
        let no_placements = [FindingCode::NoAuctioneer, FindingCode::NoAuctioneerLeads];
        let matters = |finding: &&Finding| {
            no_decisions.contains(&finding.code)
                || self.has_unclaimed && no_placements.contains(&finding.code)
        };
        cluster.problems.iter().find(matters).map(|finding| finding.message.clone())
    }

    /// Queries the monitors of starting instances.
    async fn check_monitors(&mut self, client: &Client, bar: &Bar) {
        for name in &self.starting {
            // A cell that does not answer is skipped; the wait continues.
            let Ok(all) = client.instance_health(name).await else { continue };
            let Some(health) = all.into_iter().find_map(|one| one.health) else { continue };
            let Some(complaint) = health.failure_summary() else { continue };
            if self.reported_problems.get(name) != Some(&complaint) {
                if !self.is_large {
                    bar.print_line(&format!("{name} is not healthy yet: {}", one_line(&complaint)));
                }
                self.reported_problems.insert(name.clone(), complaint);
            }
        }
    }
}

/// Reports of counts, at growing intervals.
#[derive(Debug, Default)]
struct CountReports {
    start: Option<Instant>,
    /// Time and text of the last report.
    last: Option<(Instant, String)>,
}

impl CountReports {
    /// Returns the line if it is due. A line is due if it differs from the last report, and either the
    /// interval has passed or the line is the final one.
    fn next(&mut self, line: String, now: Instant, is_final: bool) -> Option<String> {
        let start = *self.start.get_or_insert(now);
        let interval = MIN_COUNT_INTERVAL.max((now - start) / COUNT_INTERVAL_DIVISOR);
        let is_due = match &self.last {
            None => now - start >= MIN_COUNT_INTERVAL || is_final,
            Some((at, last)) => *last != line && (now - *at >= interval || is_final),
        };
        is_due.then(|| self.last.insert((now, line)).1.clone())
    }
}

/// Waits for the next snapshot. Checks for problems at regular intervals until the snapshot arrives.
async fn next_snapshot(
    client: &Client,
    watch: &mut LrpWatch,
    bar: &Bar,
    waits: &mut WaitReasons,
) -> Result<Snapshot, Failure> {
    let mut next = pin!(watch.next());
    loop {
        match timeout(MONITOR_QUERY_INTERVAL, &mut next).await {
            Ok(snapshot) => return Ok(snapshot?),
            Err(_) => waits.check(client, bar).await,
        }
    }
}

/// Returns the status of a process in one line.
fn status_line(guid: &ProcessGuid, snapshot: &Snapshot) -> String {
    let Some(lrp) = &snapshot.lrp else { return format!("process {guid} is deleted") };
    if let Some(rollout) = lrp.rollout_under_way() {
        let name = rollout_name(rollout.kind, &rollout.target);
        let why = waits::waiting_reason(lrp, &snapshot.instances).unwrap_or_default();
        return format!("process {guid}: {name}, {} of {} replaced; {why}", rollout.replaced, rollout.total);
    }
    let stopping = snapshot.instances.iter().filter(|row| row.stopping).count();
    let unplaced = snapshot.instances.iter().filter_map(|row| row.placement_error.as_deref());
    let crashed = snapshot.instances.iter().filter(|row| row.state == InstanceState::Crashed);
    let counts = [
        (lrp.claimed, "starting", None),
        (lrp.unclaimed, "waiting", most_frequent(unplaced)),
        (lrp.crashed, "crashed", most_frequent(crashed.filter_map(|row| row.crash_reason.as_deref()))),
        (u32::try_from(stopping).unwrap_or(u32::MAX), "stopping", None),
    ];
    let (running, desired) = (grouped(lrp.running), grouped(lrp.instances));
    let mut text = if lrp.running > lrp.instances {
        format!("process {guid}: {running} running, {desired} desired")
    } else {
        format!("process {guid}: {running} of {desired} running")
    };
    for (number, what, why) in counts.into_iter().filter(|(number, ..)| *number > 0) {
        let why = why.map(|why| format!(": {}", one_line(why))).unwrap_or_default();
        text.push_str(&format!(", {} {what}{why}", grouped(number)));
    }
    text
}

/// Returns the most frequent of several texts.
fn most_frequent<'a>(texts: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    texts.for_each(|text| *counts.entry(text).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(text, _)| text)
}

/// Formats a number with separators between thousands: `9,700`.
fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let separated = |(at, digit): (usize, char)| {
        let separator = at > 0 && (digits.len() - at).is_multiple_of(3);
        separator.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(separated).collect()
}

/// Returns a line for each instance that has reached a new state since the last call, and updates `seen`.
/// Intermediate states, such as starting, are not reported.
fn changes(seen: &mut ReportedStates, rows: &[InstanceRow]) -> Vec<String> {
    let names =
        Names::from_keys(seen.keys().map(|(key, _)| key.clone()).chain(rows.iter().map(instance_key)));
    let mut lines = vec![];
    let mut now = BTreeMap::new();
    for row in rows {
        let (key, line) = ((instance_key(row), row.presence), instance_state_text(row));
        let before = seen.get(&key).and_then(Option::as_deref);
        if let Some(line) = line.as_deref().filter(|line| before != Some(*line)) {
            lines.push(format!("{} {line}", names.row_name(row)));
        }
        now.insert(key, line);
    }
    let gone = seen.keys().filter(|key| !now.contains_key(*key) && key.1 == InstancePresence::Ordinary);
    lines.extend(gone.map(|(key, _)| format!("{} has ended", names.name(key))));
    *seen = now;
    lines
}

/// Describes the state that an instance has reached. `None` if it waits, starts or stops.
fn instance_state_text(row: &InstanceRow) -> Option<String> {
    let cell = row.cell_id.as_ref().map(ToString::to_string).unwrap_or_default();
    match (row.state, row.stopping) {
        (_, true) | (InstanceState::Claimed, false) => None,
        (InstanceState::Running, false) if row.presence == InstancePresence::Evacuating => {
            Some(format!("is evacuated from {cell}"))
        }
        (InstanceState::Running, false) => {
            let address = addresses(row).map(|address| format!(" at {address}")).unwrap_or_default();
            Some(format!("runs on {cell}{address}"))
        }
        (InstanceState::Crashed, false) => {
            let reason = one_line(row.crash_reason.as_deref().unwrap_or_default());
            Some(format!("crashed: {reason}; {}", restart_text(row)))
        }
        (InstanceState::Unclaimed, false) => {
            row.placement_error.as_ref().map(|error| format!("is not placed: {}", one_line(error)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::{process, rolling, running, with_definition};

    #[test]
    fn changes_are_reported_once() {
        let mut seen = ReportedStates::new();
        let waits = InstanceRow {
            state: InstanceState::Unclaimed,
            cell_id: None,
            address: None,
            ports: vec![],
            ..running(1)
        };
        let first = [running(0), waits.clone()];
        assert_eq!(changes(&mut seen, &first), ["web/0 runs on c1 at 10.0.0.1:60001"]);
        assert!(changes(&mut seen, &first).is_empty());
        let unplaced = InstanceRow { placement_error: Some("insufficient resources".into()), ..waits };
        assert_eq!(
            changes(&mut seen, &[running(0), unplaced]),
            ["web/1 is not placed: insufficient resources"]
        );
        let stops = InstanceRow { stopping: true, ..running(0) };
        assert_eq!(changes(&mut seen, &[stops]), ["web/1 has ended"]);
        assert_eq!(changes(&mut seen, &[]), ["web/0 has ended"]);
    }

    #[test]
    fn changes_name_definition_if_index_is_shared() {
        let mut seen = ReportedStates::new();
        changes(&mut seen, &[running(0), running(1)]);
        let both = [running(0), with_definition("v2", running(0)), running(1)];
        assert_eq!(changes(&mut seen, &both), ["web/0@v2 runs on c1 at 10.0.0.1:60001"]);
        let replaced = [with_definition("v2", running(0)), running(1)];
        assert_eq!(changes(&mut seen, &replaced), ["web/0@web has ended"]);
        assert_eq!(changes(&mut seen, &[running(1)]), ["web/0 has ended"]);
    }

    #[test]
    fn large_process_is_reported_in_counts_at_growing_intervals() {
        let start = Instant::now();
        let mut reports = CountReports::default();
        let mut lines = |seconds: u64| {
            let at = |second| start + Duration::from_secs(second);
            (0..seconds).filter_map(|second| reports.next(second.to_string(), at(second), false)).count()
        };
        assert_eq!((lines(1), lines(10)), (0, 9));
        assert!(lines(24 * 60 * 60) < 100);
        let mut reports = CountReports::default();
        let mut next = |line: &str, seconds, is_final| {
            reports.next(line.to_owned(), start + Duration::from_secs(seconds), is_final)
        };
        assert_eq!(next("1 running", 0, false), None);
        assert_eq!(next("1 running", 1, false).as_deref(), Some("1 running"));
        assert_eq!(next("1 running", 9, true), None, "nothing new");
        assert_eq!(next("2 running", 9, true).as_deref(), Some("2 running"));
    }

    #[test]
    fn status_has_counts_and_most_frequent_reasons() {
        let waits = |error: &str| InstanceRow {
            state: InstanceState::Unclaimed,
            placement_error: Some(error.into()),
            ..running(0)
        };
        let rows = vec![
            waits("a cell"),
            waits("insufficient resources: containers"),
            waits("insufficient resources: containers"),
        ];
        let lrp =
            LrpRow { instances: 10_000, running: 300, claimed: 0, unclaimed: 9_700, crashed: 0, ..process() };
        assert_eq!(
            status_line(&ProcessGuid::new("web").unwrap(), &snapshot(lrp, rows)),
            "process web: 300 of 10,000 running, 9,700 waiting: insufficient resources: containers"
        );
        let removed = LrpRow { instances: 0, running: 1, claimed: 0, unclaimed: 0, crashed: 0, ..process() };
        let stops = InstanceRow { stopping: true, ..running(0) };
        assert_eq!(
            status_line(&ProcessGuid::new("web").unwrap(), &snapshot(removed, vec![stops])),
            "process web: 1 running, 0 desired, 1 stopping"
        );
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn stuck_process_has_specific_exit_status() {
        let unplaced = InstanceRow {
            state: InstanceState::Unclaimed,
            placement_error: Some("found no compatible cells".into()),
            ..running(0)
        };
        let crashed = InstanceRow {
            state: InstanceState::Crashed,
            crash_count: 4,
            crash_reason: Some("exit status 3".into()),
            ..running(1)
        };
        let both = stuck_process("web", &[unplaced, crashed.clone()]);
        assert_eq!(both.exit, Exit::NotPlaced);
        assert!(both.message.contains("web/0 is not placed: found no compatible cells"), "{}", both.message);
        let one = stuck_process("web", &[crashed]);
        assert_eq!((one.exit, one.code.as_str()), (Exit::Failed, "Crashed"));
        assert!(one.text(false).contains("muster logs web/1"), "{}", one.text(false));
    }

    fn snapshot(lrp: LrpRow, instances: Vec<InstanceRow>) -> Snapshot {
        Snapshot { position: Position(1), lrp: Some(lrp), instances }
    }

    #[test]
    fn rollout_status_is_one_line_and_news_is_reported_once() {
        let both = vec![running(0), with_definition("v2", running(0)), running(1)];
        let guid = ProcessGuid::new("web").unwrap();
        let rolls = snapshot(rolling("updating", &[0]), both.clone());
        assert_eq!(
            status_line(&guid, &rolls),
            "process web: rollout to v2, 1 of 2 replaced; index 0 runs on c1 and takes over"
        );
        let mut now = FollowState::default();
        assert_eq!(now.rollout_news(&rolls).unwrap(), "rollout to v2 is under way");
        assert_eq!(now.rollout_news(&rolls), None);
        let mut paused = rolling("paused", &[]);
        paused.rollout.as_mut().unwrap().reason = Some("1 of 2 failed".into());
        let told = now.rollout_news(&snapshot(paused, both)).unwrap();
        assert_eq!(told, "rollout to v2 is paused: 1 of 2 failed (resume or roll back)");
        assert_eq!(now.blocked_reason.as_deref(), Some("paused: 1 of 2 failed (resume or roll back)"));
    }

    #[test]
    fn stuck_rollout_failure_has_reason_and_advice() {
        let crashed = InstanceRow {
            state: InstanceState::Crashed,
            crash_count: 4,
            crash_reason: Some("Exited with status 1".into()),
            ..with_definition("v2", running(0))
        };
        let lrp = rolling("updating", &[0]);
        let failure =
            stuck_rollout_failure(&lrp, std::slice::from_ref(&crashed), std::slice::from_ref(&crashed))
                .unwrap();
        assert_eq!(failure.exit, Exit::Failed);
        assert_eq!(
            failure.text(false),
            "error: the rollout to v2 of process web waits: index 0 crashed 4 times: Exited with status 1; not \
             restarted (Crashed)\n  the old instances keep running; fix the update with \
             muster apply FILE, or muster lrp rollback web"
        );
        let old = InstanceRow { state: InstanceState::Crashed, ..running(1) };
        assert_eq!(
            stuck_rollout_failure(&lrp, &[], &[crashed, old]),
            None,
            "not only instances of the rollout"
        );
    }

    #[test]
    fn awaited_rollout_fails_when_superseded() {
        let (guid, v1) = (ProcessGuid::new("web").unwrap(), DefinitionId::new("v1").unwrap());
        let v2 = DefinitionId::new("v2").unwrap();
        let of = |kind| {
            let mut lrp = rolling("updating", &[0]);
            lrp.rollout.as_mut().unwrap().kind = kind;
            snapshot(lrp, vec![])
        };
        let superseded = superseded_failure(&guid, WaitCondition::Rollout(&v1), &of(Kind::Update)).unwrap();
        assert_eq!((superseded.exit, superseded.code.as_str()), (Exit::Conflict, "Superseded"));
        assert_eq!(superseded_failure(&guid, WaitCondition::Rollout(&v2), &of(Kind::Update)), None);
        assert_eq!(
            superseded_failure(&guid, WaitCondition::Rollout(&v1), &of(Kind::Rollback)),
            None,
            "it rolls back"
        );
        assert_eq!(superseded_failure(&guid, WaitCondition::Instances, &of(Kind::Update)), None);
    }
}
