//! Coverage: the situations that a run met. Seeds that never meet a situation do not test it.

use std::collections::BTreeMap;

/// Declares the situations, each with its text.
macro_rules! situations {
    ($($name:ident $text:literal,)*) => {
        /// Situation that seeds have to meet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Situation {
            $(
                #[doc = $text]
                $name,
            )*
        }

        impl Situation {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns `true` if a few hundred seeds may miss the situation.
            #[must_use]
            pub const fn is_rare(self) -> bool {
                matches!(self, Self::Overtaken | Self::DispatchWithdrawn | Self::Undesired)
            }

            /// Returns the situation as text.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

situations! {
    // Faults.
    AppendUnacknowledged "an append is stored and not acknowledged",
    AppendStoredLate "an append is stored after its sender gave up",
    AppendRepeated "the journal receives an append again",
    KilledBeforeFold "a BBS is killed between append and fold",
    KilledBetween "a service is killed between two effects",
    TwoLeaders "two BBSs lead at once",
    TwoAuctioneers "two auctioneers lead at once",
    StaleTermRefused "a message of a former leader is refused",
    ForgedRefused "a report under the name of another cell is refused",
    Malformed "the log contains a message that is not an entry",
    Resharded "the number of shards changes",
    Overtaken "an entry is stored on a subject of an earlier number of shards",
    StartedFromSnapshot "a service starts from a snapshot of the log",
    ProjectorKilled "a projector is killed between two batches",

    // Cells.
    CellLost "a cell is lost",
    LostTogether "a cell is lost while most cells are silent",
    Cordoned "a cell is cordoned",
    EvacuationFinished "an evacuation moves all instances in time",
    EvacuationTimedOut "a task is ended by the evacuation timeout",
    EvacuationWithdrawn "a cell takes work again after its evacuation was withdrawn",
    EvacuatingReplaced "an evacuating instance is replaced",
    EvacuatingExpired "an evacuating record expires",
    RepAdopted "a restarted rep finds running containers",
    WorkRefused "a rep refuses work",

    // Instances.
    Crowd "two containers of one ActualLRP run at once",
    OrphanAdopted "a container without a record is adopted",
    OlderEpochRefused "a report of an earlier epoch is refused",
    CrashLimit "an instance crashes too often to restart at once",
    Undesired "convergence stops an instance that is not desired",
    Preempted "an instance is preempted",

    // Evaluations.
    EvaluationBlocked "an evaluation is blocked",
    PartlyPlaced "an evaluation completes with a part placed and the rest blocked",
    CauseJoined "another cause joins a pending evaluation",
    RestartDelayed "a restart is delayed",
    BlockedAtRest "work that fits on no cell stays blocked",

    // Rollouts.
    RolledBack "a rollout is rolled back",
    RolloutPaused "a rollout pauses",
    RolloutStalled "an index stalls",

    // Tasks.
    CallRepeated "a callback is repeated",
    LaunchCaughtUp "a missed launch is caught up",
    DispatchWithdrawn "a waiting dispatch is withdrawn",
    DispatchRefused "a dispatch over the concurrency limit is refused",

    // Clients.
    RequestRepeated "a repeated request is answered from memory",
    VersionRefused "a command with an old version is refused",
    PlanOutdated "a planned command is refused because its target has changed",
    IdReused "a reused request id is refused",
    PageRead "a client reads a later page of a list",
    TablesRemember "the SQL tables keep rows that the World has forgotten",
}

/// Number of times that each situation was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<Situation, u64>);

impl Coverage {
    /// Counts a situation.
    pub fn met(&mut self, situation: Situation) {
        *self.0.entry(situation).or_default() += 1;
    }

    /// Returns the number of times that a situation was met.
    #[must_use]
    pub fn count(&self, situation: Situation) -> u64 {
        self.0.get(&situation).copied().unwrap_or_default()
    }

    /// Adds the situations of another run.
    pub fn add(&mut self, other: &Self) {
        for (situation, count) in &other.0 {
            *self.0.entry(*situation).or_default() += count;
        }
    }

    /// Returns the situations that were not met, without the rare ones.
    pub fn missing(&self) -> impl Iterator<Item = Situation> + '_ {
        Situation::ALL.iter().copied().filter(|situation| self.count(*situation) == 0 && !situation.is_rare())
    }
}
