//! Queries of a client. A query reads all pages at one position.

use schemas::container::PortMapping;
use schemas::health::ContainerHealth;
use schemas::names::{CellId, Domain, EvaluationId, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use schemas::published::{ListSchemas, SchemaRow, ShowSchema};
use schemas::query::{
    CellRow, ClusterRow, DomainRow, DomainUseRow, EndedInstanceRow, EndedTaskRow, EvaluationRow, EventsPage,
    Files, Filter, InstanceRow, LrpRow, Page, ParameterisedRow, PeriodicRow, ReadEvents, ReadFiles, Show,
    ShowAnswer, StatusRow, TaskRow,
};
use schemas::{ActualLrpKey, Code, Place, Position};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::Client;
use crate::error::Error;
use crate::limits::LIST_ATTEMPTS;
use crate::subjects::Query;

/// Rows of a complete list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListAnswer<T> {
    /// Position of the World snapshot.
    pub position: Position,
    /// Rows, sorted by name.
    pub rows: Vec<T>,
}

/// Filter of a list. An empty filter selects all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListFilter {
    pub domain: Option<Domain>,
    pub process_guid: Option<ProcessGuid>,
    pub cell_id: Option<CellId>,
}

impl ListFilter {
    /// Selects the rows of a domain.
    #[must_use]
    pub fn domain(domain: Domain) -> Self {
        Self { domain: Some(domain), ..Self::default() }
    }

    /// Selects the rows of a process.
    #[must_use]
    pub fn process(guid: ProcessGuid) -> Self {
        Self { process_guid: Some(guid), ..Self::default() }
    }

    /// Selects the rows on a cell.
    #[must_use]
    pub fn cell(id: CellId) -> Self {
        Self { cell_id: Some(id), ..Self::default() }
    }
}

fn filter(only: &ListFilter) -> Filter {
    Filter {
        domain: only.domain.clone(),
        process_guid: only.process_guid.clone(),
        cell_id: only.cell_id.clone(),
        ..Filter::default()
    }
}

/// Returns the key of the instance in a row. Its text is `PROCESS/INDEX`, or in full
/// `PROCESS/INDEX@DEFINITION`. Queries accept both texts.
#[must_use]
pub fn instance_key(row: &InstanceRow) -> ActualLrpKey {
    ActualLrpKey::new(row.process_guid.clone(), Place::new(row.index, row.definition_id.clone()))
}

/// Returns the address of a port of an instance: `address:host_port`. `None` if the instance has no address.
#[must_use]
pub fn port_address(row: &InstanceRow, port: &PortMapping) -> Option<String> {
    row.address.as_ref().map(|address| format!("{address}:{}", port.host_port))
}

impl Client {
    /// Lists processes.
    ///
    /// # Errors
    /// See [`Error`]. This applies to every query below. If an object does not exist, the error is `Refused`
    /// with `ResourceNotFound`.
    pub async fn lrps(&self, only: &ListFilter) -> Result<ListAnswer<LrpRow>, Error> {
        self.list(Query::LrpList, only).await
    }

    /// Returns one process with its definition.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn lrp(&self, guid: &ProcessGuid) -> Result<ShowAnswer<LrpRow>, Error> {
        self.show(Query::LrpShow, guid.as_str()).await
    }

    /// Lists instances, including evacuating instances.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn instances(&self, only: &ListFilter) -> Result<ListAnswer<InstanceRow>, Error> {
        self.list(Query::InstanceList, only).await
    }

    /// Lists instances with one row each. An index under evacuation has two rows: the EVACUATING row and the
    /// row of its replacement. The list contains the EVACUATING row while the replacement is UNCLAIMED or
    /// CLAIMED, and the row of the replacement afterwards.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn effective_instances(&self, only: &ListFilter) -> Result<ListAnswer<InstanceRow>, Error> {
        self.list_filtered(Query::InstanceList, filter(only)).await
    }

    /// Lists processes with their definitions.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn lrps_with_definitions(&self, only: &ListFilter) -> Result<ListAnswer<LrpRow>, Error> {
        self.list_filtered(Query::LrpList, Filter { definitions: true, ..filter(only) }).await
    }

    /// Returns one instance. `id` is `PROCESS/INDEX@DEFINITION`, `PROCESS/INDEX`, or an instance guid. If the
    /// index has instances of several definitions, `PROCESS/INDEX` selects the instance of the active
    /// definition. There is at least one row. If the instance is being evacuated, there may be a second row
    /// for its evacuating instance.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn instance(&self, id: &str) -> Result<ShowAnswer<Vec<InstanceRow>>, Error> {
        self.show(Query::InstanceShow, id).await
    }

    /// Lists the containers of ended instances. Only the newest containers of each index are kept. `index`
    /// selects one index of the process in the filter.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn ended_instances(
        &self,
        only: &ListFilter,
        index: Option<u32>,
    ) -> Result<ListAnswer<EndedInstanceRow>, Error> {
        self.list_filtered(Query::InstanceEnded, Filter { index, ..filter(only) }).await
    }

    /// Lists completed and deleted tasks. Only the newest tasks of each domain are kept.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn ended_tasks(&self, only: &ListFilter) -> Result<ListAnswer<EndedTaskRow>, Error> {
        self.list_filtered(Query::TaskEnded, filter(only)).await
    }

    /// Returns the monitor results of an instance's containers, requested from their cells. There is one
    /// result per container. An instance has two containers during its evacuation, and may have no container
    /// at other times.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn instance_health(&self, id: &str) -> Result<Vec<ContainerHealth>, Error> {
        let show = Show { id: id.to_owned(), at_least: None, as_of: self.query_moment() };
        self.line.request(&self.query_subject(Query::InstanceHealth), &show, self.patience).await
    }

    /// Reads a path in the work directory of an instance. For a file, returns its bytes from the offset
    /// `from`. For a folder, returns its entries without the first `from` ones. The maximum size of an answer
    /// limits the result. `id` has the form that [`Client::instance`] accepts.
    ///
    /// # Errors
    /// See [`Error`]; `Forbidden` if the instance belongs to another domain.
    pub async fn files(&self, id: &str, path: &str, from: u64) -> Result<Files, Error> {
        let asked = ReadFiles { id: id.to_owned(), path: path.to_owned(), from, limit: None };
        self.line.request(&self.query_subject(Query::InstanceFiles), &asked, self.patience).await
    }

    /// Lists periodic tasks.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn periodics(&self, only: &ListFilter) -> Result<ListAnswer<PeriodicRow>, Error> {
        self.list(Query::PeriodicList, only).await
    }

    /// Returns one periodic task with the definition of the tasks that it launches.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn periodic(&self, guid: &PeriodicGuid) -> Result<ShowAnswer<PeriodicRow>, Error> {
        self.show(Query::PeriodicShow, guid.as_str()).await
    }

    /// Lists parameterised tasks.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn parameterised(&self, only: &ListFilter) -> Result<ListAnswer<ParameterisedRow>, Error> {
        self.list(Query::ParameterisedList, only).await
    }

    /// Returns one parameterised task with its waiting dispatches and the definition of its tasks.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn parameterised_one(
        &self,
        guid: &ParameterisedGuid,
    ) -> Result<ShowAnswer<ParameterisedRow>, Error> {
        self.show(Query::ParameterisedShow, guid.as_str()).await
    }

    /// Lists tasks.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn tasks(&self, only: &ListFilter) -> Result<ListAnswer<TaskRow>, Error> {
        self.list(Query::TaskList, only).await
    }

    /// Lists tasks with their definitions.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn tasks_with_definitions(&self, only: &ListFilter) -> Result<ListAnswer<TaskRow>, Error> {
        self.list_filtered(Query::TaskList, Filter { definitions: true, ..filter(only) }).await
    }

    /// Returns one task with its definition.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn task(&self, guid: &TaskGuid) -> Result<ShowAnswer<TaskRow>, Error> {
        self.show(Query::TaskShow, guid.as_str()).await
    }

    /// Lists domains.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn domains(&self) -> Result<ListAnswer<DomainRow>, Error> {
        self.list(Query::DomainList, &ListFilter::default()).await
    }

    /// Lists cells.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn cells(&self) -> Result<ListAnswer<CellRow>, Error> {
        self.list(Query::CellList, &ListFilter::default()).await
    }

    /// Returns the usage and the quotas of one domain.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn domain_use(&self, domain: &Domain) -> Result<ShowAnswer<DomainUseRow>, Error> {
        self.show(Query::DomainShow, domain.as_str()).await
    }

    /// Returns one cell.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn cell(&self, id: &CellId) -> Result<ShowAnswer<CellRow>, Error> {
        self.show(Query::CellShow, id.as_str()).await
    }

    /// Lists the evaluations that the cluster retains. An evaluation is one attempt to place the work of a
    /// process or task.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn evaluations(&self, only: &ListFilter) -> Result<ListAnswer<EvaluationRow>, Error> {
        self.list(Query::EvaluationList, only).await
    }

    /// Returns one evaluation.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn evaluation(&self, id: EvaluationId) -> Result<ShowAnswer<EvaluationRow>, Error> {
        self.show(Query::EvaluationShow, &id.to_string()).await
    }

    /// Returns the properties of the cluster.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn cluster(&self) -> Result<ShowAnswer<ClusterRow>, Error> {
        self.show_cluster(Query::ClusterShow).await
    }

    /// Returns the overall status of the cluster.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn status(&self) -> Result<ShowAnswer<StatusRow>, Error> {
        self.show_cluster(Query::ClusterStatus).await
    }

    async fn show_cluster<T: DeserializeOwned>(&self, query: Query) -> Result<ShowAnswer<T>, Error> {
        let filter = Filter { at_least: self.at_least(), as_of: self.query_moment(), ..Filter::default() };
        let one: ShowAnswer<T> =
            self.line.request(&self.query_subject(query), &filter, self.patience).await?;
        self.record_position(one.position);
        Ok(one)
    }

    /// Reads one page of entries. [`Client::events`] follows the log.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn read_events(&self, read: &ReadEvents) -> Result<EventsPage, Error> {
        self.line.request(&self.query_subject(Query::EventsRead), read, self.patience).await
    }

    /// Lists the JSON Schemas of events, commands, queries and rows.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn schemas(&self) -> Result<Vec<SchemaRow>, Error> {
        self.line.request(&self.query_subject(Query::SchemaList), &ListSchemas {}, self.patience).await
    }

    /// Returns the JSON Schema of a name: `entry`, an event type such as `actual.claimed.v1`, a command such as
    /// `lrp.desire`, a query such as `lrp.list`, or a row such as `LrpRow`.
    ///
    /// # Errors
    /// See [`Client::lrps`]. Also returns an error if no schema has this name.
    pub async fn schema(&self, name: &str) -> Result<Value, Error> {
        let show = ShowSchema { name: name.to_owned() };
        self.line.request(&self.query_subject(Query::SchemaShow), &show, self.patience).await
    }

    /// Reads one page of rows. [`Client::lrps`] and similar methods read all pages.
    ///
    /// # Errors
    /// See [`Client::lrps`].
    pub async fn page<T: DeserializeOwned>(&self, query: Query, filter: &Filter) -> Result<Page<T>, Error> {
        let page: Page<T> = self.line.request(&self.query_subject(query), filter, self.patience).await?;
        self.record_position(page.position);
        Ok(page)
    }

    async fn list<T: DeserializeOwned>(
        &self,
        query: Query,
        only: &ListFilter,
    ) -> Result<ListAnswer<T>, Error> {
        // List both rows of an evacuating instance, so that the caller can choose one.
        self.list_filtered(query, Filter { all: query == Query::InstanceList, ..filter(only) }).await
    }

    /// Reads all pages at one position. If that position expires, starts again at a later position.
    async fn list_filtered<T: DeserializeOwned>(
        &self,
        query: Query,
        filter: Filter,
    ) -> Result<ListAnswer<T>, Error> {
        for _ in 1..LIST_ATTEMPTS {
            match self.list_once(query, filter.clone()).await {
                Err(error) if error.code() == Some(Code::Expired) => {}
                listed => return listed,
            }
        }
        self.list_once(query, filter).await
    }

    async fn list_once<T: DeserializeOwned>(
        &self,
        query: Query,
        filter: Filter,
    ) -> Result<ListAnswer<T>, Error> {
        let mut filter = Filter { at_least: self.at_least(), as_of: self.query_moment(), ..filter };
        let Page { position, mut rows, mut next } = self.page(query, &filter).await?;
        while let Some(cursor) = next {
            if filter.cursor.as_ref() == Some(&cursor) {
                let why = format!("the page at {cursor:?} names itself as the next page");
                return Err(Error::Protocol { subject: self.query_subject(query), why });
            }
            filter.cursor = Some(cursor);
            let page = self.page(query, &filter).await?;
            rows.extend(page.rows);
            next = page.next;
        }
        Ok(ListAnswer { position, rows })
    }

    async fn show<T: DeserializeOwned>(&self, query: Query, id: &str) -> Result<ShowAnswer<T>, Error> {
        match self.show_once(query, id).await {
            Err(missing) if missing.is_not_found() && self.query_moment().is_none() => {
                let before = self.line.seen_position();
                self.advance_to_log_end().await?;
                if self.line.seen_position() == before {
                    Err(missing)
                } else {
                    self.show_once(query, id).await
                }
            }
            shown => shown,
        }
    }

    /// Raises the minimum position of all later queries to the current end of the log.
    async fn advance_to_log_end(&self) -> Result<(), Error> {
        let read = ReadEvents { after: Position(0), limit: Some(1), wait_ms: None, target: None };
        let page = self.read_events(&read).await?;
        self.line.record_position(page.end);
        Ok(())
    }

    async fn show_once<T: DeserializeOwned>(&self, query: Query, id: &str) -> Result<ShowAnswer<T>, Error> {
        let show = Show { id: id.to_owned(), at_least: self.at_least(), as_of: self.query_moment() };
        let one: ShowAnswer<T> = self.line.request(&self.query_subject(query), &show, self.patience).await?;
        self.record_position(one.position);
        Ok(one)
    }
}
