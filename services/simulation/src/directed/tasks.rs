//! Plans for the rows of tasks.

use std::time::Duration;

use rep::reconcile::Holder::{Alpha, Omega};
use rep::reconcile::task::{Container, Task};
use schemas::names::TaskGuid;

use crate::act::Act;
use crate::directed::{ALPHA, BETA, FIRST, OMEGA, Scene};
use crate::work::{Ask, Owner};

impl Scene {
    pub(super) fn task(&mut self, container: Container, record: Task) {
        use Container as C;
        self.stay_away(&[BETA]);
        self.works(container, record);
        let owner = match record {
            Task::Resolving(_) => Owner::Broken,
            Task::Absent | Task::Pending | Task::Running(_) | Task::Completed(_) => Owner::None,
        };
        let (work, queue) = (self.work.clone(), Some(Duration::from_secs(60)));
        self.ask(FIRST, Ask::Run { task: job(), work, owner, queue });
        match (container, record) {
            (C::Reserved, Task::Running(Alpha) | Task::Completed(Alpha) | Task::Resolving(Alpha)) => {
                self.started_unanswered();
            }
            (C::Reserved, _) => self.reserved_task(record),
            (C::None, Task::Completed(_)) => self.stay_away(&[OMEGA]),
            (C::Initializing | C::Created | C::Running | C::Completed, _) | (C::None, Task::Resolving(_)) => {
                self.cut_off_with_task(record);
            }
            (C::None, Task::Absent | Task::Pending | Task::Running(_)) => {
                self.stay_away(&[OMEGA]);
                let away = Some(Duration::from_secs(2));
                self.at(3_500 + self.jitter(), Act::Lose { cell: ALPHA, away });
            }
        }
    }

    /// Sets the duration of the task.
    fn works(&mut self, container: Container, record: Task) {
        let long = Duration::from_secs(100);
        match (container, record) {
            (Container::Initializing, _) => self.work.create = long,
            (Container::Created, _) => self.work.start = long,
            (Container::Running, _) | (Container::Reserved, Task::Running(Omega)) => {
                self.work.run = Some(long);
            }
            (Container::Completed, _) | (Container::None, Task::Resolving(_)) => {
                self.work.run = Some(Duration::from_secs(3));
            }
            (Container::Reserved | Container::None, _) => self.work.run = Some(Duration::from_secs(1)),
        }
    }

    /// Lets the client end a task of ALPHA before the rep learns that it holds the task.
    fn started_unanswered(&mut self) {
        self.stay_away(&[OMEGA]);
        self.hears_no_bbs(ALPHA, FIRST - 20, FIRST + 25_600 + self.jitter());
        self.ask(20_000, Ask::Cancel(job()));
    }

    /// Pauses the rep of ALPHA with the task on its way.
    fn reserved_task(&mut self, record: Task) {
        // The auctioneer sends the task to another cell.
        self.stands_still(ALPHA, FIRST - 50, FIRST + 45_000 + self.jitter());
        match record {
            Task::Absent => {
                self.stay_away(&[OMEGA]);
                self.ask(FIRST + 1_000, Ask::Cancel(job()));
                self.ask(FIRST + 2_000, Ask::Resolve(job()));
            }
            Task::Pending => self.stay_away(&[OMEGA]),
            Task::Running(_) | Task::Completed(_) | Task::Resolving(_) => self.appears(OMEGA, FIRST + 1_000),
        }
    }

    /// Cuts ALPHA off with the task, until ALPHA is lost if the task has to end.
    fn cut_off_with_task(&mut self, record: Task) {
        self.stay_away(&[OMEGA]);
        let back = match record {
            Task::Running(_) | Task::Pending => 10_000,
            Task::Absent | Task::Completed(_) | Task::Resolving(_) => 29_000,
        };
        if record == Task::Absent {
            self.ask(back - 2_000, Ask::Resolve(job()));
        }
        self.blind(ALPHA, 4_000, back + self.jitter());
    }
}

fn job() -> TaskGuid {
    TaskGuid::new("job").expect("a name")
}
