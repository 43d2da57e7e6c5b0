//! Coverage: the interesting situations that a run met, counted. A test that never meets them tests nothing.

use std::collections::BTreeMap;

/// Declares the situations, each with the words for it.
macro_rules! situations {
    ($($name:ident $words:literal,)*) => {
        /// Something interesting that may happen in a run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Situation {
            $(
                #[doc = $words]
                $name,
            )*
        }

        impl Situation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Whether it is too rare to be met in every run of the usual seeds.
            #[must_use]
            pub const fn is_rare(self) -> bool {
                matches!(self, Self::AbsentCellClaimed | Self::Overtaken)
            }

            /// It in words.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }
        }
    };
}

situations! {
    AppendUnknownAndStored "an append of which nobody knows is stored",
    AppendUnknownAndNotStored "an append of which nobody knows is not stored",
    AppendStoredLate "an append is stored after its sender gave up",
    AppendRefused "the journal refuses an entry",
    AppendConflict "an append loses against another",
    JournalDark "the journal is dark",
    KilledBeforeFold "a BBS is killed between append and fold",
    TwoLeaders "two BBSs lead at once",
    TwoAuctioneers "two auctioneers lead at once",
    LeaderChanged "another BBS leads",
    TakenOverAlone "a copy of a new leader looks at everything alone",
    StaleTermRefused "an order or a message of a former leader is refused",
    Killed "a node is killed",
    MachineDied "a machine dies with its containers",
    CutOffFromBus "a node is cut off from the bus",
    CutOffEntirely "a node is cut off from bus and journal",
    Paused "a node is paused",
    Parted "some nodes are parted from the others",
    PartedOneWay "messages get through one way only",
    Lagging "a follower stands still",
    ClockStepped "a clock is set forward or back",
    Slow "a rep hears late of its containers",
    CreationFailed "a container can't be made",
    PreparationFailed "a container can't be prepared, and its work is refused",
    KilledBetween "a service is killed between two effects",
    Malformed "bytes that are no valid entry are in the log",
    PowerCut "the journal's machines lose power",
    RepeatedAsConflict "a repeated append is answered with a conflict",
    RepeatedAsDuplicate "a repeated append is answered as a duplicate",
    RepeatedForgotten "a repeated append comes when the journal has forgotten the first",
    BatchDidNotFit "a batch has work for which there is no room",
    RuleUnmet "no cell meets a constraint",
    WallsLacking "no cell keeps containers apart as is asked for",
    AffinityDecides "without affinities another cell would be better",
    SpreadDecides "without a spread over attributes another cell would be better",
    Crowded "what may not be beside its siblings finds no cell",
    LossLookedAt "what a lost cell held is looked at a second later",
    Crowd "two containers of one ActualLRP run at once",
    CellGone "a cell vanishes for ever",
    Unheard "a cell's heartbeats and probes are lost, and nothing else",
    OldCopy "an old copy of a message arrives again",
    StartedFromSnapshot "a BBS or an auctioneer starts from a snapshot of the log",
    RepAdopted "a rep that starts again finds containers",
    CellLost "a cell disappears",
    CellBack "a cell that had disappeared is back",
    CellUnhealthy "a cell is unhealthy",
    MassLoss "most cells fall silent together",
    LostTogether "most cells are lost together",
    AbsentCellClaimed "a claim lands that was decided before its cell disappeared",
    StopAfterCellDeath "what was being stopped goes with its cell",
    InstanceLost "an instance is lost with its cell",
    TaskLost "a task is lost with its cell",
    EvacuationFinished "an evacuation moves everything away in time",
    EvacuationTimedOut "an evacuation's time is over with something left",
    TwinSet "an instance becomes evacuating",
    TwinReplaced "an evacuating instance goes when its replacement runs",
    TwinExpired "an evacuating record expires",
    WorkRefused "a rep refuses work",
    EvaluationBlocked "an evaluation is blocked",
    BlockedWorkPlaced "blocked work is placed",
    PartlyPlaced "an evaluation is complete with a part placed and the rest blocked",
    CauseJoined "a further cause joins a pending evaluation",
    EvaluationRetried "somebody wants an evaluation tried again that waits or failed, and it is",
    Redelivered "an evaluation that nobody answered is delivered again",
    RestartDelayed "a crash's wait is a delayed evaluation",
    RestartDue "a delayed evaluation is due",
    BlockedAtPeace "work that no cell can take stays blocked",
    NoCompatibleCell "no cell's stack or tags match",
    NoRoom "no compatible cell has room",
    TaskPlacementFailed "a task fails because it can't be placed",
    RestartedAtOnce "a crash restarts at once",
    RestartedAfterWait "a crash restarts after its wait",
    CrashLimit "a crash is one too many to restart at once",
    RestartDeclined "a crash is one that the restart policy declines to restart",
    OlderLifeRefused "a report of an earlier life is refused",
    ContainerEntered "a client has a program run in the container of an instance",
    OrphanAdopted "a running container makes the record that was missing",
    UnwantedTold "a cell tells of what somebody removed or scaled away",
    RolloutBegun "a rollout begins",
    RolloutSuperseded "a rollout takes the place of another one",
    RolledBack "a rollout goes back",
    RolloutPaused "a rollout pauses",
    RolloutResumed "a rollout is resumed",
    RolloutStalled "an index is given up for now",
    RolloutFellBack "an index without room falls back to stop-first",
    RolloutCompleted "a rollout completes",
    RollbackCompleted "a rollback completes",
    StoppedFirst "a rollout stops what runs before its successor runs",
    LaunchDue "a periodic task launches what is due",
    LaunchCaughtUp "a periodic task catches up",
    LaunchMissed "launches are missed, and skipped for a later one",
    LaunchSkipped "a launch is skipped because of an earlier one",
    LaunchQueued "a launch waits for an earlier one",
    QueuedLaunchFreed "a task ends for which a launch waits",
    LaunchGivenUp "a launch that waits is given up",
    LaunchAsked "somebody wants a launch now",
    DispatchedAtOnce "a dispatch is launched at once",
    DispatchQueued "a dispatch waits for its turn",
    DispatchFreed "a dispatch that waited is launched",
    DispatchRepeated "a dispatch is asked for again by its key",
    DispatchRefused "a dispatch is refused, since as many tasks are there as may",
    KeyReused "a key comes with something else",
    DispatchWithdrawn "a dispatch that waits is withdrawn",
    DispatchGivenUp "what waits goes with its template",
    Resharded "the number of shards is changed",
    Overtaken "an entry lands on a subject of an earlier number of shards",
    WaitsForClaims "work waits until cells have claimed what they were given",
    Preempted "an instance is stopped for something more urgent",
    TaskPreempted "a task is stopped for something more urgent",
    PreemptorPlaced "what something else was stopped for is placed",
    Cordoned "a cell is cordoned",
    CellsJoined "a global process follows cells that came or changed",
    CellsLeft "a global process follows cells that left",
    GlobalNotScaled "a global process can't be scaled",
    DefinitionPruned "a definition is pruned",
    Forgotten "it is forgotten that something was removed",
    StaleDomainKept "what nobody desires runs on while its domain is stale",
    Undesired "convergence stops what nobody desires",
    RequestRepeated "a repeated request is answered from memory",
    RequestTooLate "a request is refused because its patience is over",
    ForeignRefused "a client is refused what belongs to another domain",
    TaskCancelledRunning "a running task is cancelled",
    TaskSucceeded "a task succeeds",
    CallAnswered "a callback is answered for good",
    CallRepeated "a callback is repeated",
    CallSilent "a callback is not answered",
    Demoted "a task is RESOLVING for too long",
    TaskExpired "a completed task is deleted after two minutes",
    LookedAgain "a client looks what runs when a cell is there again",
    ReadOwnWrite "a client reads what it wrote",
    ProjectorKilled "a projector is killed between two batches",
    TablesRemember "tables keep what the World has forgotten",
    RowsRead "somebody reads rows",
    PageRead "somebody reads a later page",
    QueryRefused "a query is refused",
    BadQueryRefused "a query that can't be asked so is refused",
    VersionRefused "a command is refused because it expects another version",
    PlannedDone "what was planned at a position is carried out",
    PlanOutdated "what was planned at a position is refused because it has changed since",
    IdReused "a request id that was used for something else is refused",
    Uncordoned "a cell takes work again that was to evacuate",
    CellForgotten "a cell that is lost is forgotten",
    ForgedRefused "a report under another cell's name is refused",
    OrderLost "the executor doesn't get an order",
    Described "a process gets other routes or another annotation",
    LargeEntry "an entry is larger than a decision may be",
    LargeMessage "a message of many things is large",
    FullMessage "a message holds as many things as it may",
    BadSpecRefused "a command with one thing wrong is refused",
    UtmostDesired "what is as large as may be is desired",
    NeverHealthy "an instance is given up that its monitor never called healthy",
    RowBeginsUnknown "row: from rest to a definition that is not known to work",
    RowBeginsKnown "row: from rest to the definition that is known to work",
    RowNothingToProtect "row: nothing is known to work, and every index at which nothing runs has its turn at once",
    RowProved "row: a new instance takes over, and with it its definition is known to work",
    RowUnknownHolds "row: a definition that is not known to work crashes, and its index holds on to it",
    RowUnknownUnplaced "row: a definition that is not known to work finds no room",
    RowKnownHolds "row: a definition that is known to work crashes in its turn, and its index holds on to it",
    RowGivenUpBeside "row: an index is given up, and what ran there serves on",
    RowGivenUpRefilled "row: an index is given up, and what is known to work takes its place again",
    RowTookOver "row: a new instance of a definition that is known to work takes over",
    RowTooLate "row: an index is given up because its deadline has passed",
    RowOtherRestarts "row: an index out of its turn starts again as what is known to work",
    RowOtherIsTarget "row: an index out of its turn starts again as the target",
    RowFailuresPause "row: an update pauses because too many failed",
    RowFailuresRollBack "row: an update goes back because too many failed",
    RowReplaced "row: another rollout takes the place of one that rolls",
    RowScaledUp "row: the scale goes up during a rollout",
    RowScaledDown "row: the scale goes down during a rollout",
    RowAskedToPause "row: somebody pauses a rollout",
    RowResumed "row: somebody resumes a paused update",
    RowPausedReplaced "row: another rollout takes the place of a paused update",
    RowCompletedAtOnce "row: an update without a monitor completes",
    RowCompletedWatched "row: an update with a monitor completes",
    RowTriedAgain "row: an index that was given up has its turn again",
    RowRollbackPaused "row: a rollback pauses because too many failed",
    RowRollbackGoesOn "row: somebody goes on from a paused rollback",
    RowRemoved "row: a process is removed during a rollout",
}

/// How often each was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<Situation, u64>);

impl Coverage {
    /// Counts one.
    pub fn saw(&mut self, situation: Situation) {
        *self.0.entry(situation).or_default() += 1;
    }

    /// How often it was seen.
    #[must_use]
    pub fn count(&self, situation: Situation) -> u64 {
        self.0.get(&situation).copied().unwrap_or_default()
    }

    /// Adds what another run has seen.
    pub fn add(&mut self, other: &Self) {
        for (situation, count) in &other.0 {
            *self.0.entry(*situation).or_default() += count;
        }
    }

    /// What should have been seen and was not.
    pub fn missing(&self) -> impl Iterator<Item = Situation> + '_ {
        Situation::ALL.iter().copied().filter(|situation| self.count(*situation) == 0 && !situation.is_rare())
    }
}
