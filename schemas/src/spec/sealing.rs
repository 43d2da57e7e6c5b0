//! Seals the secrets of a client's request before the BBS decides the request
//! (docs/internals/model/secrets.md, "Secrets").
//!
//! The sealed request is parsed again as if the client had sent it in this form. Therefore all checks apply
//! to the sealed form, too.

use serde_json::{Value, json};

use super::commands::{ClientCommand, find_command, take_request};
use super::{
    DefaultDomain, Item, content_id, parameterised, parameterised_to_json, periodic, periodic_to_json,
    take_lrp, take_task, task_to_json, to_json,
};
use crate::action::Secret;
use crate::fields::{Field, Problems, check_document, read_json};
use crate::names::Domain;
use crate::refusal::{Code, Refusal};
use crate::secret::{Owner, SealOutcome, Sealer, seal, secrets_in_definition, secrets_in_task};

impl ClientCommand {
    /// Returns the command with every secret sealed. `hand` holds the keys and seals the secrets. `domain` is
    /// the domain of the subject.
    ///
    /// # Errors
    /// `InvalidRequest` with three kinds of fields: fields that cannot be sealed, fields that were sealed for
    /// another field, and fields that are too large when sealed.
    pub fn sealed(mut self, domain: &Domain, hand: Sealer<'_>) -> Result<Self, Refusal> {
        if !has_sealed(self.seal(domain, hand))? {
            return Ok(self);
        }
        let (noun, verb) = self.noun_and_verb();
        let read = find_command(noun, verb)?;
        reparse(self.body(), read)
    }

    fn seal(&mut self, domain: &Domain, hand: Sealer<'_>) -> SealOutcome {
        match self {
            Self::LrpDesire(lrp) => {
                let owner = Owner::Process(lrp.process_guid.clone());
                seal(domain, &owner, secrets_in_definition(&mut lrp.definition), hand)
            }
            Self::LrpUpdate { process_guid, definition: Some((id, definition)), .. } => {
                // A definition id must not depend on a secret, not even through a checksum. Therefore the id
                // is derived from the sealed content.
                let by_content = content_id(definition).is_some_and(|content| content == *id);
                let owner = Owner::Process(process_guid.clone());
                let outcome = seal(domain, &owner, secrets_in_definition(definition), hand);
                if let Some(content) = content_id(definition).filter(|_| by_content) {
                    *id = content;
                }
                outcome
            }
            Self::TaskDesire(task) => {
                let owner = Owner::Task(task.task_guid.clone());
                seal(domain, &owner, secrets_in_task(&mut task.definition), hand)
            }
            Self::PeriodicDesire(periodic) | Self::PeriodicUpdate(periodic) => {
                let owner = Owner::Periodic(periodic.periodic_guid.clone());
                seal(domain, &owner, secrets_in_task(&mut periodic.definition), hand)
            }
            Self::ParameterisedDesire(desired) | Self::ParameterisedUpdate(desired) => {
                let owner = Owner::Parameterised(desired.parameterised_guid.clone());
                seal(domain, &owner, secrets_in_task(&mut desired.definition), hand)
            }
            // Dispatches cannot contain secrets.
            Self::ParameterisedDispatch { .. }
            | Self::LrpUpdate { definition: None, .. }
            | Self::LrpActivate { .. }
            | Self::LrpRestart { .. }
            | Self::LrpSteer { .. }
            | Self::LrpRemove { .. }
            | Self::LrpRetire { .. }
            | Self::LrpRetry { .. }
            | Self::InstanceExec { .. }
            | Self::TaskCancel { .. }
            | Self::TaskResolve { .. }
            | Self::TaskRetry { .. }
            | Self::PeriodicAction { .. }
            | Self::ParameterisedWithdraw { .. }
            | Self::ParameterisedRemove { .. }
            | Self::DomainUpsert { .. } => SealOutcome::default(),
        }
    }
}

impl Item {
    /// Returns `true` if any secret of the item is not sealed.
    #[must_use]
    pub fn has_open_secrets(&self) -> bool {
        // Secrets can only be visited mutably. Therefore a copy is sealed, with a function that rejects open
        // secrets.
        let mut copy = self.clone();
        let refuse_open: Sealer<'_> = &|_, secret| match secret {
            Secret::Open(_) => Err(String::new()),
            Secret::Plain(_) | Secret::Sealed(_) => Ok(secret.clone()),
        };
        !copy.seal(refuse_open).bad.is_empty()
    }

    /// Returns the item with every secret sealed. `hand` holds the keys and seals the secrets.
    ///
    /// # Errors
    /// See [`ClientCommand::sealed`].
    pub fn sealed(mut self, hand: Sealer<'_>) -> Result<Self, Refusal> {
        if !has_sealed(self.seal(hand))? {
            return Ok(self);
        }
        reparse(item_to_json(&self), take_item)
    }

    fn seal(&mut self, hand: Sealer<'_>) -> SealOutcome {
        match self {
            Self::Lrp(lrp) => {
                let owner = Owner::Process(lrp.process_guid.clone());
                seal(&lrp.domain, &owner, secrets_in_definition(&mut lrp.definition), hand)
            }
            Self::Task(task) => {
                let owner = Owner::Task(task.task_guid.clone());
                seal(&task.domain, &owner, secrets_in_task(&mut task.definition), hand)
            }
            Self::Periodic(periodic) => {
                let owner = Owner::Periodic(periodic.periodic_guid.clone());
                seal(&periodic.domain, &owner, secrets_in_task(&mut periodic.definition), hand)
            }
            Self::Parameterised(desired) => {
                let owner = Owner::Parameterised(desired.parameterised_guid.clone());
                seal(&desired.domain, &owner, secrets_in_task(&mut desired.definition), hand)
            }
            Self::Domain { .. } => SealOutcome::default(),
        }
    }

    /// Returns the domain of the item.
    #[must_use]
    pub const fn domain(&self) -> &Domain {
        match self {
            Self::Lrp(lrp) => &lrp.domain,
            Self::Task(task) => &task.domain,
            Self::Periodic(periodic) => &periodic.domain,
            Self::Parameterised(desired) => &desired.domain,
            Self::Domain { domain, .. } => domain,
        }
    }
}

/// Parses a request to seal secrets, from `muster.client.<domain>.<client>.secret.seal`. The body contains
/// one spec in an object: `{"envelope": {..}, "body": {"lrp": {..}}}`.
///
/// # Errors
/// `InvalidRequest` with every invalid field. `Forbidden` if the domain of the spec differs from the domain
/// of the subject.
pub fn to_seal(subject_domain: &Domain, body: &[u8]) -> Result<Item, Refusal> {
    let problems = Problems::default();
    let root = read_json(body, &problems)?;
    check_document(&root, "", &problems);
    let read = take_request(take_item, Field::new(root, String::new(), &problems));
    let (_, item) = problems.into_result(read)?;
    if item.domain() == subject_domain {
        return Ok(item);
    }
    let why = format!(
        "the body names domain {}, but the subject names domain \
                       {subject_domain}",
        item.domain()
    );
    Err(Refusal::new(Code::Forbidden, why))
}

/// Converts an item to an object with one field. The name of the field is the kind of the item. [`to_seal`]
/// parses this form, and the answer to the request has this form.
#[must_use]
pub fn item_to_json(item: &Item) -> Value {
    json!({item.kind(): item_spec(item)})
}

/// Converts an item to the JSON of its spec. For all items except domains, [`super::document`] parses it.
#[must_use]
pub fn item_spec(item: &Item) -> Value {
    match item {
        Item::Lrp(lrp) => to_json(lrp),
        Item::Task(task) => task_to_json(task),
        Item::Periodic(periodic) => periodic_to_json(periodic),
        Item::Parameterised(desired) => parameterised_to_json(desired),
        Item::Domain { domain, ttl_ms } => json!({"domain": domain, "ttl_ms": ttl_ms}),
    }
}

/// Parses the output of [`item_to_json`].
///
/// # Errors
/// `InvalidRequest` with every invalid field.
pub fn item(value: Value) -> Result<Item, Refusal> {
    let problems = Problems::default();
    let read = check_document(&value, "", &problems)
        .then(|| Field::new(value, String::new(), &problems))
        .and_then(take_item);
    problems.into_result(read)
}

fn take_item(field: Field<'_>) -> Option<Item> {
    let (path, problems) = (field.path.clone(), field.problems);
    let mut fields = field.object()?;
    let lrp = fields.optional("lrp", |field| take_lrp(field, DefaultDomain::None));
    let task = fields.optional("task", |field| take_task(field, DefaultDomain::None));
    let periodic = fields.optional("periodic", |field| periodic::take(field, DefaultDomain::None));
    let desired = fields.optional("parameterised", |field| parameterised::take(field, DefaultDomain::None));
    fields.finish(&[]);
    let all = [
        lrp?.map(|lrp| Item::Lrp(Box::new(lrp))),
        task?.map(|task| Item::Task(Box::new(task))),
        periodic?.map(|periodic| Item::Periodic(Box::new(periodic))),
        desired?.map(|desired| Item::Parameterised(Box::new(desired))),
    ];
    let mut given = all.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(item), None) => Some(item),
        (None | Some(_), _) => {
            problems.add(path, "must contain exactly one of lrp, task, periodic and parameterised");
            None
        }
    }
}

/// Returns `true` if there are secrets and all of them are sealed.
///
/// # Errors
/// `InvalidRequest` with every field that could not be sealed.
fn has_sealed(outcome: SealOutcome) -> Result<bool, Refusal> {
    let SealOutcome { secrets, bad } = outcome;
    if bad.is_empty() { Ok(secrets > 0) } else { Err(Refusal::invalid(bad)) }
}

/// Parses sealed JSON as if the client had sent it.
fn reparse<T>(value: Value, take: fn(Field<'_>) -> Option<T>) -> Result<T, Refusal> {
    let problems = Problems::default();
    let read = take(Field::new(value, String::new(), &problems));
    problems.into_result(read)
}
