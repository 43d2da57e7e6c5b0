//! Progress of a command on the standard error: an updating line on a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use client::{Client, LrpWatch, Progress as Far, Snapshot, key_of};
use indicatif::{ProgressBar, ProgressStyle};
use schemas::names::{DefinitionId, ProcessGuid};
use schemas::query::{
    ClusterRow, Finding, FindingCode, InstancePresence, InstanceRow, InstanceState, LrpRow,
};
use schemas::rollout::Kind;
use schemas::{ActualLrpKey, Position};
use tokio::time::timeout;

use super::describe::rollout_name;
use super::failure::{Exit, Failure, stuck};
use super::names::Names;
use super::output::{Output, note};
use super::past::Crash;
use super::rows::{comes_back, reached, rollout_under_way};
use super::words::{one_line, visible};
use super::{rollout, waits};

/// Time without a change before the monitors of starting instances are queried, and the interval between
/// these queries.
const MONITOR_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of instances whose monitors are queried.
const MONITORS_ASKED: usize = 4;

/// Result of waiting for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
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
pub(crate) enum Asked<'a> {
    /// Every desired instance runs, with any definition.
    Instances,
    /// The rollout to this definition has ended.
    Rollout(&'a DefinitionId),
}

/// Last reported state of each instance.
type Seen = BTreeMap<(ActualLrpKey, InstancePresence), String>;

/// A progress line. Hidden unless the output is meant for people.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: Option<ProgressBar>,
}

impl Bar {
    /// Starts a progress line.
    pub(crate) fn new(output: Output, text: String) -> Self {
        if !output.is_for_people() {
            return Self { bar: None };
        }
        let bar = ProgressBar::new_spinner();
        // The template is a valid constant, so this never fails.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}") {
            bar.set_style(style);
        }
        bar.set_message(visible(&text));
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar: Some(bar) }
    }

    /// Updates the text of the progress line.
    pub(crate) fn set(&self, text: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(visible(&text));
        }
    }

    /// Prints a permanent line.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) if bar.is_hidden() => note(line),
            Some(bar) => bar.suspend(|| note(line)),
            None => {}
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Follows a process from the position of a command. Returns when the process has settled or is stuck, the
/// time limit expires, or the user interrupts.
pub(crate) async fn settle(
    client: &Client,
    (guid, after): (&ProcessGuid, Position),
    asked: Asked<'_>,
    limit: Option<Duration>,
    output: Output,
) -> Result<Watched, Failure> {
    let bar = Bar::new(output, format!("process {guid}"));
    let mut standing = Standing::default();
    let watch = client.watch_lrp(guid.clone(), after);
    let watch = follow(client, watch, (guid, asked), &bar, &mut standing);
    let watched = tokio::select! {
        watched = timeout(limit.unwrap_or(Duration::MAX), watch) => watched,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|error| Failure::new(Exit::Failed, "Signal", error.to_string()))?;
            return Ok(Watched::Interrupted);
        }
    };
    match watched {
        Ok(settled) => settled.map(|running| Watched::Settled { running }),
        Err(_) => {
            let waited = super::words::span(limit.unwrap_or_default());
            let because = standing.why.or_else(|| standing.waits.complaint());
            let because = because.map(|why| format!(": {why}")).unwrap_or_default();
            let why = format!("process {guid} is not as desired after {waited}{because}");
            Err(Failure::new(Exit::TimedOut, "WaitTimedOut", why)
                .advise(format!("it goes on; see muster lrp show {guid}")))
        }
    }
}

/// State of a followed process, as far as it was reported to the user.
#[derive(Debug, Default)]
struct Standing {
    seen: Seen,
    /// Last reported line about the rollout.
    rollout: Option<String>,
    /// Reason that the rollout does not progress.
    why: Option<String>,
    waits: Waits,
}

async fn follow(
    client: &Client,
    mut watch: LrpWatch,
    (guid, asked): (&ProcessGuid, Asked<'_>),
    bar: &Bar,
    now: &mut Standing,
) -> Result<u32, Failure> {
    let mut first = true;
    loop {
        let snapshot = Box::pin(next_snapshot(client, &mut watch, bar, &mut now.waits)).await?;
        now.waits.watch(guid, &snapshot);
        if let Some(news) = now.news_of_rollout(&snapshot) {
            bar.say(&news);
        }
        let lines = changes(&mut now.seen, &snapshot.instances);
        // Instances that ran before the command are not reported.
        let ran = |line: &String| line.contains(" runs on ");
        lines.iter().filter(|line| !first || !ran(line)).for_each(|line| bar.say(line));
        first = false;
        bar.set(now.waits.standing.clone());
        if let Some(why) = taken_over(guid, asked, &snapshot) {
            return Err(why);
        }
        let running = || snapshot.lrp.as_ref().map_or(0, |lrp| lrp.running);
        match (snapshot.progress(), asked) {
            (Far::Under, _) => {}
            (Far::Running | Far::Gone | Far::Paused, Asked::Instances) => return Ok(running()),
            (Far::Running | Far::Gone | Far::Paused, Asked::Rollout(target)) => {
                return ended(client, guid, target, &snapshot).await.map(|()| running());
            }
            (Far::Stuck(rows), _) => {
                let of_rollout = snapshot.lrp.as_ref().and_then(|lrp| held(lrp, &snapshot.instances, &rows));
                return Err(of_rollout.unwrap_or_else(|| stuck(guid.as_str(), &rows)));
            }
        }
    }
}

/// Returns the failure of a rollout that cannot continue. `None` unless all stuck instances belong to it.
fn held(lrp: &LrpRow, instances: &[InstanceRow], rows: &[InstanceRow]) -> Option<Failure> {
    let rollout = rollout_under_way(lrp)?;
    if rows.iter().any(|row| row.definition_id != rollout.target) {
        return None;
    }
    let (guid, name) = (&lrp.process_guid, rollout_name(rollout.kind, &rollout.target));
    let why = waits::why(lrp, instances)?;
    let usual = stuck(guid.as_str(), rows);
    let failure = Failure::new(usual.exit, &usual.code, format!("the {name} of process {guid} waits: {why}"));
    let crashed = rows.iter().find_map(|row| row.crashed_in.as_ref());
    let logs = crashed.map(|by| format!("see muster instance logs {}", by.instance_guid));
    let can = match (rollout.kind, &rollout.rollback_to) {
        (Kind::Update, Some(_)) => format!(", or muster lrp rollout rollback {guid}"),
        (Kind::Update, None) | (Kind::Rollback, _) => String::new(),
    };
    let told = format!("what ran before runs on; mend it with muster lrp apply FILE{can}");
    Some(failure.advise(told).advise_some(logs))
}

impl Standing {
    /// Returns a line about the rollout if it differs from the last one: started, in progress or paused.
    fn news_of_rollout(&mut self, snapshot: &Snapshot) -> Option<String> {
        let lrp = snapshot.lrp.as_ref()?;
        self.why = waits::why(lrp, &snapshot.instances);
        let rollout = rollout_under_way(lrp)?;
        let name = rollout_name(rollout.kind, &rollout.target);
        let reason = rollout.reason.as_deref().map(one_line).unwrap_or_default();
        let news = match (rollout.is_paused(), reason.is_empty()) {
            (true, _) => format!("{name} is {}", self.why.clone().unwrap_or_default()),
            (false, false) => format!("{name} begins: {reason}"),
            (false, true) => format!("{name} is under way"),
        };
        (self.rollout.as_ref() != Some(&news)).then(|| self.rollout.insert(news).clone())
    }
}

/// Returns a failure if the awaited rollout was superseded by another one.
fn taken_over(guid: &ProcessGuid, asked: Asked<'_>, snapshot: &Snapshot) -> Option<Failure> {
    let Asked::Rollout(target) = asked else { return None };
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
const LOOKED_BACK: usize = 10;

/// Returns the result of the awaited rollout. It is an error if the rollout is paused or was rolled back, or
/// if the process was removed.
async fn ended(
    client: &Client,
    guid: &ProcessGuid,
    target: &DefinitionId,
    snapshot: &Snapshot,
) -> Result<(), Failure> {
    let Some(lrp) = &snapshot.lrp else {
        let why = format!("process {guid} was removed before its rollout to {target} ended");
        return Err(Failure::new(Exit::Conflict, "Removed", why));
    };
    let Some(rollout) = lrp.rollout.as_ref().filter(|one| one.target != *target || !one.is_over()) else {
        return Ok(());
    };
    let past = rollout::past(client, guid, LOOKED_BACK).await?;
    let failed = past.iter().rev().find(|past| past.kind == Kind::Update || past.target == *target);
    let crash = failed.and_then(|past| past.last_crash.as_ref());
    let said = crash.map(Crash::advice);
    if !rollout.is_over() {
        let name = rollout_name(rollout.kind, &rollout.target);
        let why = waits::why(lrp, &snapshot.instances).unwrap_or_default();
        let failure = Failure::new(Exit::Paused, "Paused", format!("the {name} of process {guid} is {why}"));
        let resume = format!("muster lrp rollout resume {guid}, or muster lrp rollout rollback {guid}");
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

/// Reasons for the lack of progress of a process, as far as they were reported to the user.
#[derive(Debug, Default)]
struct Waits {
    /// Status of the process in one line.
    standing: String,
    /// `true` if an instance is not assigned to a cell.
    to_be_placed: bool,
    /// `true` while the change is in progress.
    unfinished: bool,
    /// Names of starting instances.
    starting: Vec<String>,
    /// Last reported problem of each instance and of the cluster.
    told: BTreeMap<String, String>,
}

/// Key of the cluster among the reported problems. It cannot be the name of an instance.
const CLUSTER: &str = "";

impl Waits {
    /// Updates the state from a snapshot.
    fn watch(&mut self, guid: &ProcessGuid, snapshot: &Snapshot) {
        let rows = &snapshot.instances;
        let starting = rows.iter().filter(|row| row.state == InstanceState::Claimed && !row.stopping);
        let called = Names::of_rows(rows);
        let names = starting.map(|row| called.of(row));
        self.starting = names.take(MONITORS_ASKED).collect();
        self.told.retain(|name, _| name == CLUSTER || self.starting.contains(name));
        self.to_be_placed = snapshot.lrp.as_ref().is_some_and(|lrp| lrp.unclaimed > 0);
        self.unfinished = snapshot.progress() == Far::Under;
        self.standing = standing(guid, snapshot);
    }

    /// Returns the known reason for the lack of progress: a problem of the cluster, or the output of a
    /// failing monitor.
    fn complaint(&self) -> Option<String> {
        if let Some(problem) = self.told.get(CLUSTER) {
            return Some(problem.clone());
        }
        let (name, says) = self.told.iter().find(|(name, _)| *name != CLUSTER)?;
        Some(format!("{name} is not healthy yet: {}", one_line(says)))
    }

    /// Checks why nothing changes, and reports new problems.
    async fn ask(&mut self, client: &Client, bar: &Bar) {
        self.ask_cluster(client, bar).await;
        self.ask_monitors(client, bar).await;
    }

    /// Checks that the BBS and the auctioneer are working.
    async fn ask_cluster(&mut self, client: &Client, bar: &Bar) {
        if !self.unfinished {
            return;
        }
        let problem = match client.cluster().await {
            Ok(cluster) => self.problem(&cluster.row),
            Err(error) => Some(format!("the cluster does not answer: {error}")),
        };
        match problem {
            None => {
                if self.told.remove(CLUSTER).is_some() {
                    bar.set(self.standing.clone());
                }
            }
            Some(problem) => {
                bar.set(format!("{}; {problem}", self.standing));
                if self.told.get(CLUSTER) != Some(&problem) {
                    bar.say(&format!("waits: {problem}"));
                    self.told.insert(CLUSTER.to_owned(), problem);
                }
            }
        }
    }

    /// Returns the problem of the cluster that affects this process, if there is one.
    fn problem(&self, cluster: &ClusterRow) -> Option<String> {
        let matters = |finding: &&Finding| match finding.code {
            FindingCode::AppendsFail | FindingCode::NoBbsLeads => true,
            FindingCode::NoAuctioneer | FindingCode::NoAuctioneerLeads => self.to_be_placed,
            FindingCode::AppendsSlow
            | FindingCode::LogUnreadable
            | FindingCode::LogHazard
            | FindingCode::ReplicasBehind
            | FindingCode::LogNearlyFull
            | FindingCode::ServiceBehind
            | FindingCode::VersionsDiffer
            | FindingCode::ClockOff
            | FindingCode::LogAhead
            | FindingCode::NoCell
            | FindingCode::CellSilent
            | FindingCode::CellLost
            | FindingCode::CellUnhealthy
            | FindingCode::CellEvacuating
            | FindingCode::InstancesCrashed
            | FindingCode::InstancesUnplaced
            | FindingCode::InstancesWaiting
            | FindingCode::TasksUnplaced
            | FindingCode::MonitorsFail
            | FindingCode::CallbacksRepeated
            | FindingCode::MalformedEntries => false,
        };
        cluster.problems.iter().find(matters).map(|finding| finding.message.clone())
    }

    /// Queries the monitors of starting instances.
    async fn ask_monitors(&mut self, client: &Client, bar: &Bar) {
        for name in &self.starting {
            // A cell that does not answer is skipped; the wait continues.
            let Ok(all) = client.instance_health(name).await else { continue };
            let Some(health) = all.into_iter().find_map(|one| one.health) else { continue };
            let Some(complaint) = health.complaint() else { continue };
            if self.told.get(name) != Some(&complaint) {
                bar.say(&format!("{name} is not healthy yet: {}", one_line(&complaint)));
                self.told.insert(name.clone(), complaint);
            }
        }
    }
}

/// Waits for the next snapshot. Checks for problems whenever `MONITOR_PAUSE` passes without one.
async fn next_snapshot(
    client: &Client,
    watch: &mut LrpWatch,
    bar: &Bar,
    waits: &mut Waits,
) -> Result<Snapshot, Failure> {
    let mut next = pin!(watch.next());
    loop {
        match timeout(MONITOR_PAUSE, &mut next).await {
            Ok(snapshot) => return Ok(snapshot?),
            Err(_) => waits.ask(client, bar).await,
        }
    }
}

/// Returns the status of a process in one line.
fn standing(guid: &ProcessGuid, snapshot: &Snapshot) -> String {
    let Some(lrp) = &snapshot.lrp else { return format!("process {guid} is gone") };
    if let Some(rollout) = rollout_under_way(lrp) {
        let name = rollout_name(rollout.kind, &rollout.target);
        let why = waits::why(lrp, &snapshot.instances).unwrap_or_default();
        return format!("process {guid}: {name}, {} of {} replaced; {why}", rollout.replaced, rollout.total);
    }
    let mut parts = vec![format!("{} of {} running", lrp.running, lrp.instances)];
    let more = [(lrp.claimed, "starting"), (lrp.unclaimed, "to be placed"), (lrp.crashed, "crashed")];
    parts.extend(
        more.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}")),
    );
    format!("process {guid}: {}", parts.join(", "))
}

/// Returns a line for each instance that changed since the last call, and updates `seen`.
fn changes(seen: &mut Seen, rows: &[InstanceRow]) -> Vec<String> {
    let names = Names::among(seen.keys().map(|(key, _)| key.clone()).chain(rows.iter().map(key_of)));
    let mut lines = vec![];
    let mut now = BTreeMap::new();
    for row in rows {
        let (key, line) = ((key_of(row), row.presence), describe(row));
        if seen.get(&key) != Some(&line) {
            lines.push(format!("{} {line}", names.of(row)));
        }
        now.insert(key, line);
    }
    let gone = seen.keys().filter(|key| !now.contains_key(*key) && key.1 == InstancePresence::Ordinary);
    lines.extend(gone.map(|(key, _)| format!("{} is gone", names.name(key))));
    *seen = now;
    lines
}

/// Describes the state of an instance in a few words.
fn describe(row: &InstanceRow) -> String {
    let cell = row.cell_id.as_ref().map(|cell| format!(" on {cell}")).unwrap_or_default();
    match (row.state, row.stopping) {
        (_, true) => format!("stops{cell}"),
        (InstanceState::Running, false) if row.presence == InstancePresence::Evacuating => {
            format!("is evacuated from{}", cell.trim_start_matches(" on"))
        }
        (InstanceState::Running, false) => {
            format!("runs{cell}{}", reached(row).map(|address| format!(" at {address}")).unwrap_or_default())
        }
        (InstanceState::Claimed, false) => format!("starts{cell}"),
        (InstanceState::Crashed, false) => {
            let reason = one_line(row.crash_reason.as_deref().unwrap_or_default());
            format!("crashed: {reason}; {}", comes_back(row))
        }
        (InstanceState::Unclaimed, false) => match &row.placement_error {
            Some(error) => format!("is not placed: {}", one_line(error)),
            None => "waits for a cell".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::rows::tests::{of_definition, rolling, running};

    #[test]
    fn changes_are_told_once() {
        let mut seen = Seen::new();
        let waits = InstanceRow {
            state: InstanceState::Unclaimed,
            cell_id: None,
            address: None,
            ports: vec![],
            ..running(1)
        };
        let first = [running(0), waits.clone()];
        assert_eq!(
            changes(&mut seen, &first),
            ["web/0 runs on c1 at 10.0.0.1:60001", "web/1 waits for a cell"]
        );
        assert!(changes(&mut seen, &first).is_empty());
        let unplaced = InstanceRow { placement_error: Some("insufficient resources".into()), ..waits };
        assert_eq!(
            changes(&mut seen, &[running(0), unplaced]),
            ["web/1 is not placed: insufficient resources"]
        );
        let stops = InstanceRow { stopping: true, ..running(0) };
        assert_eq!(changes(&mut seen, &[stops]), ["web/0 stops on c1", "web/1 is gone"]);
        assert_eq!(changes(&mut seen, &[]), ["web/0 is gone"]);
    }

    #[test]
    fn of_two_definitions_at_an_index_it_is_told_which() {
        let mut seen = Seen::new();
        changes(&mut seen, &[running(0), running(1)]);
        let both = [running(0), of_definition("v2", running(0)), running(1)];
        assert_eq!(changes(&mut seen, &both), ["web/0@v2 runs on c1 at 10.0.0.1:60001"]);
        let replaced = [of_definition("v2", running(0)), running(1)];
        assert_eq!(changes(&mut seen, &replaced), ["web/0@web is gone"]);
        assert_eq!(changes(&mut seen, &[running(1)]), ["web/0 is gone"]);
    }

    #[test]
    fn what_is_stuck_has_its_exit_status() {
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
        let both = stuck("web", &[unplaced, crashed.clone()]);
        assert_eq!(both.exit, Exit::NotPlaced);
        assert!(both.message.contains("web/0 is not placed: found no compatible cells"), "{}", both.message);
        let one = stuck("web", &[crashed]);
        assert_eq!((one.exit, one.code.as_str()), (Exit::Failed, "Crashed"));
        assert!(one.text(false).contains("muster instance logs web/1"), "{}", one.text(false));
    }

    fn snapshot(lrp: LrpRow, instances: Vec<InstanceRow>) -> Snapshot {
        Snapshot { position: Position(1), lrp: Some(lrp), instances }
    }

    #[test]
    fn where_a_rollout_stands_is_told_in_one_line_and_its_turns_once() {
        let both = vec![running(0), of_definition("v2", running(0)), running(1)];
        let guid = ProcessGuid::new("web").unwrap();
        let rolls = snapshot(rolling("updating", &[0]), both.clone());
        assert_eq!(
            standing(&guid, &rolls),
            "process web: rollout to v2, 1 of 2 replaced; index 0 runs on c1 and takes over"
        );
        let mut now = Standing::default();
        assert_eq!(now.news_of_rollout(&rolls).unwrap(), "rollout to v2 is under way");
        assert_eq!(now.news_of_rollout(&rolls), None);
        let mut paused = rolling("paused", &[]);
        paused.rollout.as_mut().unwrap().reason = Some("1 of 2 failed".into());
        let told = now.news_of_rollout(&snapshot(paused, both)).unwrap();
        assert_eq!(told, "rollout to v2 is paused: 1 of 2 failed (resume or roll back)");
        assert_eq!(now.why.as_deref(), Some("paused: 1 of 2 failed (resume or roll back)"));
    }

    #[test]
    fn a_rollout_that_cannot_go_on_says_why_and_what_to_do() {
        let crashed = InstanceRow {
            state: InstanceState::Crashed,
            crash_count: 4,
            crash_reason: Some("Exited with status 1".into()),
            ..of_definition("v2", running(0))
        };
        let lrp = rolling("updating", &[0]);
        let failure = held(&lrp, std::slice::from_ref(&crashed), std::slice::from_ref(&crashed)).unwrap();
        assert_eq!(failure.exit, Exit::Failed);
        assert_eq!(
            failure.text(false),
            "error: the rollout to v2 of process web waits: index 0 crashed 4 times: Exited with status 1; not \
             restarted (Crashed)\n  what ran before runs on; mend it with muster lrp apply FILE, or muster lrp rollout rollback web"
        );
        let old = InstanceRow { state: InstanceState::Crashed, ..running(1) };
        assert_eq!(held(&lrp, &[], &[crashed, old]), None, "not of the rollout alone");
    }

    #[test]
    fn another_rollout_takes_the_place_of_the_one_that_is_waited_for() {
        let (guid, v1) = (ProcessGuid::new("web").unwrap(), DefinitionId::new("v1").unwrap());
        let v2 = DefinitionId::new("v2").unwrap();
        let of = |kind| {
            let mut lrp = rolling("updating", &[0]);
            lrp.rollout.as_mut().unwrap().kind = kind;
            snapshot(lrp, vec![])
        };
        let superseded = taken_over(&guid, Asked::Rollout(&v1), &of(Kind::Update)).unwrap();
        assert_eq!((superseded.exit, superseded.code.as_str()), (Exit::Conflict, "Superseded"));
        assert_eq!(taken_over(&guid, Asked::Rollout(&v2), &of(Kind::Update)), None);
        assert_eq!(taken_over(&guid, Asked::Rollout(&v1), &of(Kind::Rollback)), None, "it rolls back");
        assert_eq!(taken_over(&guid, Asked::Instances, &of(Kind::Update)), None);
    }
}
