//! What `--domain` means to each command. It may stand with every command, since the environment and the file with
//! options name it for all; given as a flag where it would change nothing, it is refused.

use super::args::{
    Cell, Cluster, Command, DomainVerb, Evaluation, Events, Global, Instance, Journal, Lrp, Strength, Task,
};
use super::failure::Failure;

/// What a command does with the domain that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DomainUse {
    /// It shows only what is of the domain.
    Filters,
    /// What it is about is of the domain, or there is no such thing.
    Checks,
    /// What a file says of no domain is of this one.
    Fills,
    /// Nothing.
    None,
}

/// What a command does with the domain that was named.
pub(crate) const fn domain_use(command: &Command) -> DomainUse {
    match command {
        Command::Lrp(Lrp::Desire { .. } | Lrp::Diff { .. }) | Command::Task(Task::Run { .. }) => {
            DomainUse::Fills
        }
        Command::Lrp(Lrp::List)
        | Command::Instance(Instance::List { .. })
        | Command::Task(Task::List)
        | Command::Domain(DomainVerb::List)
        | Command::Evaluation(Evaluation::List { .. })
        | Command::Watch => DomainUse::Filters,
        Command::Lrp(Lrp::Show { .. } | Lrp::Scale { .. } | Lrp::Update { .. } | Lrp::Remove { .. })
        | Command::Instance(Instance::Show { .. } | Instance::Logs { .. } | Instance::Stop { .. })
        | Command::Task(Task::Show { .. } | Task::Cancel { .. } | Task::Resolve { .. } | Task::Logs { .. })
        | Command::Evaluation(Evaluation::Show { .. })
        | Command::Why { .. } => DomainUse::Checks,
        Command::Domain(DomainVerb::Refresh { .. })
        | Command::Cell(
            Cell::List
            | Cell::Show { .. }
            | Cell::Evacuate { .. }
            | Cell::Uncordon { .. }
            | Cell::Forget { .. },
        )
        | Command::Cluster(Cluster::Show)
        | Command::Events(Events::Tail { .. } | Events::List { .. } | Events::Show { .. })
        | Command::Journal(Journal::SetAside { .. })
        | Command::History(_)
        | Command::Completion { .. } => DomainUse::None,
    }
}

/// Refuses a domain that was given as a flag to a command that it means nothing to.
pub(crate) fn check(command: &Command, global: &Global) -> Result<(), Failure> {
    let Some(domain) = global.domain.as_ref().filter(|_| global.named.domain == Strength::Flag) else {
        return Ok(());
    };
    if domain_use(command) != DomainUse::None {
        return Ok(());
    }
    let failure = Failure::usage(format!("--domain {domain} means nothing to this command: leave it out"));
    Err(match command {
        Command::Events(_) => {
            failure.advise("events are narrowed by --about lrp:GUID, task:GUID, cell:ID or domain:NAME")
        }
        Command::Domain(_) => failure.advise("the domain that is refreshed stands behind the command"),
        Command::Lrp(_)
        | Command::Instance(_)
        | Command::Task(_)
        | Command::Cell(_)
        | Command::Cluster(_)
        | Command::Evaluation(_)
        | Command::Journal(_)
        | Command::History(_)
        | Command::Watch
        | Command::Why { .. }
        | Command::Completion { .. } => failure,
    })
}
