//! Read scopes. A read scope is the set of domains whose environments a caller may read. Environments here
//! include the values of environment variables, and the URLs of callbacks and downloads. An environment is
//! visible only to callers whose read scope includes its domain. Every caller may read the rest of the
//! desired state (docs/reference/permissions.md, "Read scope").

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::action::{Action, Sealed, Secret, Variable};
use crate::definition::{Definition, Sandbox, TaskDefinition};
use crate::entry::{Aggregate, Entry, Event};
use crate::names::Domain;
use crate::secret::{ActionValue, visit_values};
use crate::{desired, parameterised, periodic, task};

/// Key name for a value that exists but is not shown.
pub const HIDDEN_KEY: &str = "hidden";

/// Read scope: the domains whose environments a caller may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadScope {
    /// Every domain.
    Everything,
    /// One domain.
    Domain(Domain),
    /// No domain.
    Nothing,
}

impl ReadScope {
    /// Returns `true` if the scope includes a domain.
    #[must_use]
    pub fn includes(&self, domain: &Domain) -> bool {
        match self {
            Self::Everything => true,
            Self::Domain(own) => own == domain,
            Self::Nothing => false,
        }
    }

    /// Hides the values in a process's definition unless the read scope includes `domain`.
    pub fn redact_definition(&self, domain: &Domain, definition: &mut Definition) {
        if !self.includes(domain) {
            hide_definition(definition);
        }
    }

    /// Hides the values in a task's definition unless the read scope includes `domain`.
    pub fn redact_task(&self, domain: &Domain, definition: &mut TaskDefinition) {
        if !self.includes(domain) {
            hide_task(definition);
        }
    }

    /// Hides the values of an entry that belong to domains outside of the read scope.
    pub fn redact_entry(&self, entry: &mut Entry) {
        for decision in &mut entry.decisions {
            if let Some(domain) = domain_of(&decision.aggregate)
                && !self.includes(domain)
            {
                decision.events.iter_mut().for_each(hide_event);
            }
        }
    }

    /// Hides the values of a shared entry that belong to domains outside of the read scope. Copies the entry
    /// only if it contains such values.
    #[must_use]
    pub fn redact_shared_entry(&self, entry: Arc<Entry>) -> Arc<Entry> {
        let hides = entry.decisions.iter().any(|decision| {
            domain_of(&decision.aggregate).is_some_and(|domain| !self.includes(domain))
                && decision.events.iter().any(has_hideable_values)
        });
        if !hides {
            return entry;
        }
        let mut copy = Entry::clone(&entry);
        self.redact_entry(&mut copy);
        Arc::new(copy)
    }
}

/// Returns the domain of an aggregate. `None` if the aggregate has neither a domain nor an environment.
const fn domain_of(aggregate: &Aggregate) -> Option<&Domain> {
    match aggregate {
        Aggregate::Process { domain, .. }
        | Aggregate::Task { domain, .. }
        | Aggregate::Periodic { domain, .. }
        | Aggregate::Parameterised { domain, .. } => Some(domain),
        Aggregate::Domain(_) | Aggregate::Cell(_) | Aggregate::Cluster => None,
    }
}

fn hide(value: &mut Secret) {
    match value {
        Secret::Plain(_) | Secret::Open(_) => {
            *value = Secret::Sealed(Box::new(Sealed { key: HIDDEN_KEY.to_owned(), data: String::new() }));
        }
        // A sealed value is unreadable without its key.
        Secret::Sealed(_) => {}
    }
}

fn hide_action(action: &mut Action) {
    visit_values(action, &mut |slot| match slot {
        ActionValue::Variable(Variable { value, .. }) => hide(value),
        ActionValue::Url(_, url) => hide(url),
    });
}

/// Hides the URLs of dependencies. Dependencies are downloaded before any program runs.
fn hide_dependencies(sandbox: Option<&mut Arc<Sandbox>>) {
    let Some(sandbox) = sandbox.filter(|sandbox| !sandbox.cached_dependencies.is_empty()) else { return };
    Arc::make_mut(sandbox).cached_dependencies.iter_mut().for_each(|download| hide(&mut download.from));
}

fn hide_variables(variables: &mut [Variable]) {
    variables.iter_mut().for_each(|variable| hide(&mut variable.value));
}

fn hide_definition(definition: &mut Definition) {
    hide_variables(&mut definition.environment_variables);
    hide_dependencies(definition.sandbox.as_mut());
    let Definition { setup, action, monitor, .. } = definition;
    for action in setup.iter_mut().chain([action]).chain(monitor) {
        hide_action(Arc::make_mut(action));
    }
}

fn hide_task(definition: &mut TaskDefinition) {
    hide_variables(&mut definition.environment_variables);
    hide_dependencies(definition.sandbox.as_mut());
    hide_action(&mut definition.action);
    definition.completion_callback_url.iter_mut().for_each(hide);
}

/// Hides environments, URLs, and the content of dispatches.
fn hide_event(event: &mut Event) {
    match event {
        Event::Desired(desired::Event::Desired(lrp)) => hide_definition(Arc::make_mut(&mut lrp.definition)),
        Event::Desired(desired::Event::DefinitionAdded { definition, .. }) => {
            hide_definition(Arc::make_mut(definition));
        }
        Event::Task(task::Event::Desired(desired)) => hide_task(Arc::make_mut(&mut desired.definition)),
        Event::Periodic(
            periodic::Event::Desired { desired, .. } | periodic::Event::Updated { desired, .. },
        ) => {
            hide_task(Arc::make_mut(&mut desired.definition));
        }
        Event::Parameterised(
            parameterised::Event::Desired { desired } | parameterised::Event::Updated { desired },
        ) => hide_task(Arc::make_mut(&mut desired.definition)),
        Event::Parameterised(parameterised::Event::Dispatched { dispatch, .. }) => {
            dispatch.payload.iter_mut().for_each(hide);
            hide_variables(&mut dispatch.parameters);
        }
        Event::Desired(_)
        | Event::Task(_)
        | Event::Periodic(_)
        | Event::Parameterised(_)
        | Event::Actual(_)
        | Event::Evacuating(_)
        | Event::Rollout(_)
        | Event::Evaluation(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => {}
    }
}

/// Returns `true` if an event may have values to hide.
const fn has_hideable_values(event: &Event) -> bool {
    matches!(
        event,
        Event::Desired(desired::Event::Desired(_) | desired::Event::DefinitionAdded { .. })
            | Event::Task(task::Event::Desired(_))
            | Event::Periodic(periodic::Event::Desired { .. } | periodic::Event::Updated { .. })
            | Event::Parameterised(
                parameterised::Event::Desired { .. }
                    | parameterised::Event::Updated { .. }
                    | parameterised::Event::Dispatched { .. }
            )
    )
}
