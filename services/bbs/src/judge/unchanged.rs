//! Check of planned commands. A planned command is carried out only if its aggregate has not changed since
//! the plan was made.

use schemas::subject::Subject;
use schemas::{Code, Refusal};

use crate::aggregates::{State, Target};
use crate::command::QueuedCommand;
use crate::scratch::Scratch;

impl Scratch<'_> {
    /// Refuses a command with `if_position` if its aggregate was changed after that position.
    ///
    /// Compare-and-set keeps the result of this check valid until the entry is stored. If another entry
    /// reaches the subject first, the check is repeated.
    pub(super) fn check_unchanged(
        &self,
        queued: &QueuedCommand,
        target: &dyn Target,
        state: &State<'_>,
    ) -> Result<(), Refusal> {
        let Some(planned) = queued.envelope.if_position else { return Ok(()) };
        let here = self.world.position();
        if planned > here {
            let why = format!(
                "this BBS has read the log up to position {here}, but not up to {planned}: try again"
            );
            return Err(Refusal::new(Code::Unavailable, why));
        }
        let (name, subject) = (target.name(), target.subject(self.world.shards()));
        let recorded = state.last_decision.or_else(|| {
            let single = matches!(subject, Subject::Domain(_) | Subject::Cell(_) | Subject::Cluster);
            single.then(|| self.world.last_position(&subject))
        });
        let since = match recorded {
            Some(_) | None if state.decided => "a decision about it is being recorded".to_owned(),
            Some(at) if at <= planned => return Ok(()),
            Some(at) => format!("its last decision is at position {at}"),
            // The World may have forgotten the aggregate.
            None if self.world.forgotten() <= planned => return Ok(()),
            None => {
                let why =
                    format!("it is unknown whether {name} existed after position {planned}: plan again");
                return Err(Refusal::new(Code::ResourceConflict, why));
            }
        };
        let why = format!("{name} has changed since position {planned} ({since}): plan again");
        Err(Refusal::new(Code::ResourceConflict, why))
    }
}
