//! What is promised, each promise with a name, where it comes from, and a checker of its own.

use std::fmt;

/// Declares the promises: name, where it stands, words.
macro_rules! promises {
    ($($name:ident $source:literal $words:literal,)*) => {
        /// Something that has to be true whatever happens.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Promise {
            $(
                #[doc = $words]
                $name,
            )*
        }

        impl Promise {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The promise of this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|promise| promise.name() == name)
            }

            /// The document and the section that it comes from.
            #[must_use]
            pub const fn source(self) -> &'static str {
                match self {
                    $(Self::$name => $source,)*
                }
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

promises! {
    // The log.
    NothingTwice "docs/internals/journal.md, Entries" "an entry and a decision are in the log once",
    CompareAndSet "docs/internals/journal.md, Writes" "an entry is accepted only where its subject ends as its decider thought",
    LogKept "docs/internals/journal.md, Server" "what was in the log stays in it",
    AuditClean "docs/guides/verify-the-log.md, Findings" "an audit has nothing to say against what the services decided",
    OnItsSubject "docs/internals/journal.md, Aggregates and subjects" "a decision stands on its aggregate's subject, and holds that aggregate's events",
    VersionsCount "docs/internals/journal.md, Entries" "an aggregate's versions count up by one",
    TimeForward "docs/internals/journal.md, Entries" "time never goes back on a subject",
    RequestOnce "docs/internals/model/leadership-and-requests.md, Requests" "a request is carried out once, and not when its patience is over",
    DomainsApart "docs/internals/message-bus.md, Message bus" "a client changes nothing of another domain",
    SaysWhoAndWhy "docs/internals/journal.md, Entries" "a decision says who asked for it, and the reason that a client gave",
    VersionExpected "docs/reference/nats-api.md, Envelope" "a command that expects a version changes that one alone",
    AsPlanned "docs/reference/nats-api.md, Envelope" "a command that names a position is carried out only if nothing was decided since about what it is about",
    LedAgain "docs/internals/model/leadership-and-requests.md, Leadership" "where nothing hinders it, another BBS leads soon, whoever else claims to",
    OnlyLeadersDecide "docs/internals/model/leadership-and-requests.md, Leadership" "a service decides only while the log says that it leads",
    OnePassFinds "SwarmKit orchestrators, Initialization" "a new leader finds everything that is due by one pass over the World, and a second pass emits nothing",
    ClientsInOrder "docs/internals/model/leadership-and-requests.md, Ordering and quiescence" "what a client asks of one thing in a row is carried out in that order",
    OneLife "docs/internals/journal.md, Entries" "nothing of an earlier life of a guid runs or reports in a later one",
    OrdinalsSound "docs/internals/model/global-processes.md, Global processes" "each known cell has one ordinal, the lowest that was free",
    TermsCount "docs/internals/model/leadership-and-requests.md, Leadership" "a cluster is founded once, and each election has the next term",
    CellsSound "Diego Dev Notes, Detecting Cell Failures" "a cell appears, evacuates, sickens and disappears only when it can",
    OnePicture "docs/internals/architecture.md, Invariants" "folding the log from its start, or from a snapshot, equals every service's own picture",

    CausesTrue "docs/internals/model/evaluations.md, Causes" "each decision names the one that brought it about, and the first of exactly that chain",
    SizesHold "docs/internals/architecture.md, Invariants" "every entry, decision and message is at most as large as it may be, and holds at most as many things",

    // Periodic tasks.
    LaunchedOnce "docs/internals/model/periodic-tasks.md, Periodic tasks" "what is due is launched once, not before its time, and desired in the same entry",
    NoLaunchLost "docs/internals/model/periodic-tasks.md, Periodic tasks" "what is due is launched or skipped soon, and no update, pause or downtime loses it: of what was missed the last is launched",
    OverlapHolds "docs/internals/model/periodic-tasks.md, Periodic tasks" "a launch is skipped or waits only where an earlier one still runs and the overlap says so, and none runs beside another where it may not",

    // Parameterised tasks.
    DispatchedOnce "docs/internals/model/parameterised-tasks.md, Parameterised tasks" "what is dispatched becomes one task with what was dispatched, desired in the entry that launches it, and the same key makes no other",
    NoDispatchLost "docs/internals/model/parameterised-tasks.md, Parameterised tasks" "what a client was told is dispatched is launched soon, in its turn, or withdrawn, and the log says why",
    ConcurrencyHolds "docs/internals/model/parameterised-tasks.md, Parameterised tasks" "no more tasks of one template are PENDING or RUNNING than may, and a dispatch waits only where as many are or others wait",

    // Processes.
    DesiredSound "Diego Dev Notes, DesiredLRPs" "a process is desired once in a life, and every index that is wanted has a record",
    OnlyUnclaimedClaimed "Diego Dev Notes, Starting ActualLRPs" "only what is UNCLAIMED is claimed",
    NeverStolen "Diego Dev Notes, ActualLRPs" "a RUNNING record is never taken over by another container",
    OwnCellSpeaks "Diego Dev Notes, ActualLRPs" "only the cell that holds a container speaks for it, and only while it is present",
    RunsBeforeRunning "Diego Dev Notes, ActualLRPs" "what is RUNNING or evacuating has really been started",
    EndedStays "Diego Dev Notes, Harmonizing ActualLRPs with Container State: Rep" "what its own rep said has ended is never claimed, RUNNING or evacuating again",
    CrashCounted "Diego Dev Notes, Crashes" "a crash is told by the container that held the record, is counted as the policy says, and restarts at once while it may",
    RestartInTime "Diego Dev Notes, Crashes" "a crashed instance does not restart before its time, and never after the last",
    RestartNotLate "Diego Dev Notes, Crashes" "a crashed instance is unclaimed when its wait is over, and not later",
    RestartsByPolicy "SwarmKit orchestrators, Restart supervisor" "what follows from a crash is what the restart policy says, and what it declines starts again only for a rollout",
    AttemptsHold "SwarmKit orchestrators, Restart supervisor" "the restarts of an index as one definition are counted within the window, and never those that no crash is the cause of",
    ErrorOnlyUnclaimed "Diego Dev Notes, Distributing ActualLRPs: Auctioneer" "only what is UNCLAIMED or PENDING has a placement error",
    WorkHasEvaluation "docs/internals/model/evaluations.md, Evaluations" "what waits to be placed, for room or for its restart is the duty of exactly one open evaluation each, and an open evaluation has such a duty",
    EvaluationSound "docs/internals/model/evaluations.md, Evaluations" "an evaluation goes only where it can, and says truly how much it placed and left",
    EvaluationFinal "Nomad evaluation states" "a complete or canceled evaluation never changes again, and a failed one only if somebody retries it",
    ParentAndChild "docs/internals/model/evaluations.md, Evaluations" "a child is created in the decision of its parent, and names it exactly where the document's diagram does",
    StaleStopsNothing "Diego Dev Notes, Harmonizing DesiredLRPs with ActualLRPs: Convergence" "convergence stops nothing while its domain is stale",
    StopHasCause "Diego Dev Notes, Stopping ActualLRPs" "an instance is stopped, removed or unclaimed only for a reason that holds",
    StopWorks "Diego Dev Notes, Stopping ActualLRPs" "what somebody asks to stop is stopped at once, however stale its domain",
    UnwantedEnds "docs/internals/model/process.md, Reports about an undesired index" "what somebody removed or scaled away is stopped as soon as it is told of again, however stale its domain",
    LostOnlyIfAbsent "Diego Dev Notes, Detecting Cell Failures" "what is reaped with its cell was on a cell that is absent",
    LostInTime "docs/internals/model/cells.md, Cells" "a cell is lost only after 15 s of silence and a probe in vain",
    LostTogether "docs/internals/model/cells.md, Cells" "if most cells fall silent together, each is lost only after a longer silence",
    LostNotLate "docs/internals/model/cells.md, Cells" "a cell that is silent and answers no probe is lost while most others are there",
    LostAtOnce "Diego Dev Notes, Detecting Cell Failures" "what a lost cell held is in the auction within a second",
    OneEvacuating "Diego Dev Notes, Evacuation" "an index has a second instance only while it evacuates",
    EvacuatingEnds "Diego Dev Notes, Evacuation" "an evacuating record carries the end of its cell's evacuation, and goes when that is there",
    UndesiredStops "Diego Dev Notes, Harmonizing DesiredLRPs with ActualLRPs: Convergence" "what nobody desires is stopped while its domain is fresh",
    FreshAsAsked "Diego Dev Notes, DesiredLRPs" "a domain is fresh for as long as a client said",
    EvacuatingKept "Diego Dev Notes, Evacuation" "an evacuating instance goes when its replacement runs, its time is over, or its own cell says so, and not before",

    // Rollouts.
    DefinitionsKept "SwarmKit orchestrators, Update supervisor" "the active and the healthy definition are there, and none is pruned that an instance runs",
    HealthTrue "Updatable LRPs, LRPDeployment" "a definition is healthy once an instance of it survived its monitor, and not later, or if everything goes back to it",
    RolloutSound "docs/internals/model/definitions-and-rollouts.md, Rollouts" "a rollout does only what follows from its policy and from what is so",
    AtMostTwo "SwarmKit orchestrators, Update supervisor" "an index has at most two live instances, evacuating ones counted",
    StartsFirst "SwarmKit orchestrators, Update supervisor" "start-first, what a rollout stops leaves another running at its index",
    StopsFirst "SwarmKit orchestrators, Update supervisor" "stop-first, a new instance comes only where nothing else is",
    RolloutBudget "SwarmKit orchestrators, Update supervisor" "no more indices are in replacement at once than the policy says, and nothing unproven starts out of turn",
    FailsOnce "SwarmKit orchestrators, Update supervisor" "an index fails at most once in a rollout",
    RollsBackOnce "SwarmKit orchestrators, Update supervisor" "a rollout goes back at most once, to the definition that was healthy when it began, and a rollback never",
    CompletedTrue "SwarmKit orchestrators, Update supervisor" "when a rollout has completed, every index runs its target and nothing else",
    RolloutsGoOn "docs/internals/model/definitions-and-rollouts.md, Rollouts" "no rollout waits for instances that their restart policy keeps down: each index has one owner",
    MinRunning "docs/internals/model/definitions-and-rollouts.md, Rollouts" "no stop of a rollout leaves fewer running than have to",

    // Global processes.
    CellsFollowed "SwarmKit orchestrators, Global orchestrator" "a global process runs on those cells that fit, are there and are not evacuated, and says so of no other",
    OwnCellOnly "SwarmKit orchestrators, Global orchestrator" "an index of a global process is claimed and started by the cell alone that has it as its ordinal",
    GlobalHolds "SwarmKit orchestrators, Global orchestrator" "when all is quiet each cell that fits runs one instance of a global process, and no other cell does",

    TellsTheTruth "docs/internals/journal.md, Entries" "a crash reason, an address, ports, a trigger and a placement error are what they were",
    StopSaid "Diego Dev Notes, Stopping ActualLRPs" "whoever holds what shall stop is told so at once, and again until it is gone; and nobody else",
    OutcomeIsJudged "docs/internals/model/evaluations.md, Evaluations" "a placement error is one that an auctioneer found for this very attempt",
    ClaimWasGiven "Diego Dev Notes, Distributing ActualLRPs: Auctioneer" "what a cell claims was given to it, for the reason that the record says",

    // Tasks.
    TaskSound "Diego Dev Notes, Task Lifecycle" "a task goes only where the tables let it go, and only by who may",
    TaskOnce "Diego Dev Notes, Tasks" "a task's action starts at most once, ever",
    TaskInTime "Diego Dev Notes, Task Lifecycle" "a task leaves PENDING, RESOLVING and COMPLETED when its time is over, and not later",
    OutcomeStays "Diego Dev Notes, Task Lifecycle" "a completed task never changes its result",
    OutcomeTrue "Diego Dev Notes, Task Lifecycle" "a task's outcome is what its container did, or the reason why it has none",
    OnlyCompletedResolved "Diego Dev Notes, Resolving Completed Tasks" "only a COMPLETED task is resolved, and only a resolved or old one deleted",
    CallTrue "Diego Dev Notes, Resolving Completed Tasks" "an owner is told what the task's outcome is",
    CallEnds "Diego Dev Notes, Resolving Completed Tasks" "an owner is not called again after an answer that ends it, nor when the task is gone",
    CallTold "Diego Dev Notes, Resolving Completed Tasks" "the log tells what came of each call of an owner, counted",
    CallBacksOff "docs/internals/model/tasks.md, Completion callbacks" "an owner is called again after a wait that doubles, and not later",
    OwnerCalled "Diego Dev Notes, Resolving Completed Tasks" "the owner of every completed task is called",

    // Placing, and cells.
    LiveKept "Diego Dev Notes, Harmonizing ActualLRPs with Container State: Rep" "a rep deletes what lives only for an answer of a BBS, and what runs only if another container ran since, in another life, or if its index is another cell's",
    ClaimedBeforeRun "Diego Dev Notes, Starting ActualLRPs" "nothing is started that the log did not let in",
    CellHolds "Diego Dev Notes, Communicating Fullness" "a cell never holds more than it has",
    PlacementObeys "Diego Dev Notes, Distributing ActualLRPs: Auctioneer" "a placement obeys stack, tags and constraints",
    KeptApart "docs/internals/model/auction.md, Auction" "no instance is let in where its definition allows no more of the process",
    SeesBeforePlacing "Diego Dev Notes, Distributing ActualLRPs: Auctioneer" "a new auctioneer places nothing before every present cell has told its state, or a heartbeat's interval has passed",
    BestPlace "Diego Dev Notes, Distributing ActualLRPs: Auctioneer" "work goes to the best cell that its auctioneer knows of, and only where it has room",
    ExplanationTrue "docs/internals/journal.md, Entries" "a placement says how many cells there were, and how good the best was",
    NoRoomSaid "Diego Dev Notes, Communicating Fullness" "work fails only if no cell has room, and the error names exactly what is lacking",
    FullnessTrue "Diego Dev Notes, Communicating Fullness" "what a cell says is free is what its containers and reservations leave, and an auctioneer knows it when all is quiet",
    BatchOrder "Diego Dev Notes, Auction Work Prioritization" "work of one batch is placed in its order, the more urgent first",
    PreemptedOnlyIfOn "docs/internals/model/preemption.md, Preemption" "nothing is stopped for something more urgent while that is switched off",
    PreemptedLower "docs/internals/model/preemption.md, Preemption" "what is stopped for other work has a priority that is lower by ten at least, and is none of the same process",
    PreemptedForRoom "docs/internals/model/preemption.md, Preemption" "what stops for work makes room for it on a cell that may take it, and none of it is superfluous",
    PreemptedOnce "docs/internals/model/preemption.md, Preemption" "what is stopped for work doesn't come back to the same cell before it, to be stopped again",
    PreemptionEvaluated "docs/internals/model/preemption.md, Preemption" "what is stopped for other work has an evaluation that says so in the same decision",
    RoomKept "docs/internals/model/preemption.md, Preemption" "room that is made for work goes to nothing behind it in the order",
    ClaimedBeforeMore "docs/internals/model/auction.md, Auction" "cells have no more work that the log doesn't show claimed than it takes in time",
    PlacedByPriority "docs/internals/model/auction.md, Auction" "nothing is placed on a cell while work that waits, is more urgent or has its turn before it, fits there",
    CordonedTakesNothing "docs/guides/evacuate-a-cell.md, Evacuate a cell" "nothing is given to a cell that is cordoned, as far as its auctioneer knows",
    EvacuatingTakesNothing "Diego Dev Notes, Evacuation" "a cell that evacuates takes nothing new",
    StaleTermHarmless "docs/internals/model/leadership-and-requests.md, Leadership" "a rep does nothing for an auctioneer of an earlier term than it has seen",
    EvacuatedEmpty "Diego Dev Notes, Evacuation" "a rep that has evacuated leaves nothing behind",
    NoCrowd "Diego Dev Notes, ActualLRPs" "more than two containers of one ActualLRP run only for as long as nobody can know better",

    // What clients are told.
    BadSpecsRefused "docs/reference/nats-api.md, Subjects and answers" "a command with a bad field is refused by the path of that field and of no other, and nothing of it is carried out",
    GoodSpecsTaken "docs/reference/limits.md, Limits" "a command within the limits is never refused as invalid, and what it desires is in the log as it was written",
    ToldTrue "docs/internals/journal.md, Writes" "every acknowledged command is in the log, once, and no refused one",
    JudgedAfterTold "docs/internals/model/leadership-and-requests.md, Requests" "a command is judged on at least what was acknowledged of its object when it was sent",
    ReadsOwnWrites "docs/internals/message-bus.md, Message bus" "who wrote something reads it",
    RowsTrue "docs/reference/queries.md, Queries" "what a query answers is what the log says at the position that the answer names",
    TablesTrue "docs/reference/sql-tables.md, History" "the tables of a database show as of any position what was so, however a projector was killed, and keep what ended",
    NobodyHalts "docs/internals/journal.md, Entries" "no service stops for what the log may hold",

    // When all is quiet.
    NothingInFlight "docs/internals/architecture.md, Invariants" "every budget, count and queue is back at zero",
    NothingKept "docs/internals/architecture.md, Invariants" "what is remembered is bounded by what is there: of what is gone nothing is kept for ever",
    NoHotLoop "docs/internals/model/timers-and-clocks.md, Timers" "nothing is sent, asked or ordered again sooner than its period or its backoff allows",
    Quiet "docs/internals/model/leadership-and-requests.md, Ordering and quiescence" "the cluster comes to rest",
    OneLeads "docs/internals/model/leadership-and-requests.md, Leadership" "one BBS and one auctioneer lead",
    CellsReturn "Diego Dev Notes, Detecting Cell Failures" "every cell that lives is present, healthy and open",
    DesiredIsActual "Diego Dev Notes, Harmonizing DesiredLRPs with ActualLRPs: Convergence" "desired equals actual, index by index",
    NothingLeaks "Diego Dev Notes, Harmonizing ActualLRPs with Container State: Rep" "no container, reservation or evacuating record is left over",
    NoIdleRoom "Diego Dev Notes, Distributing ActualLRPs: Auctioneer" "no work waits for room that is there, and what waits says the right reason",
    RolloutsEnd "Updatable LRPs, UpdateLRPDeployment" "every rollout to a definition that works is over, and every index runs it",
    TasksEnd "Diego Dev Notes, Task Lifecycle" "every task has ended",
    AsAsked "Diego Dev Notes, DesiredLRPs" "what is desired is what clients were told is desired",

    // What a person wrote down.
    AsExpected "tests/stories/README.md, Stories" "what a story expects is seen, and its clients get the answers that it says",
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub promise: Promise,
    /// How.
    pub how: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { promise, how } = self;
        write!(f, "{} ({}): {how}", promise.name(), promise.words())
    }
}
