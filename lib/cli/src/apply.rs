//! `muster apply` and `muster delete`: make the cluster match files, or delete the objects that files describe.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use cli_base::failure::Failure;
use cli_base::file::{self, FileItem};
use cli_base::options::Global;
use cli_base::output;
use client::Client;
use explain::plan::{PlannedAction, PlannedObject, unlisted_objects};
use runtime::exit::Exit;
use schemas::names::Domain;
use schemas::spec::{Item, ObjectName, PeriodicAction};

use super::arguments::{PlanArgs, WaitArgs};
use super::batch::Batch;
use super::plan;
use super::precondition::require_unchanged;
use super::session::{ProcessChange, Session};
use super::{find, fleet, parameterised, periodic, task};

/// Arguments of `muster apply`.
#[derive(Clone, Debug, Args)]
pub struct ApplyArgs {
    /// TOML or JSON files; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Preview the changes and the placement of instances and tasks. Changes nothing; exits 0 if nothing would
    /// change, 13 if something would, 6 if not everything fits
    #[arg(long)]
    dry_run: bool,
    /// Also delete processes, periodic and parameterised tasks that the files do not describe, in the domains of
    /// the files
    #[arg(long)]
    prune: bool,
    /// Run tasks even if they have run before
    #[arg(long)]
    rerun: bool,
    #[command(flatten)]
    planned: PlanArgs,
    #[command(flatten)]
    wait: WaitArgs,
}

/// Arguments of `muster delete`.
#[derive(Clone, Debug, Args)]
pub struct DeleteArgs {
    /// TOML or JSON files; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// List the objects that would be deleted. Changes nothing; exits 0 if there are none, else 13
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    wait: WaitArgs,
}

pub(crate) async fn apply(args: ApplyArgs, global: &Global) -> Result<(), Failure> {
    // Files are parsed before the client connects, so that an invalid file is reported without a cluster.
    let items = file::read_files(&args.files, global.domain.as_ref())?;
    let session = Session::open(global).await?;
    let unlisted = if args.prune {
        unlisted_objects(&session.client, items.iter().map(|one| &one.item)).await?
    } else {
        vec![]
    };
    if args.dry_run {
        return plan::run(&session, &args.files, items, unlisted, args.rerun).await;
    }
    let names: Vec<ObjectName> = items.iter().map(|one| ObjectName::from_item(&one.item)).collect();
    let client = require_unchanged(&session.client, args.planned.if_position, &names, global).await;
    let client = client.map_err(|failure| failure.while_doing("apply the files"))?;
    let mut batch = Batch::new(global, items.len() + unlisted.len());
    let mut changes = vec![];
    let mut domains = vec![];
    for FileItem { item, is_named } in items {
        match item {
            Item::Lrp(lrp) => changes.extend(batch.record(session.apply(&client, *lrp, is_named).await)?),
            Item::Task(task) => {
                batch.record(task::apply(&client, *task, args.rerun, session.output).await)?;
            }
            Item::Periodic(desired) => {
                batch.record(periodic::apply(&client, *desired, session.output).await)?;
            }
            Item::Parameterised(desired) => {
                batch.record(parameterised::apply(&client, *desired, session.output).await)?;
            }
            Item::Domain { domain, ttl_ms } => domains.push((domain, ttl_ms.map(Duration::from_millis))),
        }
    }
    let all_applied = batch.all_succeeded();
    for (domain, ttl) in domains {
        batch.record(refresh(&session, domain, ttl, all_applied).await)?;
    }
    for name in unlisted {
        changes.extend(batch.record(prune(&session, &name, all_applied).await)?.flatten());
    }
    finish(&session, &mut batch, changes, args.wait).await?;
    batch.finish()
}

/// Waits for the changes of processes, and prints their results. If one process does not settle, the results
/// of the other processes are still reported.
async fn finish(
    session: &Session<'_>,
    batch: &mut Batch<'_>,
    changes: Vec<ProcessChange>,
    wait: WaitArgs,
) -> Result<(), Failure> {
    for change in changes {
        batch.record(session.finish(change, wait.detach).await)?;
    }
    Ok(())
}

/// Refreshes a domain if every object of the files was applied. In a refreshed domain, the cluster treats an
/// unknown process as deliberately absent.
async fn refresh(
    session: &Session<'_>,
    domain: Domain,
    ttl: Option<Duration>,
    all_applied: bool,
) -> Result<(), Failure> {
    if all_applied {
        return fleet::refresh(&session.client, domain, ttl, session.output).await;
    }
    Err(incomplete().while_doing(format!("refresh domain {domain}")))
}

/// Deletes an object that is missing in the files. Does nothing unless every object of the files was applied.
async fn prune(
    session: &Session<'_>,
    name: &ObjectName,
    all_applied: bool,
) -> Result<Option<ProcessChange>, Failure> {
    if all_applied {
        return delete_object(session, name, false).await;
    }
    Err(incomplete().while_doing(format!("delete {name}")))
}

fn incomplete() -> Failure {
    Failure::new(Exit::Conflict, "Incomplete", "some objects in the files could not be applied")
}

pub(crate) async fn delete(args: DeleteArgs, global: &Global) -> Result<(), Failure> {
    let items = file::read_files(&args.files, global.domain.as_ref())?;
    let session = Session::open(global).await?;
    let mut batch = Batch::new(global, items.len());
    let (mut changes, mut any) = (vec![], false);
    for FileItem { item, .. } in items {
        let name = ObjectName::from_item(&item);
        let domain = batch.record(domain_of(&session.client, &name).await)?.flatten();
        match domain {
            Some(found) if found != *item.domain() => {
                let why = format!("it exists in domain {found}, not in {}", item.domain());
                let failure = Failure::new(Exit::Conflict, "ResourceConflict", why);
                batch.record::<()>(Err(failure.while_doing(format!("delete {name}"))))?;
            }
            Some(_) if args.dry_run => {
                any = true;
                let planned = PlannedObject { object: name, action: PlannedAction::Delete };
                session.output.add_result(&planned, |planned, _| plan::object_text(planned))?;
            }
            Some(_) => {
                let deleted = delete_object(&session, &name, args.wait.detach).await;
                changes.extend(batch.record(deleted)?.flatten());
            }
            None if matches!(name, ObjectName::Domain(_)) => {
                output::note(&format!("{name} stays: a domain exists as long as objects name it"));
            }
            None => output::note(&format!("{name} does not exist")),
        }
    }
    finish(&session, &mut batch, changes, args.wait).await?;
    batch.finish()?;
    if any { Err(Failure::silent(Exit::Differs)) } else { Ok(()) }
}

/// Returns the domain of an object. `None` if the object does not exist. Also `None` for a domain, because a
/// domain cannot be deleted.
async fn domain_of(client: &Client, name: &ObjectName) -> Result<Option<Domain>, Failure> {
    let found = match name {
        ObjectName::Process(guid) => {
            client.lrp(guid).await.map(|one| one.row.desired.then_some(one.row.domain))
        }
        ObjectName::Task(guid) => client.task(guid).await.map(|one| Some(one.row.domain)),
        ObjectName::Periodic(guid) => client.periodic(guid).await.map(|one| Some(one.row.domain)),
        ObjectName::Parameterised(guid) => {
            client.parameterised_one(guid).await.map(|one| Some(one.row.domain))
        }
        ObjectName::Domain(_) => Ok(None),
    };
    match found {
        Ok(domain) => Ok(domain),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Deletes an object. For a process, returns the change, so that the caller can wait until the instances have
/// stopped. For other objects, prints the result.
async fn delete_object(
    session: &Session<'_>,
    name: &ObjectName,
    detach: bool,
) -> Result<Option<ProcessChange>, Failure> {
    let (client, global) = (&session.client, session.global);
    match name {
        ObjectName::Process(guid) => return session.delete(guid).await.map(Some),
        ObjectName::Task(guid) => {
            task::delete(client, &find::task(client, guid).await?.row, detach, global).await?;
        }
        ObjectName::Periodic(guid) => periodic::command(client, guid, PeriodicAction::Remove, global).await?,
        ObjectName::Parameterised(guid) => parameterised::delete(client, guid, global).await?,
        ObjectName::Domain(_) => {}
    }
    Ok(None)
}
