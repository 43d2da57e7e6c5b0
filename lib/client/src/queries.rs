//! Queries: reads at one position, paged.

use schemas::container::PortMapping;
use schemas::health::ContainerHealth;
use schemas::names::{CellId, Domain, EvaluationId, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use schemas::published::{ListSchemas, SchemaRow, ShowSchema};
use schemas::query::{
    CellRow, ClusterRow, DomainRow, DomainUseRow, EndedInstanceRow, EndedTaskRow, EvaluationRow, EventsPage,
    Files, Filter, InstanceRow, LrpRow, One, Page, ParameterisedRow, PeriodicRow, ReadEvents, ReadFiles,
    Show, StatusRow, TaskRow,
};
use schemas::{ActualLrpKey, Code, Place, Position};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::Client;
use crate::error::Error;
use crate::limits::LISTED_ANEW;
use crate::subjects::Query;

/// All rows of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    /// Where the world stood.
    pub position: Position,
    /// The rows, in order of their names.
    pub rows: Vec<T>,
}

/// What lists are narrowed by. Nothing: everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only {
    /// Only of this domain.
    pub domain: Option<Domain>,
    /// Only of this process.
    pub process_guid: Option<ProcessGuid>,
    /// Only on this cell.
    pub cell_id: Option<CellId>,
}

impl Only {
    /// Only of a domain.
    #[must_use]
    pub fn domain(domain: Domain) -> Self {
        Self { domain: Some(domain), ..Self::default() }
    }

    /// Only of a process.
    #[must_use]
    pub fn process(guid: ProcessGuid) -> Self {
        Self { process_guid: Some(guid), ..Self::default() }
    }

    /// Only on a cell.
    #[must_use]
    pub fn cell(id: CellId) -> Self {
        Self { cell_id: Some(id), ..Self::default() }
    }
}

fn filter(only: &Only) -> Filter {
    Filter {
        domain: only.domain.clone(),
        process_guid: only.process_guid.clone(),
        cell_id: only.cell_id.clone(),
        ..Filter::default()
    }
}

/// The key of the instance that a row shows: as text it is `PROCESS/INDEX`, in full `PROCESS/INDEX@DEFINITION`. Queries
/// take both.
#[must_use]
pub fn key_of(row: &InstanceRow) -> ActualLrpKey {
    ActualLrpKey::new(row.process_guid.clone(), Place::new(row.index, row.definition_id.clone()))
}

/// Where an instance is reached by one of its ports: `address:host_port`.
#[must_use]
pub fn reached_at(row: &InstanceRow, port: &PortMapping) -> Option<String> {
    row.address.as_ref().map(|address| format!("{address}:{}", port.host_port))
}

impl Client {
    /// All processes.
    ///
    /// # Errors
    /// See [`Error`]; so for every query below. What doesn't exist is `Refused` with `ResourceNotFound`.
    pub async fn lrps(&self, only: &Only) -> Result<Listed<LrpRow>, Error> {
        self.list(Query::LrpList, only).await
    }

    /// One process, with its definition.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn lrp(&self, guid: &ProcessGuid) -> Result<One<LrpRow>, Error> {
        self.show(Query::LrpShow, guid.as_str()).await
    }

    /// All instances, with their evacuating twins.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn instances(&self, only: &Only) -> Result<Listed<InstanceRow>, Error> {
        self.list(Query::InstanceList, only).await
    }

    /// All instances, one record of each: of one that is being evacuated the record that counts.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn counting_instances(&self, only: &Only) -> Result<Listed<InstanceRow>, Error> {
        self.list_filtered(Query::InstanceList, filter(only)).await
    }

    /// All processes, with their definitions.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn lrps_with_definitions(&self, only: &Only) -> Result<Listed<LrpRow>, Error> {
        self.list_filtered(Query::LrpList, Filter { definitions: true, ..filter(only) }).await
    }

    /// One instance: `PROCESS/INDEX@DEFINITION`, `PROCESS/INDEX` (of the active definition, if there are several at the
    /// index), or an instance guid. Of one that is being evacuated also its twin, so there may be two rows, and there is
    /// always one.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn instance(&self, id: &str) -> Result<One<Vec<InstanceRow>>, Error> {
        self.show(Query::InstanceShow, id).await
    }

    /// The containers of instances that ended, the newest of each index; only of one index, if that is named with its
    /// process.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn ended_instances(
        &self,
        only: &Only,
        index: Option<u32>,
    ) -> Result<Listed<EndedInstanceRow>, Error> {
        self.list_filtered(Query::InstanceEnded, Filter { index, ..filter(only) }).await
    }

    /// The tasks that completed and are deleted, the newest of each domain.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn ended_tasks(&self, only: &Only) -> Result<Listed<EndedTaskRow>, Error> {
        self.list_filtered(Query::TaskEnded, filter(only)).await
    }

    /// What the monitors of an instance's containers found out, as their cells know it: one container, a second while it
    /// evacuates, none while it has none.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn instance_health(&self, id: &str) -> Result<Vec<ContainerHealth>, Error> {
        let show = Show { id: id.to_owned(), at_least: None, as_of: self.asks_as_of() };
        self.line.ask(&self.query(Query::InstanceHealth), &show, self.patience).await
    }

    /// What is at a path of an instance's work directory: of a file bytes from the offset `from`, of a folder entries behind
    /// the first `from`, as many as fit into an answer. `id` is as in [`Client::instance`].
    ///
    /// # Errors
    /// See [`Error`]; `Forbidden` if the instance is of another domain.
    pub async fn files(&self, id: &str, path: &str, from: u64) -> Result<Files, Error> {
        let asked = ReadFiles { id: id.to_owned(), path: path.to_owned(), from, limit: None };
        self.line.ask(&self.query(Query::InstanceFiles), &asked, self.patience).await
    }

    /// All periodic tasks.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn periodics(&self, only: &Only) -> Result<Listed<PeriodicRow>, Error> {
        self.list(Query::PeriodicList, only).await
    }

    /// One periodic task, with the definition of what it launches.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn periodic(&self, guid: &PeriodicGuid) -> Result<One<PeriodicRow>, Error> {
        self.show(Query::PeriodicShow, guid.as_str()).await
    }

    /// All parameterised tasks.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn parameterised(&self, only: &Only) -> Result<Listed<ParameterisedRow>, Error> {
        self.list(Query::ParameterisedList, only).await
    }

    /// One parameterised task, with everything that waits and what its tasks run.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn parameterised_one(&self, guid: &ParameterisedGuid) -> Result<One<ParameterisedRow>, Error> {
        self.show(Query::ParameterisedShow, guid.as_str()).await
    }

    /// All tasks.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn tasks(&self, only: &Only) -> Result<Listed<TaskRow>, Error> {
        self.list(Query::TaskList, only).await
    }

    /// Lists tasks with their definitions.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn tasks_with_definitions(&self, only: &Only) -> Result<Listed<TaskRow>, Error> {
        self.list_filtered(Query::TaskList, Filter { definitions: true, ..filter(only) }).await
    }

    /// One task, with its definition.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn task(&self, guid: &TaskGuid) -> Result<One<TaskRow>, Error> {
        self.show(Query::TaskShow, guid.as_str()).await
    }

    /// All domains.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn domains(&self) -> Result<Listed<DomainRow>, Error> {
        self.list(Query::DomainList, &Only::default()).await
    }

    /// All cells.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn cells(&self) -> Result<Listed<CellRow>, Error> {
        self.list(Query::CellList, &Only::default()).await
    }

    /// Returns the usage and the quotas of one domain.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn domain_use(&self, domain: &Domain) -> Result<One<DomainUseRow>, Error> {
        self.show(Query::DomainShow, domain.as_str()).await
    }

    /// One cell.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn cell(&self, id: &CellId) -> Result<One<CellRow>, Error> {
        self.show(Query::CellShow, id.as_str()).await
    }

    /// The evaluations that are remembered.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn evaluations(&self, only: &Only) -> Result<Listed<EvaluationRow>, Error> {
        self.list(Query::EvaluationList, only).await
    }

    /// One evaluation.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn evaluation(&self, id: EvaluationId) -> Result<One<EvaluationRow>, Error> {
        self.show(Query::EvaluationShow, &id.to_string()).await
    }

    /// The cluster.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn cluster(&self) -> Result<One<ClusterRow>, Error> {
        self.of_cluster(Query::ClusterShow).await
    }

    /// How the cluster is, all together.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn status(&self) -> Result<One<StatusRow>, Error> {
        self.of_cluster(Query::ClusterStatus).await
    }

    async fn of_cluster<T: DeserializeOwned>(&self, query: Query) -> Result<One<T>, Error> {
        let filter = Filter { at_least: self.at_least(), as_of: self.asks_as_of(), ..Filter::default() };
        let one: One<T> = self.line.ask(&self.query(query), &filter, self.patience).await?;
        self.note(one.position);
        Ok(one)
    }

    /// One read of what happened. [`Client::events`] follows it.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn read_events(&self, read: &ReadEvents) -> Result<EventsPage, Error> {
        self.line.ask(&self.query(Query::EventsRead), read, self.patience).await
    }

    /// The JSON Schemas of events and commands that there are.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn schemas(&self) -> Result<Vec<SchemaRow>, Error> {
        self.line.ask(&self.query(Query::SchemaList), &ListSchemas {}, self.patience).await
    }

    /// The JSON Schema of a name: `entry`, the type of an event as `actual.claimed.v1`, or a command as `lrp.desire`.
    ///
    /// # Errors
    /// See [`Client::lrps`]; there is none of that name.
    pub async fn schema(&self, name: &str) -> Result<Value, Error> {
        let show = ShowSchema { name: name.to_owned() };
        self.line.ask(&self.query(Query::SchemaShow), &show, self.patience).await
    }

    /// One page of rows. [`Client::lrps`] and its like read all of them.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn page<T: DeserializeOwned>(&self, query: Query, filter: &Filter) -> Result<Page<T>, Error> {
        let page: Page<T> = self.line.ask(&self.query(query), filter, self.patience).await?;
        self.note(page.position);
        Ok(page)
    }

    async fn list<T: DeserializeOwned>(&self, query: Query, only: &Only) -> Result<Listed<T>, Error> {
        // Both records of an instance: who looks at the rows decides.
        self.list_filtered(query, Filter { all: query == Query::InstanceList, ..filter(only) }).await
    }

    /// All pages at one position. Where that is no longer held it begins anew, at a later one.
    async fn list_filtered<T: DeserializeOwned>(
        &self,
        query: Query,
        filter: Filter,
    ) -> Result<Listed<T>, Error> {
        for _ in 1..LISTED_ANEW {
            match self.list_once(query, filter.clone()).await {
                Err(error) if error.code() == Some(Code::Expired) => {}
                listed => return listed,
            }
        }
        self.list_once(query, filter).await
    }

    async fn list_once<T: DeserializeOwned>(&self, query: Query, filter: Filter) -> Result<Listed<T>, Error> {
        let mut filter = Filter { at_least: self.at_least(), as_of: self.asks_as_of(), ..filter };
        let Page { position, mut rows, mut next } = self.page(query, &filter).await?;
        while let Some(cursor) = next {
            if filter.cursor.as_ref() == Some(&cursor) {
                let why = format!("the page at {cursor:?} is followed by itself");
                return Err(Error::Protocol { subject: self.query(query), why });
            }
            filter.cursor = Some(cursor);
            let page = self.page(query, &filter).await?;
            rows.extend(page.rows);
            next = page.next;
        }
        Ok(Listed { position, rows })
    }

    async fn show<T: DeserializeOwned>(&self, query: Query, id: &str) -> Result<One<T>, Error> {
        match self.show_once(query, id).await {
            Err(missing) if missing.is_not_found() && self.asks_as_of().is_none() => {
                let before = self.line.seen();
                self.see_the_end().await?;
                if self.line.seen() == before { Err(missing) } else { self.show_once(query, id).await }
            }
            shown => shown,
        }
    }

    /// From here on every query sees at least what the log holds now.
    async fn see_the_end(&self) -> Result<(), Error> {
        let read = ReadEvents { after: Position(0), limit: Some(1), wait_ms: None, about: None };
        let page = self.read_events(&read).await?;
        self.line.note(page.end);
        Ok(())
    }

    async fn show_once<T: DeserializeOwned>(&self, query: Query, id: &str) -> Result<One<T>, Error> {
        let show = Show { id: id.to_owned(), at_least: self.at_least(), as_of: self.asks_as_of() };
        let one: One<T> = self.line.ask(&self.query(query), &show, self.patience).await?;
        self.note(one.position);
        Ok(one)
    }
}
