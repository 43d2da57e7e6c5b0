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

            /// The section of seed `000`, or of DESIGN, that it comes from.
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
    NothingTwice "DESIGN 3, Entries" "an entry and a decision are in the log once",
    CompareAndSet "DESIGN 3, Writing" "an entry is accepted only where its subject ends as its decider thought",
    LogKept "DESIGN 3, Server" "what was in the log stays in it",
    OnItsSubject "DESIGN 3, Aggregates" "a decision stands on its aggregate's subject, and holds that aggregate's events",
    VersionsCount "DESIGN 3, Entries" "an aggregate's versions count up by one",
    TimeForward "DESIGN 3, Entries" "time never goes back on a subject",
    RequestOnce "DESIGN 3, Writing" "a request is carried out once, and not when its deadline has passed",
    DomainsApart "DESIGN 3, Bus" "a client changes nothing of another domain",
    SaysWhoAndWhy "DESIGN 3, Entries" "a decision says who asked for it, and the reason that a client gave",
    VersionExpected "DESIGN 3, Idempotency" "a command that expects a version changes that one alone",
    OnlyLeadersDecide "DESIGN 3, Writing" "a service decides only while the log says that it leads",
    ClientsInOrder "DESIGN 3, Writing" "what a client asks of one thing in a row is carried out in that order",
    OneLife "DESIGN 3, Epoch" "nothing of an earlier life of a guid runs or reports in a later one",
    TermsCount "DESIGN 3, Writing" "a cluster is founded once, and each election has the next term",
    CellsSound "Detecting Cell Failures" "a cell appears, evacuates, sickens and disappears only when it can",
    OnePicture "DESIGN 1" "folding the log from its start, or from a snapshot, equals every service's own picture",

    CausesTrue "DESIGN 3, Causes" "each decision names the one that brought it about, and the first of exactly that chain",

    // Processes.
    DesiredSound "DesiredLRPs" "a process is desired once in a life, and every index that is wanted has a record",
    OnlyUnclaimedClaimed "Starting ActualLRPs" "only what is UNCLAIMED is claimed",
    NeverStolen "ActualLRPs" "a RUNNING record is never taken over by another container",
    OwnCellSpeaks "ActualLRPs" "only the cell that holds a container speaks for it, and only while it is present",
    RunsBeforeRunning "ActualLRPs" "what is RUNNING or evacuating has really been started",
    EndedStays "Harmonizing ActualLRPs" "what its own rep said has ended is never claimed, RUNNING or evacuating again",
    CrashCounted "Crashes" "a crash is told by the container that held the record, is counted as the policy says, and restarts at once while it may",
    RestartInTime "Crashes" "a crashed instance does not restart before its time, and never after the last",
    RestartNotLate "Crashes" "a crashed instance is unclaimed when its wait is over, and not later",
    ErrorOnlyUnclaimed "Distributing ActualLRPs" "only what is UNCLAIMED or PENDING has a placement error",
    WorkHasEvaluation "DESIGN 4, Evaluations" "work has an open evaluation, a pending evaluation has work, and a blocked one only work with an error",
    EvaluationSound "DESIGN 4, Evaluations" "an evaluation goes only where it can",
    StaleStopsNothing "Convergence" "convergence stops nothing while its domain is stale",
    StopHasCause "Stopping ActualLRPs" "an instance is stopped, removed or unclaimed only for a reason that holds",
    StopWorks "Stopping ActualLRPs" "what somebody asks to stop is stopped at once, however stale its domain",
    UnwantedEnds "DESIGN 4" "what somebody removed or scaled away is stopped as soon as it is told of again, however stale its domain",
    LostOnlyIfAbsent "Detecting Cell Failures" "what is reaped with its cell was on a cell that is absent",
    LostInTime "DESIGN 4, A cell disappears" "a cell is lost only after 15 s of silence and a probe in vain",
    LostNotLate "DESIGN 4, A cell disappears" "a cell that is silent and answers no probe is lost while most others are there",
    LostAtOnce "Detecting Cell Failures" "what a lost cell held is in the auction within a second",
    OneEvacuating "Evacuation" "an index has a second instance only while it evacuates",
    EvacuatingEnds "Evacuation" "an evacuating record carries the end of its cell's evacuation, and goes when that is there",
    UndesiredStops "Convergence" "what nobody desires is stopped while its domain is fresh",
    FreshAsAsked "DesiredLRPs" "a domain is fresh for as long as a client said",
    EvacuatingKept "Evacuation" "an evacuating instance goes when its replacement runs, its time is over, or its own cell says so, and not before",

    TellsTheTruth "DESIGN 3, Entries" "a crash reason, an address, ports, a trigger and a placement error are what they were",
    StopSaid "Stopping ActualLRPs" "whoever holds what shall stop is told so at once, and again until it is gone; and nobody else",
    OutcomeIsJudged "DESIGN 4, Evaluations" "a placement error is one that an auctioneer found for this very attempt",
    ClaimWasGiven "Distributing ActualLRPs" "what a cell claims was given to it, for the reason that the record says",

    // Tasks.
    TaskSound "Task Lifecycle" "a task goes only where the tables let it go, and only by who may",
    TaskOnce "Tasks" "a task's action starts at most once, ever",
    TaskInTime "Task Lifecycle" "a task leaves PENDING, RESOLVING and COMPLETED when its time is over, and not later",
    OutcomeStays "Task Lifecycle" "a completed task never changes its result",
    OutcomeTrue "Task Lifecycle" "a task's outcome is what its container did, or the reason why it has none",
    OnlyCompletedResolved "Resolving Completed Tasks" "only a COMPLETED task is resolved, and only a resolved or old one deleted",
    CallTrue "Resolving Completed Tasks" "an owner is told what the task's outcome is",
    CallEnds "Resolving Completed Tasks" "an owner is not called again after an answer that ends it, nor when the task is gone",
    CallTold "Resolving Completed Tasks" "the log tells what came of each call of an owner, counted",
    CallBacksOff "DESIGN 4, Timers" "an owner is called again after a wait that doubles, and not later",
    OwnerCalled "Resolving Completed Tasks" "the owner of every completed task is called",

    // Placing, and cells.
    LiveKept "Harmonizing ActualLRPs" "a rep deletes what lives only for an answer of a BBS, and what runs only if another container ran since, or in another life",
    ClaimedBeforeRun "Starting ActualLRPs" "nothing is started that the log did not let in",
    CellHolds "Communicating Fullness" "a cell never holds more than it has",
    PlacementObeys "Distributing ActualLRPs" "a placement obeys stack and tags",
    BatchOrder "Auction Work Prioritization" "work of one batch is placed in its order",
    EvacuatingTakesNothing "Evacuation" "a cell that evacuates takes nothing new",
    StaleTermHarmless "DESIGN 3, Writing" "a rep does nothing for an auctioneer of an earlier term than it has seen",
    EvacuatedEmpty "Evacuation" "a rep that has evacuated leaves nothing behind",
    NoCrowd "ActualLRPs" "more than two containers of one index run only for as long as nobody can know better",

    // What clients are told.
    ToldTrue "DESIGN 3, Writing" "every acknowledged command is in the log, once, and no refused one",
    JudgedAfterTold "DESIGN 3, Writing" "a command is judged on at least what was acknowledged of its object when it was sent",
    ReadsOwnWrites "DESIGN 3, Bus" "who wrote something reads it",
    NobodyHalts "DESIGN 3, Entries" "no service stops for what the log may hold",

    // When all is quiet.
    NothingInFlight "DESIGN 1, Invariants" "every budget, count and queue is back at zero",
    Quiet "DESIGN 4" "the cluster comes to rest",
    OneLeads "DESIGN 3, Writing" "one BBS and one auctioneer lead",
    CellsReturn "Detecting Cell Failures" "every cell that lives is present, healthy and open",
    DesiredIsActual "Convergence" "desired equals actual, index by index",
    NothingLeaks "Harmonizing ActualLRPs" "no container, reservation or evacuating record is left over",
    NoIdleRoom "Distributing ActualLRPs" "no work waits for room that is there, and what waits says the right reason",
    TasksEnd "Task Lifecycle" "every task has ended",
    AsAsked "DesiredLRPs" "what is desired is what clients were told is desired",

    // What a person wrote down.
    AsExpected "its story" "what a story expects is seen, and its clients get the answers that it says",
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
