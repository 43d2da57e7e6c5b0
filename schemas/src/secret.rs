//! Secrets: the binding of sealed values, and the fields of desired objects that may be secret
//! (docs/internals/model/secrets.md, "Secrets").
//!
//! A client marks a value as secret. The program that holds the keys seals the value before the command is
//! decided ([`Sealer`]). The value is opened only where it is used: when a container starts, and when the
//! owner of a task is called. No program in between has a key.

use std::fmt;
use std::sync::Arc;

use crate::action::{Action, Download, Secret, Upload, Variable};
use crate::container::{Recipe, WorkKey};
use crate::definition::{Definition, Sandbox, TaskDefinition};
use crate::names::{Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use crate::refusal::BadField;

/// Owner of a secret: the object for which a client set the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    Process(ProcessGuid),
    /// Task that was neither launched nor dispatched by another object.
    Task(TaskGuid),
    /// Periodic task, and every task that it launches.
    Periodic(PeriodicGuid),
    /// Parameterised task, and every task that is dispatched from it.
    Parameterised(ParameterisedGuid),
}

impl Owner {
    /// Returns the owner of a task's secrets: the object that launched the task, or the task itself if no
    /// object launched it.
    #[must_use]
    pub fn of_task(guid: &TaskGuid) -> Self {
        let launched = || guid.launching_periodic().map(Self::Periodic);
        let dispatched = guid.dispatch_source().map(|(template, _)| Self::Parameterised(template));
        dispatched.or_else(launched).unwrap_or_else(|| Self::Task(guid.clone()))
    }

    /// Returns the owner of the secrets of this work.
    #[must_use]
    pub fn of_work(work: &WorkKey) -> Self {
        match work {
            WorkKey::Lrp { key, .. } => Self::Process(key.process_guid.clone()),
            WorkKey::Task { task_guid, .. } => Self::of_task(task_guid),
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Process(_) => "process",
            Self::Task(_) => "task",
            Self::Periodic(_) => "periodic task",
            Self::Parameterised(_) => "parameterised task",
        }
    }

    fn guid(&self) -> &str {
        match self {
            Self::Process(guid) => guid.as_str(),
            Self::Task(guid) => guid.as_str(),
            Self::Periodic(guid) => guid.as_str(),
            Self::Parameterised(guid) => guid.as_str(),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.guid())
    }
}

/// Use of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Environment variable with this name.
    Variable(String),
    /// URL that is called when a task has completed.
    CallbackUrl,
    /// URL of a download or an upload.
    ArtifactUrl,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::CallbackUrl => f.write_str("completion_callback_url"),
            Self::ArtifactUrl => f.write_str("the URL of an artifact"),
        }
    }
}

/// Binding of a sealed value: its owner and its use. A value that is sealed for one binding cannot be opened
/// for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub domain: Domain,
    pub owner: Owner,
    pub purpose: Purpose,
}

impl Binding {
    /// Returns the binding as bytes. They are unique to the binding, because none of its parts contains a
    /// NUL.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let (purpose, name) = match &self.purpose {
            Purpose::Variable(name) => ("variable", name.as_str()),
            Purpose::CallbackUrl => ("callback", ""),
            Purpose::ArtifactUrl => ("artifact", ""),
        };
        let parts = [self.domain.as_str(), self.owner.kind(), self.owner.guid(), purpose, name];
        parts.join("\0").into_bytes()
    }
}

/// Sealing function of the program that holds the keys. It seals an open value, and checks that a sealed
/// value is sealed for this binding. If this fails, it returns a description of the problem.
pub type Sealer<'a> = &'a dyn Fn(&Binding, &Secret) -> Result<Secret, String>;

/// Secret of a desired object: its field, its use, and the value, which may be sealed already.
pub(crate) type SecretField<'a> = (String, Purpose, &'a mut Secret);

/// Result of sealing.
#[derive(Default)]
pub(crate) struct SealOutcome {
    /// Number of secrets, including those that were sealed before.
    pub(crate) secrets: usize,
    /// Fields whose value cannot be sealed, or is sealed for another binding.
    pub(crate) bad: Vec<BadField>,
}

/// Seals each of the secrets.
pub(crate) fn seal(
    domain: &Domain,
    owner: &Owner,
    found: Vec<SecretField<'_>>,
    hand: Sealer<'_>,
) -> SealOutcome {
    let mut outcome = SealOutcome { secrets: found.len(), bad: vec![] };
    for (field, purpose, secret) in found {
        let place = Binding { domain: domain.clone(), owner: owner.clone(), purpose };
        match hand(&place, secret) {
            Ok(sealed) => *secret = sealed,
            Err(problem) => outcome.bad.push(BadField { field, problem }),
        }
    }
    outcome
}

/// Returns the environment variables of everything that a container runs.
#[must_use]
pub fn variables(recipe: &Recipe) -> Vec<&Variable> {
    let mut found: Vec<&Variable> = recipe.environment_variables.iter().collect();
    for action in recipe.setup.iter().chain([&recipe.action]).chain(&recipe.monitor) {
        collect_run_variables(action, &mut found);
    }
    found
}

fn collect_run_variables<'a>(action: &'a Action, found: &mut Vec<&'a Variable>) {
    if let Action::Run(run) = action {
        found.extend(&run.env);
    }
    action.children().iter().for_each(|child| collect_run_variables(child, found));
}

/// Returns the variables of [`variables`] in the same order, for modification.
pub fn variables_mut(recipe: &mut Recipe) -> Vec<&mut Variable> {
    let mut found: Vec<&mut Variable> = recipe.environment_variables.iter_mut().collect();
    for action in recipe.setup.iter_mut().chain([&mut recipe.action]).chain(&mut recipe.monitor) {
        visit_values(action, &mut |slot| match slot {
            ActionValue::Variable(variable) => found.push(variable),
            // A shim has no URLs, because its rep carries out the downloads and uploads.
            ActionValue::Url(..) => {}
        });
    }
    found
}

/// Value of an action that may be secret.
pub(crate) enum ActionValue<'a> {
    Variable(&'a mut Variable),
    /// URL of a download or an upload, with the name of its field.
    Url(&'static str, &'a mut Secret),
}

/// Calls `give` with each value of the action that may be secret. The limits on specs and messages bound the
/// depth of the recursion.
pub(crate) fn visit_values<'a>(action: &'a mut Action, give: &mut impl FnMut(ActionValue<'a>)) {
    match action {
        Action::Run(run) => run.env.iter_mut().for_each(|variable| give(ActionValue::Variable(variable))),
        Action::Download(Download { from, .. }) => give(ActionValue::Url("from", from)),
        Action::Upload(Upload { to, .. }) => give(ActionValue::Url("to", to)),
        Action::Timeout(_)
        | Action::Try(_)
        | Action::Parallel(_)
        | Action::Serial(_)
        | Action::Codependent(_)
        | Action::EmitProgress(_) => {
            action.children_mut().iter_mut().for_each(|child| visit_values(child, give));
        }
    }
}

/// Adds a variable if its value is secret.
fn collect_secret_variable<'a>(field: &str, variable: &'a mut Variable, found: &mut Vec<SecretField<'a>>) {
    let Variable { name, value } = variable;
    if value.plain().is_none() {
        found.push((format!("{field}.{name}"), Purpose::Variable(name.to_string()), value));
    }
}

/// Adds a URL if it is secret.
fn collect_secret_url<'a>(field: &str, name: &str, url: &'a mut Secret, found: &mut Vec<SecretField<'a>>) {
    if url.plain().is_none() {
        found.push((format!("{field}.{name}"), Purpose::ArtifactUrl, url));
    }
}

fn collect_secret_variables<'a>(
    field: &str,
    variables: &'a mut [Variable],
    found: &mut Vec<SecretField<'a>>,
) {
    variables.iter_mut().for_each(|variable| collect_secret_variable(field, variable, found));
}

fn collect_action_secrets<'a>(field: &str, action: &'a mut Action, found: &mut Vec<SecretField<'a>>) {
    visit_values(action, &mut |slot| match slot {
        ActionValue::Variable(variable) => collect_secret_variable(&format!("{field}.env"), variable, found),
        ActionValue::Url(name, url) => collect_secret_url(field, name, url, found),
    });
}

/// Adds the secret URLs of dependencies, which are downloaded before anything runs.
fn collect_secret_dependencies<'a>(sandbox: Option<&'a mut Arc<Sandbox>>, found: &mut Vec<SecretField<'a>>) {
    let Some(sandbox) = sandbox.filter(|sandbox| !sandbox.cached_dependencies.is_empty()) else { return };
    for (at, download) in Arc::make_mut(sandbox).cached_dependencies.iter_mut().enumerate() {
        collect_secret_url(&format!("cached_dependencies[{at}]"), "from", &mut download.from, found);
    }
}

/// Returns every secret of a definition.
pub(crate) fn secrets_in_definition(definition: &mut Arc<Definition>) -> Vec<SecretField<'_>> {
    let Definition { environment_variables, setup, action, monitor, sandbox, .. } = Arc::make_mut(definition);
    let mut found = vec![];
    collect_secret_variables("environment_variables", environment_variables, &mut found);
    collect_secret_dependencies(sandbox.as_mut(), &mut found);
    for (field, action) in
        [("setup", setup.as_mut()), ("action", Some(action)), ("monitor", monitor.as_mut())]
    {
        if let Some(action) = action {
            collect_action_secrets(field, Arc::make_mut(action), &mut found);
        }
    }
    found
}

/// Returns every secret of a task's definition.
pub(crate) fn secrets_in_task(definition: &mut Arc<TaskDefinition>) -> Vec<SecretField<'_>> {
    let TaskDefinition { environment_variables, action, completion_callback_url, sandbox, .. } =
        Arc::make_mut(definition);
    let mut found = vec![];
    collect_secret_variables("environment_variables", environment_variables, &mut found);
    collect_secret_dependencies(sandbox.as_mut(), &mut found);
    collect_action_secrets("action", action, &mut found);
    let url = completion_callback_url.as_mut().filter(|url| url.plain().is_none());
    found.extend(url.map(|url| ("completion_callback_url".to_owned(), Purpose::CallbackUrl, url)));
    found
}

/// Parts of names that mark a URL parameter as secret, at any position: `accessToken`.
const SECRET_NAME_PARTS: [&str; 8] =
    ["token", "secret", "passw", "apikey", "signature", "credential", "authoriz", "jwt"];
/// Words that mark a URL parameter as secret only if they are separate: `api_key` and `authKey`, but not
/// `keyboard`.
const SECRET_NAME_WORDS: [&str; 4] = ["key", "sig", "auth", "pwd"];

/// Returns `true` if a URL contains a secret: credentials before its host, or a parameter with a name such as
/// `token`, `api_key` or `clientSecret`.
#[must_use]
pub fn contains_secret(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let name = |parameter: &str| parameter.split('=').next().unwrap_or_default().to_owned();
    host.contains('@') || query.split(['&', ';', '#']).any(|parameter| is_secret_name(&name(parameter)))
}

fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_word =
        |word: &[u8]| SECRET_NAME_WORDS.iter().any(|telling| word.eq_ignore_ascii_case(telling.as_bytes()));
    SECRET_NAME_PARTS.iter().any(|telling| lower.contains(telling)) || words(name).any(is_word)
}

/// Splits a name into words: `api_key` and `apiKey` have two.
fn words(name: &str) -> impl Iterator<Item = &[u8]> {
    let goes_on = |before: &u8, next: &u8| !(before.is_ascii_lowercase() && next.is_ascii_uppercase());
    let parts = name.as_bytes().chunk_by(goes_on);
    parts.flat_map(|part| part.split(|byte| !byte.is_ascii_alphanumeric()))
}
