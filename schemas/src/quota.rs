//! Quotas of domains (docs/internals/model/domains-and-quotas.md, "Quotas").

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::Domain;
use crate::refusal::{BadField, Code, Refusal};
use crate::request;
use crate::verb::OperatorVerb;

/// Definition of one quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Name of the field of this quota in [`Quotas`].
    pub name: &'static str,
    /// Value for a domain whose quotas no operator has set. Each default is far above what applications and
    /// their pipelines use.
    pub default: u32,
    /// Usage that the quota limits, as a phrase.
    pub limits: &'static str,
}

/// Limit on desired instances.
pub const INSTANCES: Quota = Quota {
    name: "instances",
    default: 20_000,
    limits: "desired instances of all processes; a global process has one instance on each of its cells",
};
/// Limit on the number of processes and tasks.
pub const PROCESSES_AND_TASKS: Quota = Quota {
    name: "processes_and_tasks",
    default: 10_000,
    limits: "desired processes, tasks that are not deleted, periodic tasks and parameterised tasks, counted together",
};
/// Limit on the command rate.
pub const COMMANDS_PER_SECOND: Quota = Quota {
    name: "commands_per_second",
    default: 2_000,
    limits: "commands per second of all clients together, averaged over ten seconds",
};
/// Limit on programs that clients run in containers.
pub const EXEC_SESSIONS: Quota = Quota {
    name: "exec_sessions",
    default: 50,
    limits: "programs that `instance exec` runs at the same time on one cell",
};
/// Definitions of the quotas, in the order of the fields of [`Quotas`].
pub const ALL: [Quota; 4] = [INSTANCES, PROCESSES_AND_TASKS, COMMANDS_PER_SECOND, EXEC_SESSIONS];

/// Quotas of a domain. A quota limits growth: if a quota is set below the present use, nothing is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quotas {
    /// Desired instances of all processes.
    pub instances: u32,
    /// Desired processes, tasks that are not deleted, periodic tasks and parameterised tasks, counted together.
    pub processes_and_tasks: u32,
    /// Commands per second of all clients together, averaged over ten seconds.
    pub commands_per_second: u32,
    /// Programs that `instance exec` runs at the same time on one cell.
    pub exec_sessions: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            instances: INSTANCES.default,
            processes_and_tasks: PROCESSES_AND_TASKS.default,
            commands_per_second: COMMANDS_PER_SECOND.default,
            exec_sessions: EXEC_SESSIONS.default,
        }
    }
}

/// Usage of a domain that its quotas limit and that the log determines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Desired instances of all processes. A global process has one instance on each of its cells.
    pub instances: u64,
    /// Desired processes, tasks that are not deleted, periodic tasks and parameterised tasks, counted together.
    pub processes_and_tasks: u64,
}

/// An operator's command that changes quotas of a domain. Quotas that are left out keep their values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitDomain {
    /// Domain whose quotas are changed.
    pub domain: Domain,
    /// Desired instances of all processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<u32>,
    /// Desired processes, tasks that are not deleted, periodic tasks and parameterised tasks, counted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes_and_tasks: Option<u32>,
    /// Commands per second of all clients together, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands_per_second: Option<u32>,
    /// Programs that `instance exec` runs at the same time on one cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_sessions: Option<u32>,
}

impl LimitDomain {
    /// Returns the digest of the command. A repeated request is recognised by this digest.
    #[must_use]
    pub fn digest(&self) -> String {
        request::digest(OperatorVerb::DomainLimit.noun_and_verb(), self)
    }

    /// Returns the quotas of the domain after this command, if it had `quotas` before.
    ///
    /// # Errors
    /// `InvalidRequest` if the new quotas would not allow the domain to send any command.
    pub fn apply(&self, quotas: Quotas) -> Result<Quotas, Refusal> {
        if self.commands_per_second == Some(0) {
            let (field, problem) = ("body.commands_per_second".to_owned(), "must be at least 1".to_owned());
            return Err(Refusal::invalid(vec![BadField { field, problem }]));
        }
        Ok(Quotas {
            instances: self.instances.unwrap_or(quotas.instances),
            processes_and_tasks: self.processes_and_tasks.unwrap_or(quotas.processes_and_tasks),
            commands_per_second: self.commands_per_second.unwrap_or(quotas.commands_per_second),
            exec_sessions: self.exec_sessions.unwrap_or(quotas.exec_sessions),
        })
    }
}

impl Usage {
    /// Returns the sum of both usages.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            instances: self.instances + other.instances,
            processes_and_tasks: self.processes_and_tasks + other.processes_and_tasks,
        }
    }

    /// Returns the usage that remains without `other`, which is a part of this usage.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            instances: self.instances.saturating_sub(other.instances),
            processes_and_tasks: self.processes_and_tasks.saturating_sub(other.processes_and_tasks),
        }
    }

    /// Returns `true` if nothing is used.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.instances == 0 && self.processes_and_tasks == 0
    }
}

impl Quota {
    /// Returns the message for a domain that would exceed `limit`.
    #[must_use]
    pub fn exceeded(self, domain: &Domain, limit: u32, detail: &str) -> String {
        let (name, option) = (self.name, self.name.replace('_', "-"));
        format!(
            "quota {name} of domain {domain} is {limit}: {detail}; an operator may raise it: muster domain limit {domain} --{option} N"
        )
    }
}

impl Quotas {
    /// Checks that a domain with the usage `used` may add the usage `more`.
    ///
    /// # Errors
    /// `QuotaExceeded`, with the quota, its value, and the usage.
    pub fn admit(self, domain: &Domain, used: Usage, more: Usage) -> Result<(), Refusal> {
        let checked = [
            (INSTANCES, self.instances, used.instances, more.instances),
            (
                PROCESSES_AND_TASKS,
                self.processes_and_tasks,
                used.processes_and_tasks,
                more.processes_and_tasks,
            ),
        ];
        for (quota, limit, used, more) in checked {
            if more > 0 && used + more > u64::from(limit) {
                let why =
                    quota.exceeded(domain, limit, &format!("{used} are used and {more} more were requested"));
                return Err(Refusal::new(Code::QuotaExceeded, why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_refuses_growth_beyond_it_and_nothing_else() {
        let domain = Domain::new("shop").unwrap();
        let quotas = Quotas { instances: 10, processes_and_tasks: 3, ..Quotas::default() };
        let usage = |instances, processes_and_tasks| Usage { instances, processes_and_tasks };
        let cases = [
            // Below and at the quota.
            (usage(8, 2), usage(1, 1), None),
            (usage(9, 2), usage(1, 1), None),
            (usage(9, 2), usage(2, 0), Some("quota instances of domain shop is 10: 9 are used and 2 more")),
            (
                usage(9, 3),
                usage(0, 1),
                Some("quota processes_and_tasks of domain shop is 3: 3 are used and 1"),
            ),
            // Above the quota, which was lowered.
            (usage(90, 2), usage(0, 1), None),
            (usage(90, 2), usage(1, 0), Some("quota instances of domain shop is 10: 90 are used")),
            (usage(90, 90), usage(0, 0), None),
        ];
        for (used, more, expected) in cases {
            match (quotas.admit(&domain, used, more), expected) {
                (Ok(()), None) => {}
                (Err(refusal), Some(text)) => {
                    assert!(
                        refusal.code == Code::QuotaExceeded && refusal.message.contains(text),
                        "{refusal}"
                    );
                }
                (other, _) => panic!("{used:?} and {more:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn limit_changes_only_the_quotas_that_it_names() {
        let order = LimitDomain {
            domain: Domain::new("shop").unwrap(),
            instances: Some(5),
            processes_and_tasks: None,
            commands_per_second: None,
            exec_sessions: Some(0),
        };
        let expected = Quotas { instances: 5, exec_sessions: 0, ..Quotas::default() };
        assert_eq!(order.apply(Quotas::default()), Ok(expected));
        let order = LimitDomain { commands_per_second: Some(0), ..order };
        assert_eq!(order.apply(Quotas::default()).unwrap_err().code, Code::InvalidRequest);
    }

    #[test]
    fn table_of_quotas_has_the_fields_and_defaults_of_the_type() {
        let defaults = serde_json::to_value(Quotas::default()).unwrap();
        let table = ALL.map(|quota| (quota.name.to_owned(), quota.default.into()));
        assert_eq!(defaults, serde_json::Value::Object(table.into_iter().collect()));
    }
}
