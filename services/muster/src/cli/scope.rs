//! Effect of `--domain` on each command. Every command accepts the option, because the environment and the
//! options file set it for all commands. If the user passes the flag to a command that ignores it, the
//! command is refused.

use super::args::{
    CellVerb, Command, DomainVerb, EvaluationVerb, EventsVerb, Format, Global, InstanceVerb, JournalVerb,
    LrpVerb, OptionSource, ParameterisedVerb, PeriodicVerb, RolloutVerb, TaskVerb,
};
use super::failure::Failure;

/// Effect of the domain option on a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DomainUse {
    /// The command shows only resources of the domain.
    Filters,
    /// The target of the command must belong to the domain.
    Checks,
    /// Items of a file that name no domain get the domain of this option.
    SetsDefault,
    /// No effect.
    None,
}

/// Returns the effect of the domain option on a command.
pub(crate) const fn domain_use(command: &Command) -> DomainUse {
    match command {
        Command::Task(TaskVerb::Run { .. } | TaskVerb::Plan { .. })
        | Command::Periodic(PeriodicVerb::Apply { .. })
        | Command::WhatIf(_)
        | Command::Decide(_) => DomainUse::SetsDefault,
        Command::Lrp(verb) => lrp_domain_use(verb),
        Command::Parameterised(verb) => parameterised_domain_use(verb),
        Command::Evaluation(verb) => evaluation_domain_use(verb),
        Command::Instance(InstanceVerb::List { .. })
        | Command::Task(TaskVerb::List { .. })
        | Command::Periodic(PeriodicVerb::List { .. })
        | Command::Domain(DomainVerb::List { .. })
        | Command::Diff { .. }
        | Command::Watch
        | Command::Top => DomainUse::Filters,
        Command::Instance(
            InstanceVerb::Show { .. }
            | InstanceVerb::Logs { .. }
            | InstanceVerb::Files { .. }
            | InstanceVerb::Exec(_)
            | InstanceVerb::Stop { .. },
        )
        | Command::Task(
            TaskVerb::Show { .. }
            | TaskVerb::Cancel { .. }
            | TaskVerb::Resolve { .. }
            | TaskVerb::Logs { .. },
        )
        | Command::Periodic(
            PeriodicVerb::Show { .. }
            | PeriodicVerb::Pause { .. }
            | PeriodicVerb::Resume { .. }
            | PeriodicVerb::Launch { .. }
            | PeriodicVerb::Remove { .. },
        )
        | Command::Why { .. } => DomainUse::Checks,
        Command::Domain(DomainVerb::Refresh { .. } | DomainVerb::Show { .. } | DomainVerb::Limit { .. })
        | Command::Cell(
            CellVerb::List { .. }
            | CellVerb::Show { .. }
            | CellVerb::Evacuate { .. }
            | CellVerb::Cordon { .. }
            | CellVerb::Uncordon { .. }
            | CellVerb::Forget { .. }
            | CellVerb::AcceptLog { .. },
        )
        | Command::Cluster(_)
        | Command::Status { .. }
        | Command::Doctor(_)
        | Command::Install(_)
        | Command::Events(EventsVerb::Tail { .. } | EventsVerb::List { .. } | EventsVerb::Show { .. })
        | Command::Journal(JournalVerb::SetAside { .. } | JournalVerb::Migrate)
        | Command::Secrets(_)
        | Command::Auth(_)
        | Command::Probe(_)
        | Command::Sql { .. }
        | Command::Projection(_)
        | Command::DeadLetters(_)
        | Command::Reconcile(_)
        | Command::Replay(_)
        | Command::History(_)
        | Command::Trace { .. }
        | Command::Export { .. }
        | Command::Import { .. }
        | Command::Audit(_)
        | Command::Bundle { .. }
        | Command::Schema(_)
        | Command::Completion { .. } => DomainUse::None,
    }
}

const fn lrp_domain_use(verb: &LrpVerb) -> DomainUse {
    match verb {
        LrpVerb::Desire { .. } | LrpVerb::Apply { .. } | LrpVerb::Diff { .. } | LrpVerb::Plan { .. } => {
            DomainUse::SetsDefault
        }
        LrpVerb::List { .. } => DomainUse::Filters,
        LrpVerb::Show { .. }
        | LrpVerb::Scale { .. }
        | LrpVerb::Update { .. }
        | LrpVerb::Activate { .. }
        | LrpVerb::Restart { .. }
        | LrpVerb::Rebalance { .. }
        | LrpVerb::Rollback { .. }
        | LrpVerb::Rollout(
            RolloutVerb::Status { .. }
            | RolloutVerb::Watch { .. }
            | RolloutVerb::Pause { .. }
            | RolloutVerb::Resume { .. }
            | RolloutVerb::Rollback { .. }
            | RolloutVerb::History { .. },
        )
        | LrpVerb::Remove { .. } => DomainUse::Checks,
    }
}

const fn evaluation_domain_use(verb: &EvaluationVerb) -> DomainUse {
    match verb {
        EvaluationVerb::List { .. } | EvaluationVerb::Watch { id: None } => DomainUse::Filters,
        EvaluationVerb::Show { .. }
        | EvaluationVerb::Watch { id: Some(_) }
        | EvaluationVerb::Retry { .. } => DomainUse::Checks,
    }
}

const fn parameterised_domain_use(verb: &ParameterisedVerb) -> DomainUse {
    match verb {
        ParameterisedVerb::Apply { .. } => DomainUse::SetsDefault,
        ParameterisedVerb::List { .. } => DomainUse::Filters,
        ParameterisedVerb::Show { .. }
        | ParameterisedVerb::Dispatch { .. }
        | ParameterisedVerb::Withdraw { .. }
        | ParameterisedVerb::Remove { .. } => DomainUse::Checks,
    }
}

/// Refuses a domain flag that the command ignores, and an output format that the command does not support.
pub(crate) fn check(command: &Command, global: &Global) -> Result<(), Failure> {
    if global.output == Format::Csv && !matches!(command, Command::Sql { .. }) {
        let why = "invalid output format csv: only muster sql supports it; use -o table, json or jsonl";
        return Err(Failure::usage(why));
    }
    let Some(domain) = global.domain.as_ref().filter(|_| global.named.domain == OptionSource::Flag) else {
        return Ok(());
    };
    if domain_use(command) != DomainUse::None {
        return Ok(());
    }
    let failure = Failure::usage(format!("--domain {domain} is not used by this command: leave it out"));
    Err(match command {
        Command::Events(_) => failure.advise(
            "filter events with --about lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID or \
             domain:NAME",
        ),
        Command::Domain(_) => failure.advise("name the domain as an argument: muster domain refresh DOMAIN"),
        Command::Lrp(_)
        | Command::Instance(_)
        | Command::Task(_)
        | Command::Periodic(_)
        | Command::Parameterised(_)
        | Command::Cell(_)
        | Command::Cluster(_)
        | Command::Status { .. }
        | Command::Doctor(_)
        | Command::Install(_)
        | Command::Evaluation(_)
        | Command::Journal(_)
        | Command::Secrets(_)
        | Command::Auth(_)
        | Command::Probe(_)
        | Command::History(_)
        | Command::Watch
        | Command::Top
        | Command::Why { .. }
        | Command::Diff { .. }
        | Command::WhatIf(_)
        | Command::Decide(_)
        | Command::Reconcile(_)
        | Command::Replay(_)
        | Command::Sql { .. }
        | Command::Projection(_)
        | Command::DeadLetters(_)
        | Command::Trace { .. }
        | Command::Export { .. }
        | Command::Import { .. }
        | Command::Audit(_)
        | Command::Bundle { .. }
        | Command::Schema(_)
        | Command::Completion { .. } => failure,
    })
}
