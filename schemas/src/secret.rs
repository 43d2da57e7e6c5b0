//! Secrets: to what a sealed value is bound, and where secrets stand in what a client desires (docs/model.md, "Secrets").
//!
//! A client says what is secret. Whoever has the keys seals it before anything is decided ([`Hand`]), and
//! it is opened where it is needed: by who starts a container, by who calls the owner of a task. Nothing in between has a key.

use std::fmt;
use std::sync::Arc;

use crate::action::{Action, Download, Secret, Upload, Variable};
use crate::container::{Recipe, WorkKey};
use crate::definition::{Definition, Sandbox, TaskDefinition};
use crate::names::{Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use crate::refusal::BadField;

/// Whose secret it is: what a client named when it gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A process.
    Process(ProcessGuid),
    /// A task that nobody launched.
    Task(TaskGuid),
    /// A periodic task, and all that it launches.
    Periodic(PeriodicGuid),
    /// A parameterised task, and all that is dispatched of it.
    Parameterised(ParameterisedGuid),
}

impl Owner {
    /// Whose secrets a task has: its own, or those of who launched it.
    #[must_use]
    pub fn of_task(guid: &TaskGuid) -> Self {
        let launched = || guid.periodic().map(Self::Periodic);
        let dispatched = guid.dispatched().map(|(template, _)| Self::Parameterised(template));
        dispatched.or_else(launched).unwrap_or_else(|| Self::Task(guid.clone()))
    }

    /// Whose secrets work has.
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

/// What a secret is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The environment variable of this name.
    Variable(String),
    /// The URL to which a completed task is posted.
    CallbackUrl,
    /// The URL of something that is fetched or sent.
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

/// To what a sealed value is bound: sealed for one place it opens in no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// In which domain.
    pub domain: Domain,
    /// Whose.
    pub owner: Owner,
    /// What for.
    pub purpose: Purpose,
}

impl Place {
    /// The same as bytes, another one for each place: no part of it has a NUL in it.
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

/// Who has keys: seals what is open and, of what is sealed already, says whether it is sealed for that place. Else it says what
/// is wrong.
pub type Hand<'a> = &'a dyn Fn(&Place, &Secret) -> Result<Secret, String>;

/// What is secret of something that is desired, sealed or not: in which field, what for, and the value itself.
pub(crate) type Found<'a> = (String, Purpose, &'a mut Secret);

/// What came of sealing.
#[derive(Default)]
pub(crate) struct Outcome {
    /// How many secrets there were, sealed before or not.
    pub(crate) secrets: usize,
    /// The fields whose value can't be sealed, or is sealed for another place.
    pub(crate) bad: Vec<BadField>,
}

/// Has each of them sealed.
pub(crate) fn seal(domain: &Domain, owner: &Owner, found: Vec<Found<'_>>, hand: Hand<'_>) -> Outcome {
    let mut outcome = Outcome { secrets: found.len(), bad: vec![] };
    for (field, purpose, secret) in found {
        let place = Place { domain: domain.clone(), owner: owner.clone(), purpose };
        match hand(&place, secret) {
            Ok(sealed) => *secret = sealed,
            Err(problem) => outcome.bad.push(BadField { field, problem }),
        }
    }
    outcome
}

/// The environment variables of everything that a container runs.
#[must_use]
pub fn variables(recipe: &Recipe) -> Vec<&Variable> {
    let mut found: Vec<&Variable> = recipe.environment_variables.iter().collect();
    for action in recipe.setup.iter().chain([&recipe.action]).chain(&recipe.monitor) {
        of_action(action, &mut found);
    }
    found
}

fn of_action<'a>(action: &'a Action, found: &mut Vec<&'a Variable>) {
    if let Action::Run(run) = action {
        found.extend(&run.env);
    }
    action.children().iter().for_each(|child| of_action(child, found));
}

/// The same in the same order, to change them.
pub fn variables_mut(recipe: &mut Recipe) -> Vec<&mut Variable> {
    let mut found: Vec<&mut Variable> = recipe.environment_variables.iter_mut().collect();
    for action in recipe.setup.iter_mut().chain([&mut recipe.action]).chain(&mut recipe.monitor) {
        in_action(action, &mut |slot| match slot {
            Slot::Variable(variable) => found.push(variable),
            // A shim knows no URL: its cell fetches and sends.
            Slot::Url(..) => {}
        });
    }
    found
}

/// A value of an action that may be secret.
pub(crate) enum Slot<'a> {
    /// An environment variable.
    Variable(&'a mut Variable),
    /// The URL of something that is fetched or sent, in the field of this name.
    Url(&'static str, &'a mut Secret),
}

/// Gives each of them. Depth is bounded by what specs and messages may have.
pub(crate) fn in_action<'a>(action: &'a mut Action, give: &mut impl FnMut(Slot<'a>)) {
    match action {
        Action::Run(run) => run.env.iter_mut().for_each(|variable| give(Slot::Variable(variable))),
        Action::Download(Download { from, .. }) => give(Slot::Url("from", from)),
        Action::Upload(Upload { to, .. }) => give(Slot::Url("to", to)),
        Action::Timeout(_)
        | Action::Try(_)
        | Action::Parallel(_)
        | Action::Serial(_)
        | Action::Codependent(_)
        | Action::EmitProgress(_) => {
            action.children_mut().iter_mut().for_each(|child| in_action(child, give));
        }
    }
}

/// Notes a variable whose value is secret.
fn note<'a>(field: &str, variable: &'a mut Variable, found: &mut Vec<Found<'a>>) {
    let Variable { name, value } = variable;
    if value.plain().is_none() {
        found.push((format!("{field}.{name}"), Purpose::Variable(name.to_string()), value));
    }
}

/// Notes a URL that is secret.
fn note_url<'a>(field: &str, name: &str, url: &'a mut Secret, found: &mut Vec<Found<'a>>) {
    if url.plain().is_none() {
        found.push((format!("{field}.{name}"), Purpose::ArtifactUrl, url));
    }
}

fn note_all<'a>(field: &str, variables: &'a mut [Variable], found: &mut Vec<Found<'a>>) {
    variables.iter_mut().for_each(|variable| note(field, variable, found));
}

fn note_action<'a>(field: &str, action: &'a mut Action, found: &mut Vec<Found<'a>>) {
    in_action(action, &mut |slot| match slot {
        Slot::Variable(variable) => note(&format!("{field}.env"), variable, found),
        Slot::Url(name, url) => note_url(field, name, url, found),
    });
}

/// Notes the URLs that are secret of what is fetched before anything runs.
fn note_dependencies<'a>(sandbox: Option<&'a mut Arc<Sandbox>>, found: &mut Vec<Found<'a>>) {
    let Some(sandbox) = sandbox.filter(|sandbox| !sandbox.cached_dependencies.is_empty()) else { return };
    for (at, download) in Arc::make_mut(sandbox).cached_dependencies.iter_mut().enumerate() {
        note_url(&format!("cached_dependencies[{at}]"), "from", &mut download.from, found);
    }
}

/// All that is secret of a definition.
pub(crate) fn in_definition(definition: &mut Arc<Definition>) -> Vec<Found<'_>> {
    let Definition { environment_variables, setup, action, monitor, sandbox, .. } = Arc::make_mut(definition);
    let mut found = vec![];
    note_all("environment_variables", environment_variables, &mut found);
    note_dependencies(sandbox.as_mut(), &mut found);
    for (field, action) in
        [("setup", setup.as_mut()), ("action", Some(action)), ("monitor", monitor.as_mut())]
    {
        if let Some(action) = action {
            note_action(field, Arc::make_mut(action), &mut found);
        }
    }
    found
}

/// All that is secret of what a task runs.
pub(crate) fn in_task(definition: &mut Arc<TaskDefinition>) -> Vec<Found<'_>> {
    let TaskDefinition { environment_variables, action, completion_callback_url, sandbox, .. } =
        Arc::make_mut(definition);
    let mut found = vec![];
    note_all("environment_variables", environment_variables, &mut found);
    note_dependencies(sandbox.as_mut(), &mut found);
    note_action("action", action, &mut found);
    let url = completion_callback_url.as_mut().filter(|url| url.plain().is_none());
    found.extend(url.map(|url| ("completion_callback_url".to_owned(), Purpose::CallbackUrl, url)));
    found
}

/// What tells, wherever in the name of a parameter of a URL it stands, that something secret is given: `accessToken`.
const TELLING: [&str; 8] =
    ["token", "secret", "passw", "apikey", "signature", "credential", "authoriz", "jwt"];
/// The same of what is a word of such a name by itself: `api_key`, `authKey`, and not `keyboard`.
const TELLING_WORDS: [&str; 4] = ["key", "sig", "auth", "pwd"];

/// Whether a URL has a secret in it: somebody's name or password before its host, or a parameter that is named after a
/// secret, as `?token=`, `&api_key=` or `&clientSecret=`.
#[must_use]
pub fn tells_a_secret(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let name = |parameter: &str| parameter.split('=').next().unwrap_or_default().to_owned();
    host.contains('@') || query.split(['&', ';', '#']).any(|parameter| is_telling(&name(parameter)))
}

fn is_telling(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_word =
        |word: &[u8]| TELLING_WORDS.iter().any(|telling| word.eq_ignore_ascii_case(telling.as_bytes()));
    TELLING.iter().any(|telling| lower.contains(telling)) || words(name).any(is_word)
}

/// The words of a name: `api_key` and `apiKey` have two.
fn words(name: &str) -> impl Iterator<Item = &[u8]> {
    let goes_on = |before: &u8, next: &u8| !(before.is_ascii_lowercase() && next.is_ascii_uppercase());
    let parts = name.as_bytes().chunk_by(goes_on);
    parts.flat_map(|part| part.split(|byte| !byte.is_ascii_alphanumeric()))
}
