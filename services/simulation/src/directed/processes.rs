//! Plans for the rows of processes.

use std::time::Duration;

use rep::reconcile::Holder::{Alpha, Omega};
use rep::reconcile::evacuation::{EvacuatingLrp, Instance};
use rep::reconcile::lrp;

use crate::act::Act;
use crate::directed::{ALPHA, BETA, FIRST, OMEGA, Scene, web};
use crate::work::Ask;

/// Container of ALPHA, and the records.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) container: lrp::Container,
    pub(super) instance: Instance,
    pub(super) twin: EvacuatingLrp,
    /// `true` if ALPHA evacuates.
    pub(super) evacuates: bool,
}

impl Scene {
    pub(super) fn process(&mut self, case: Case) {
        use lrp::Container as C;
        match (case.container, case.twin) {
            (C::Reserved, _) => self.reserved(case),
            (C::Initializing | C::Created, _) => self.starting(case),
            (C::Running | C::Crashed | C::Shutdown, EvacuatingLrp::Absent) => self.started_alone(case),
            (C::Running | C::Crashed | C::Shutdown, EvacuatingLrp::Alpha) => {
                self.started_and_evacuating(case);
            }
            (C::Running | C::Crashed | C::Shutdown, EvacuatingLrp::Beta) => self.started_before_beta(case),
            (C::None, _) => self.nothing(case.instance),
        }
    }

    // ---- RESERVED ------------------------------------------------------------------------------------------------

    /// Pauses the rep of ALPHA with work on its way, which other cells get then.
    fn reserved(&mut self, case: Case) {
        let from_beta = case.twin != EvacuatingLrp::Absent;
        let given = match (from_beta, case.instance) {
            (false, _) => FIRST,
            (true, Instance::Running(Omega)) => 30_000,
            (true, _) => 12_000,
        };
        if given == 30_000 {
            self.work.start = Duration::from_secs(5);
        }
        self.desire(FIRST);
        if from_beta {
            self.appears(ALPHA, given - 5_000);
            self.evacuates(BETA, given);
        } else {
            self.stay_away(&[BETA]);
        }
        match (case.instance, case.evacuates) {
            (Instance::Unclaimed, true) if !from_beta => {
                self.stay_away(&[OMEGA]);
                self.leaves_unheard(ALPHA, given - 20, given + 10_000);
            }
            (Instance::Unclaimed | Instance::Unplaced, true) => self.given_back(case.instance, given),
            (Instance::Running(Omega), true) if from_beta => self.gets_behind_omega(given),
            (_, _) => {
                self.gets_nothing(case.evacuates, given);
                self.becomes(case, given + 2_200, given + 10_000);
            }
        }
    }

    /// ALPHA receives work that another cell has. If ALPHA evacuates, the order arrives between its claim and
    /// the answer, because an evacuating rep prepares no containers.
    fn gets_nothing(&mut self, evacuates: bool, given: u64) {
        let back = given + 10_000 + self.jitter();
        self.stands_still(ALPHA, given - 50, back);
        if evacuates {
            self.delay_ms = 60;
            self.evacuates(ALPHA, back - 60 + self.attempt * 5);
        }
    }

    /// OMEGA is lost before its container runs, and reports the container when BETA evacuates.
    fn gets_behind_omega(&mut self, given: u64) {
        self.dies(OMEGA, 5_000, given + 3_000);
        self.appears(BETA, 12_000);
        self.no_auctions(given + 1_000, given + 30_000);
        self.blind(BETA, given + 800, given + 30_000);
        self.gets_nothing(true, given);
    }

    /// ALPHA is paused until the auctioneer sends its work to OMEGA, which unclaims it. The first claim of
    /// ALPHA is refused because ALPHA was lost. The order to evacuate overtakes the answer to the second
    /// claim.
    fn given_back(&mut self, instance: Instance, given: u64) {
        let back = given + 42_000;
        self.stands_still(ALPHA, given - 50, back);
        self.appears(OMEGA, given + 8_000);
        self.slow(OMEGA, given + 18_000);
        self.evacuates(OMEGA, given + 36_000);
        if instance == Instance::Unclaimed {
            self.no_auctions(given + 35_500, given + 60_000);
        }
        self.delay_ms = 60;
        self.evacuates(ALPHA, back + 900 + self.attempt * 11);
    }

    // ---- INITIALIZING and CREATED ----------------------------------------------------------------------------------

    /// Cuts ALPHA off with a container that starts slowly.
    fn starting(&mut self, case: Case) {
        let long = Duration::from_secs(80);
        if case.container == lrp::Container::Initializing {
            self.work.create = long;
        } else {
            self.work.start = long;
        }
        self.desire(FIRST);
        match (case.instance, case.twin) {
            (Instance::Running(Omega), EvacuatingLrp::Absent) => {
                // OMEGA is lost before its container runs, and comes back then.
                self.stay_away(&[BETA]);
                self.appears(ALPHA, 6_000);
                self.dies(OMEGA, 5_000, 86_000);
                if case.evacuates {
                    self.leaves_unheard(ALPHA, 90_000 + self.jitter(), 93_700);
                } else {
                    self.blind(ALPHA, 85_000, 95_500);
                }
            }
            (Instance::Claimed(Alpha), EvacuatingLrp::Absent) => {
                self.stay_away(&[BETA, OMEGA]);
                if case.evacuates {
                    self.evacuates(ALPHA, 8_000 + self.jitter());
                }
            }
            (_, EvacuatingLrp::Absent) => {
                self.stay_away(&[BETA]);
                let back = 29_500 + self.jitter();
                self.becomes(case, 14_500, back);
                self.away(case.evacuates, 4_500, back);
            }
            (Instance::Running(Omega), EvacuatingLrp::Alpha | EvacuatingLrp::Beta) => {
                // OMEGA is lost first, and BETA later.
                self.appears(BETA, 12_000);
                self.appears(ALPHA, 30_000);
                self.dies(OMEGA, 5_000, 109_000);
                self.dies(BETA, 24_000, 104_000);
                self.no_auctions(107_000, 160_000);
                self.evacuates(BETA, 108_000);
                self.blind(BETA, 108_500, 130_000);
                self.leaves_unheard(ALPHA, 110_500 + self.jitter(), 114_000);
            }
            (Instance::Claimed(Alpha), EvacuatingLrp::Alpha | EvacuatingLrp::Beta) => {
                self.stay_away(&[OMEGA]);
                self.appears(ALPHA, 70_000);
                self.evacuates(BETA, 85_000);
                self.evacuates(ALPHA, 90_000 + self.jitter());
            }
            (_, EvacuatingLrp::Alpha | EvacuatingLrp::Beta) => {
                self.appears(ALPHA, 12_000);
                self.blind(BETA, 5_000, 86_000);
                self.evacuates(BETA, 91_000);
                self.blind(BETA, 91_100, 104_000);
                self.becomes(case, 91_000, 97_500);
                self.leaves_unheard(ALPHA, 92_000 + self.jitter(), 95_700);
            }
        }
    }

    // ---- RUNNING and COMPLETED -----------------------------------------------------------------------------------

    /// Lets the container run on, crash or stop after its start.
    fn ends(&mut self, container: lrp::Container, run: u64, stop_at: u64) {
        match container {
            lrp::Container::Crashed => {
                self.work.run = Some(Duration::from_millis(run));
                self.work.exit = 1;
            }
            lrp::Container::Shutdown => {
                self.work.ignores_term = true;
                self.ask(stop_at, Ask::Retire(web(), 0));
            }
            lrp::Container::Running
            | lrp::Container::Reserved
            | lrp::Container::Initializing
            | lrp::Container::Created
            | lrp::Container::None => {}
        }
    }

    /// Cuts ALPHA off until it is lost. It evacuates before it has polled, if at all.
    fn lost_with(&mut self, container: lrp::Container, evacuates: bool) {
        self.ends(container, 20_500, 4_430);
        self.blind(ALPHA, 4_500, if evacuates { 24_500 } else { 30_000 });
        if evacuates {
            self.evacuates(ALPHA, 28_000 + self.jitter());
        }
    }

    fn away(&mut self, evacuates: bool, from: u64, until: u64) {
        if evacuates { self.leaves_unheard(ALPHA, from, until) } else { self.blind(ALPHA, from, until) }
    }

    fn started_alone(&mut self, case: Case) {
        self.stay_away(&[BETA]);
        match case.instance {
            Instance::Claimed(Alpha) => {
                self.stay_away(&[OMEGA]);
                self.work.start = Duration::from_secs(3);
                self.ends(case.container, 1_000, 4_900);
                self.away(case.evacuates, 5_000, 12_000 + self.jitter());
            }
            Instance::Running(Alpha) => {
                self.stay_away(&[OMEGA]);
                self.ends(case.container, 3_000, 4_400);
                self.away(case.evacuates, 4_500, 11_000 + self.jitter());
            }
            Instance::Absent
            | Instance::Unclaimed
            | Instance::Unplaced
            | Instance::Claimed(Omega)
            | Instance::Running(Omega)
            | Instance::Crashed => {
                self.lost_with(case.container, case.evacuates);
                self.becomes(case, 14_500, 30_000);
            }
        }
        self.desire(FIRST);
    }

    fn started_and_evacuating(&mut self, case: Case) {
        self.stay_away(&[BETA]);
        match case.instance {
            Instance::Running(Omega) => {
                // OMEGA is lost before its container runs, and reports the container while ALPHA is cut off.
                self.work.start = Duration::from_secs(5);
                self.ends(case.container, 6_000, 28_900);
                self.slow(OMEGA, 3_500);
                self.appears(ALPHA, 12_000);
                self.blind(OMEGA, 5_000, 30_200);
                self.no_auctions(28_500, 80_000);
                self.evacuates(ALPHA, 29_000);
                self.blind(ALPHA, 29_600, 34_000 + self.jitter());
            }
            Instance::Claimed(Alpha) | Instance::Running(Alpha) => {
                self.stay_away(&[OMEGA]);
                self.ends(case.container, 9_000, 8_900);
                self.no_auctions(5_800, 60_000);
                self.evacuates(ALPHA, 6_000);
                self.at(8_000, Act::Uncordon(ALPHA));
                self.leaves_unheard(ALPHA, 9_000 + self.jitter(), 16_000);
            }
            Instance::Absent
            | Instance::Unclaimed
            | Instance::Unplaced
            | Instance::Claimed(Omega)
            | Instance::Crashed => {
                self.ends(case.container, 12_000, 5_950);
                self.becomes(case, 6_000, 12_000);
                self.evacuates(ALPHA, 6_000);
                self.blind(ALPHA, 6_300, 14_000 + self.jitter());
            }
        }
        self.desire(FIRST);
    }

    fn started_before_beta(&mut self, case: Case) {
        match case.instance {
            Instance::Claimed(Alpha) => {
                self.stay_away(&[OMEGA]);
                self.work.start = Duration::from_secs(3);
                self.ends(case.container, 20_000, 13_400);
                self.appears(ALPHA, 10_000);
                self.evacuates(BETA, 12_000);
                self.leaves_unheard(ALPHA, 13_500 + self.jitter(), 40_000);
            }
            Instance::Running(Alpha) => {
                // OMEGA is lost, and comes back when BETA evacuates the replacement.
                self.stay_away(&[OMEGA]);
                self.ends(case.container, 33_000, 33_900);
                self.appears(BETA, 15_000);
                self.blind(ALPHA, 4_500, 28_000);
                self.no_auctions(25_500, 90_000);
                self.evacuates(BETA, 26_000);
                self.blind(BETA, 31_000, 60_000);
                self.leaves_unheard(ALPHA, 34_000 + self.jitter(), 42_000);
            }
            Instance::Running(Omega) => {
                // ALPHA is lost, then OMEGA before its container runs. OMEGA comes back when BETA evacuates.
                self.work.start = Duration::from_secs(3);
                self.ends(case.container, 39_400, 6_950);
                self.blind(ALPHA, 7_000, 46_700);
                self.appears(OMEGA, 18_000);
                self.dies(OMEGA, 25_200, 46_000);
                self.appears(BETA, 33_000);
                self.no_auctions(44_500, 90_000);
                self.evacuates(BETA, 44_700);
                self.blind(BETA, 45_300, 80_000);
                self.evacuates(ALPHA, 48_000 + self.jitter());
            }
            Instance::Absent
            | Instance::Unclaimed
            | Instance::Unplaced
            | Instance::Claimed(Omega)
            | Instance::Crashed => {
                self.lost_with(case.container, true);
                self.appears(BETA, 15_000);
                self.evacuates(BETA, 23_000);
                self.blind(BETA, 23_600, 60_000);
                self.becomes(case, 23_000, 30_000);
            }
        }
        self.desire(FIRST);
    }

    // ---- no container --------------------------------------------------------------------------------------------

    /// Lets the machine of ALPHA die with its containers.
    fn nothing(&mut self, instance: Instance) {
        self.stay_away(&[BETA, OMEGA]);
        if instance == Instance::Claimed(Alpha) {
            self.work.create = Duration::from_secs(60);
        }
        self.desire(FIRST);
        self.at(5_000 + self.jitter(), Act::Lose { cell: ALPHA, away: Some(Duration::from_secs(2)) });
    }

    // ---- the records ---------------------------------------------------------------------------------------------

    /// Determines the fate of an instance of ALPHA.
    fn becomes(&mut self, case: Case, from: u64, until: u64) {
        match case.instance {
            Instance::Absent => {
                self.stay_away(&[OMEGA]);
                self.no_auctions(from, until + 30_000);
                let gone = if case.twin == EvacuatingLrp::Beta { 3_300 } else { 7_000 };
                self.ask(from + gone, Ask::Remove(web()));
            }
            Instance::Unclaimed => {
                self.stay_away(&[OMEGA]);
                self.no_auctions(from - 200, until + 30_000);
            }
            Instance::Unplaced => self.stay_away(&[OMEGA]),
            Instance::Claimed(Omega) => {
                self.appears(OMEGA, from - 2_000);
                self.slow(OMEGA, from - 300);
            }
            Instance::Running(Omega) => self.appears(OMEGA, from - 2_000),
            Instance::Crashed => {
                self.appears(OMEGA, from - 2_000);
                self.sick(OMEGA, from - 300);
            }
            // No other cell gets the instance.
            Instance::Claimed(Alpha) | Instance::Running(Alpha) => self.stay_away(&[OMEGA]),
        }
    }
}
