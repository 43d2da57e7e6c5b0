//! The invariants that every run checks.

use std::fmt;

/// Declares the invariants: name, source, and text.
macro_rules! invariants {
    ($($name:ident $source:literal $text:literal,)*) => {
        /// Property that must hold in every run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Invariant {
            $(
                #[doc = $text]
                $name,
            )*
        }

        impl Invariant {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// Returns the document and the section that define the invariant.
            #[must_use]
            pub const fn source(self) -> &'static str {
                match self {
                    $(Self::$name => $source,)*
                }
            }

            /// Returns the invariant as a sentence.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

invariants! {
    // The log.
    NothingTwice "docs/internals/journal.md, Entries" "each entry is in the log once",
    CompareAndSet "docs/internals/journal.md, Writes" "an entry is stored only if its subject ends where its writer expected",
    LogKept "docs/internals/journal.md, Server" "entries in the log stay there",
    LegalLog "docs/guides/verify-the-log.md, Findings" "an audit of the log has no finding",
    ConsistentWorld "docs/guides/verify-the-log.md, Findings" "counts and indexes equal the records, records fit each other, and waiting work has an open evaluation",
    OnePicture "docs/internals/architecture.md, Invariants" "every service folds the log to the World of the reference fold, and none halts at an entry",
    CausesTrue "docs/internals/model/evaluations.md, Causes" "the cause of a decision is about the same aggregate, one of its cells, its preemptor or its launcher",
    OnlyLeadersDecide "docs/internals/model/leadership-and-requests.md, Leadership" "a service decides only while it leads in the log that it knows",
    LedAgain "docs/internals/model/leadership-and-requests.md, Leadership" "if no fault hinders the BBSs, one of them leads within 15 s",
    OnePassFinds "SwarmKit orchestrators, Initialization" "after the first convergence pass of a new leader, a second pass emits nothing",
    NothingOverdue "docs/internals/model/timers-and-clocks.md, Timers" "an undisturbed leader decides due work in time",

    // Requests of clients.
    RequestOnce "docs/internals/model/leadership-and-requests.md, Requests" "a request is carried out once, before its deadline, and in the name of its client",
    ClientsInOrder "docs/internals/model/leadership-and-requests.md, Ordering and quiescence" "commands of one client about one aggregate are carried out in the order of their arrival",
    DomainsApart "docs/internals/message-bus.md, Message bus" "a client changes nothing in another domain",
    AsPlanned "docs/reference/nats-api.md, Envelope" "a command that expects a version or a position is carried out only if its target has not changed since",
    ToldTrue "docs/internals/journal.md, Writes" "an acknowledged command is in the log, and a refused command is not",
    JudgedAfterTold "docs/internals/model/leadership-and-requests.md, Requests" "a command is judged on a log that contains every earlier acknowledgement about its target",
    ReadsOwnWrites "docs/internals/message-bus.md, Message bus" "the answer to a query is at least as new as the position that the client requested",
    QueriesTrue "docs/reference/queries.md, Queries" "the answer to a query equals the answer from the reference World at the same position",
    TablesTrue "docs/reference/sql-tables.md, History" "the rows of the SQL tables as of any position equal the rows of the reference World",

    // Processes.
    OneContainer "Diego Dev Notes, ActualLRPs" "a container gets a record only from its present cell, in its own epoch, and between its start and its end",
    NoCrowd "Diego Dev Notes, ActualLRPs" "more than two containers of one ActualLRP run only until the cells have compared their containers with the log",
    CrashCounted "Diego Dev Notes, Crashes" "only an ended container crashes, and an immediate restart is one decision with its crash",
    StopHasCause "Diego Dev Notes, Stopping ActualLRPs" "an instance is stopped or removed exactly if it is no longer desired, ended, or is replaced",
    CellsLost "docs/internals/model/cells.md, Cells" "a cell and its instances are lost exactly if the cell was silent for long enough and did not answer a probe",
    Evacuation "Diego Dev Notes, Evacuation" "an evacuating cell takes no work, keeps each instance until its replacement runs or its time is over, and leaves nothing behind",
    StaleStopsNothing "Diego Dev Notes, Harmonizing DesiredLRPs with ActualLRPs: Convergence" "convergence stops nothing while the domain is not fresh, and a domain is fresh for as long as a client set",

    // Tasks.
    TaskOnce "Diego Dev Notes, Tasks" "the action of a task starts at most once",
    OutcomeTrue "Diego Dev Notes, Task Lifecycle" "the outcome of a task is the result of its container, or the reason why it has none",
    OwnerCalled "Diego Dev Notes, Resolving Completed Tasks" "the owner of a completed task is called with its outcome until the owner answers",
    LaunchedOnce "docs/internals/model/periodic-tasks.md, Periodic tasks" "a launch is due, happens once and not beside a forbidden overlap, and desires its task in the same entry",
    DispatchedOnce "docs/internals/model/parameterised-tasks.md, Parameterised tasks" "a dispatch becomes one task within the concurrency limit, or is withdrawn",

    // Cells.
    ClaimedBeforeRun "Diego Dev Notes, Starting ActualLRPs" "a container starts only for work that the log claims for it",
    CellHolds "Diego Dev Notes, Communicating Fullness" "the containers of a cell never use more than its resources",
    LiveKept "Diego Dev Notes, Harmonizing ActualLRPs with Container State: Rep" "a rep deletes a live container only after an answer of a BBS, and never the RUNNING container of an index",
    StaleTermHarmless "docs/internals/model/leadership-and-requests.md, Leadership" "a rep refuses work of an auctioneer with an earlier term than it knows",
    SeesBeforePlacing "Diego Dev Notes, Distributing ActualLRPs: Auctioneer" "a new auctioneer places work only after every present cell has reported its state, or after a heartbeat interval",

    // At rest.
    Quiet "docs/internals/model/leadership-and-requests.md, Ordering and quiescence" "the cluster comes to rest with one leader of each role and all live cells present",
    NothingKept "docs/internals/architecture.md, Invariants" "queues and counters return to zero, and memory is bounded by existing things",
    NoHotLoop "docs/internals/model/timers-and-clocks.md, Timers" "a service repeats an effect no more often than its interval or backoff allows",
    DesiredIsActual "Diego Dev Notes, Harmonizing DesiredLRPs with ActualLRPs: Convergence" "desired equals actual, index by index",
    NothingLeaks "Diego Dev Notes, Harmonizing ActualLRPs with Container State: Rep" "every container has a record, and used resources equal the containers",
    NoIdleRoom "Diego Dev Notes, Distributing ActualLRPs: Auctioneer" "no work waits while a cell has room for it",
    WorkEnds "Updatable LRPs, UpdateLRPDeployment" "every task and every rollout to a working definition ends",
    AsAsked "Diego Dev Notes, DesiredLRPs" "the desired processes are those of the acknowledged commands",

    // Stories.
    AsExpected "tests/stories/README.md, Stories" "the expectations of a story are met, and its clients get the expected answers",
}

/// Violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: Invariant,
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, detail } = self;
        write!(f, "{} ({}): {detail}", invariant.name(), invariant.text())
    }
}
