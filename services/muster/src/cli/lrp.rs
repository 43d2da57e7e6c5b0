//! `muster lrp`.

use std::path::Path;
use std::time::Duration;

use client::{Client, Only};
use schemas::definition::{DesiredLrp, DesiredLrpUpdate, Routes};
use schemas::limits::INSTANCES;
use schemas::message::Done;
use schemas::names::ProcessGuid;
use schemas::spec::Item;
use serde::Serialize;
use serde_json::Value;

use super::args::{Global, LrpVerb};
use super::connect::connect;
use super::failure::{Exit, Failure};
use super::output::{Output, note};
use super::progress::{Watched, settle};
use super::several::Several;
use super::words::{Invalid, count, number};
use super::{diff, file, find, rows};

/// What a command did to a process.
#[derive(Serialize)]
struct Changed<'a> {
    process_guid: &'a ProcessGuid,
    did: &'a str,
    carried_out: bool,
    position: schemas::Position,
    version: u64,
}

/// What all of these commands know.
struct Session<'a> {
    client: Client,
    global: &'a Global,
    output: Output,
}

pub(crate) async fn run(verb: LrpVerb, global: &Global) -> Result<(), Failure> {
    // A file is read before anybody is asked: what is wrong with it is known without a cluster.
    match verb {
        LrpVerb::Desire { file, wait } => {
            let items = file::items(&file, global.domain.as_ref())?;
            Session::open(global).await?.desire(&file, items, wait.detach).await
        }
        LrpVerb::Diff { file } => {
            let items = file::items(&file, global.domain.as_ref())?;
            diff::run(&connect(global).await?, &file, items, Output::new(global)).await
        }
        LrpVerb::List => Session::open(global).await?.list().await,
        LrpVerb::Show { guid } => Session::open(global).await?.show(&guid).await,
        LrpVerb::Scale { what, wait } => {
            let wanted = parse_scale(&what)?;
            let session = Session::open(global).await?;
            let mut several = Several::new(global, wanted.len());
            for (guid, instances) in wanted {
                let update = DesiredLrpUpdate { instances: Some(instances), ..DesiredLrpUpdate::default() };
                several.note(session.update(&guid, update, "scaled", wait.detach).await)?;
            }
            several.end()
        }
        LrpVerb::Update { guid, instances, routes, annotation, wait } => {
            let routes = routes.map(|file| read_routes(&file)).transpose()?;
            let update = DesiredLrpUpdate { instances, routes, annotation };
            if update == DesiredLrpUpdate::default() {
                return Err(Failure::usage("nothing to change: give --instances, --routes or --annotation"));
            }
            Session::open(global).await?.update(&guid, update, "updated", wait.detach).await
        }
        LrpVerb::Remove { guid, wait } => Session::open(global).await?.remove(&guid, wait.detach).await,
    }
}

impl<'a> Session<'a> {
    async fn open(global: &'a Global) -> Result<Self, Failure> {
        Ok(Self { client: connect(global).await?, global, output: Output::new(global) })
    }

    async fn desire(&self, path: &Path, items: Vec<Item>, detach: bool) -> Result<(), Failure> {
        let (mut lrps, mut domains, mut tasks) = (vec![], vec![], 0);
        for item in items {
            match item {
                Item::Lrp(lrp) => lrps.push(*lrp),
                Item::Domain { domain, ttl_ms } => domains.push((domain, ttl_ms.map(Duration::from_millis))),
                Item::Task(_) => tasks += 1,
            }
        }
        if lrps.is_empty() {
            let why = format!("{} desires no process", path.display());
            return Err(
                Failure::new(Exit::Failed, "InvalidRequest", why).advise("tasks are run by muster task run")
            );
        }
        if tasks > 0 {
            note(&format!("the tasks of the file are left alone: muster task run {}", path.display()));
        }
        let mut several = Several::new(self.global, lrps.len() + domains.len());
        let mut desired = vec![];
        for lrp in lrps {
            let guid = lrp.process_guid.clone();
            let became = self.desire_one(lrp).await.map_err(|failure| not_desired(failure, &guid));
            if let Some(done) = several.note(became)? {
                desired.push((guid, done));
            }
        }
        let all = several.is_well();
        for (domain, ttl) in domains {
            // What could not be desired would be taken for what nobody desires.
            let became = if all {
                self.client.in_domain(domain.clone()).refresh_domain(ttl).await.map_err(Failure::from)
            } else {
                let why = "not everything that the file desires is desired";
                Err(Failure::new(Exit::Conflict, "NotRefreshed", why))
            };
            several.note(became.map_err(|failure| failure.doing(format!("refresh domain {domain}"))))?;
        }
        for (guid, done) in desired {
            // One that is stuck keeps nobody from hearing of the others.
            several.note(self.carried_out(&guid, done, "desired", detach).await)?;
        }
        several.end()
    }

    async fn desire_one(&self, lrp: DesiredLrp) -> Result<Done, Failure> {
        let (guid, domain) = (lrp.process_guid.clone(), lrp.domain.clone());
        match self.client.desire_lrp(lrp).await {
            Ok(done) => Ok(done),
            Err(error) => {
                let known = self.client.lrp(&guid).await.ok().map(|one| one.row.domain);
                Err(find::elsewhere(error.into(), format!("process {guid}"), known, &domain))
            }
        }
    }

    async fn list(&self) -> Result<(), Failure> {
        let only = find::only(self.global.domain.as_ref());
        // A table has no room for definitions; a program gets all there is.
        let listed = if self.output.is_for_people() {
            self.client.lrps(&only).await?
        } else {
            self.client.lrps_with_definitions(&only).await?
        };
        self.output.rows(&listed.rows, rows::lrps)
    }

    async fn show(&self, guid: &ProcessGuid) -> Result<(), Failure> {
        let row = find::lrp(&self.client, guid).await?.row;
        find::whose(self.global, format!("process {guid}"), row.domain.clone())?;
        let instances = if self.output.is_for_people() {
            self.client.instances(&Only::process(guid.clone())).await?.rows
        } else {
            vec![]
        };
        self.output.one(&row, |row, look| rows::lrp(row, &instances, look))
    }

    async fn update(
        &self,
        guid: &ProcessGuid,
        update: DesiredLrpUpdate,
        did: &str,
        detach: bool,
    ) -> Result<(), Failure> {
        let known = find::lrp(&self.client, guid)
            .await
            .map_err(|failure| failure.doing(format!("change process {guid}")))?;
        let client =
            self.client.in_domain(find::whose(self.global, format!("process {guid}"), known.row.domain)?);
        let changed = client.update_lrp(guid.clone(), update).await;
        let done = changed.map_err(|error| Failure::from(error).doing(format!("change process {guid}")))?;
        self.carried_out(guid, done, did, detach).await
    }

    async fn remove(&self, guid: &ProcessGuid, detach: bool) -> Result<(), Failure> {
        let known = find::lrp(&self.client, guid)
            .await
            .map_err(|failure| failure.doing(format!("remove process {guid}")))?;
        let client =
            self.client.in_domain(find::whose(self.global, format!("process {guid}"), known.row.domain)?);
        let removed = client.remove_lrp(guid.clone()).await;
        let done = removed.map_err(|error| Failure::from(error).doing(format!("remove process {guid}")))?;
        self.carried_out(guid, done, "removed", detach).await
    }

    /// Waits until what was asked is so, unless the user doesn't want to, and shows it.
    async fn carried_out(
        &self,
        guid: &ProcessGuid,
        done: Done,
        did: &str,
        detach: bool,
    ) -> Result<(), Failure> {
        let watched = if detach {
            Watched::Detached
        } else {
            settle(&self.client, guid, done.position, self.global.timeout, self.output).await?
        };
        let (carried_out, end) = match watched {
            Watched::Settled { running: 0 } => (true, String::new()),
            Watched::Settled { running } => {
                (true, format!(": {} running", count(running.into(), "instance")))
            }
            Watched::Detached => (false, "; it is being carried out".to_owned()),
        };
        let Done { position, version } = done;
        let changed = Changed { process_guid: guid, did, carried_out, position, version };
        self.output.next(&changed, |_, _| format!("process {guid} {did}{end}"))
    }
}

fn not_desired(failure: Failure, guid: &ProcessGuid) -> Failure {
    failure
        .doing(format!("desire process {guid}"))
        .advise_on(
            Exit::Conflict,
            format!("change it: muster lrp update {guid}, or muster lrp scale {guid}=N"),
        )
        .advise_on(Exit::Conflict, format!("or end it first: muster lrp remove {guid}"))
}

/// `GUID=N ...`, or `GUID N`.
fn parse_scale(words: &[String]) -> Result<Vec<(ProcessGuid, u32)>, Failure> {
    let one = |guid: &str, instances: &str| {
        let guid = ProcessGuid::new(guid).map_err(|bad| Failure::usage(bad.to_string()))?;
        let instances = number(0..=INSTANCES)(instances)
            .map_err(|bad| Failure::from(bad).doing(format!("scale process {guid}")))?;
        Ok((guid, instances))
    };
    match words {
        [guid, number] if !guid.contains('=') && !number.contains('=') => Ok(vec![one(guid, number)?]),
        words => words
            .iter()
            .map(|word| {
                let wrong = || Invalid::new("scale", word, "GUID=N, as web=3");
                let (guid, instances) = word.split_once('=').ok_or_else(wrong)?;
                one(guid, instances)
            })
            .collect(),
    }
}

/// Routing data from a file: for each router anything, which is kept as JSON text.
fn read_routes(path: &Path) -> Result<Routes, Failure> {
    match file::value(path)? {
        Value::Object(routers) => {
            Ok(routers.into_iter().map(|(name, data)| (name, data.to_string())).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let why =
                format!("{} is not routing data: use an object, for each router anything", path.display());
            Err(Failure::new(Exit::Failed, "InvalidRequest", why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_read() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            parse_scale(&words)
                .map(|all| all.iter().map(|(guid, n)| format!("{guid}:{n}")).collect::<Vec<_>>())
        };
        assert_eq!(read(&["web=3"]).unwrap(), ["web:3"]);
        assert_eq!(read(&["web", "3"]).unwrap(), ["web:3"]);
        assert_eq!(read(&["web=3", "api=0"]).unwrap(), ["web:3", "api:0"]);
        for bad in
            [&["web"][..], &["web=-1"], &["web=x"], &["a b=1"], &["web", "x"], &["web", "3", "4"], &["=3"]]
        {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_exists_is_refused_with_advice() {
        let refusal = schemas::Refusal::new(schemas::Code::ResourceExists, "process web is desired already");
        let failure = not_desired(refusal.into(), &ProcessGuid::new("web").unwrap());
        assert_eq!(
            failure.text(false),
            "error: can't desire process web: process web is desired already (ResourceExists)\n  \
             change it: muster lrp update web, or muster lrp scale web=N\n  \
             or end it first: muster lrp remove web"
        );
    }
}
