//! What a container writes, read to its end or followed.

use schemas::names::InstanceGuid;
use schemas::query::{Logs, ReadLogs};
use tokio::time::sleep;

use crate::client::Client;
use crate::error::Error;
use crate::limits::{LOG_BYTES, LOG_PAUSE};
use crate::subjects::Query;

/// Whose log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// An instance's: `PROCESS/INDEX`, `PROCESS/INDEX@DEFINITION`, or an instance guid.
    Instance(String),
    /// That of the container that crashed last at `PROCESS/INDEX` or `PROCESS/INDEX@DEFINITION`, even while another
    /// runs.
    Previous(String),
    /// A task's.
    Task(String),
}

/// A log that is being read.
#[derive(Debug)]
pub struct LogReader {
    client: Client,
    whose: Whose,
    follow: bool,
    from: u64,
    container: Option<InstanceGuid>,
    done: bool,
}

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The container that wrote it.
    pub container: InstanceGuid,
    /// What it wrote; never empty.
    pub text: String,
}

impl Whose {
    /// Whether it names a place where one container may follow another, rather than one container.
    fn outlives_containers(&self) -> bool {
        match self {
            Self::Instance(id) => id.contains('/'),
            Self::Previous(_) | Self::Task(_) => false,
        }
    }

    const fn is_previous(&self) -> bool {
        match self {
            Self::Previous(_) => true,
            Self::Instance(_) | Self::Task(_) => false,
        }
    }
}

impl Client {
    /// Reads a log from the oldest that is kept. With `follow` it waits for more until the container is gone; of
    /// `PROCESS/INDEX` it goes on with the next container, until the instance is gone. While an instance has no
    /// container, its log is that of the one that crashed last.
    #[must_use]
    pub fn logs(&self, whose: Whose, follow: bool) -> LogReader {
        LogReader { client: self.clone(), whose, follow, from: 0, container: None, done: false }
    }
}

impl LogReader {
    /// Goes on from where it was read to, and waits for more.
    pub fn go_on(&mut self) {
        (self.follow, self.done) = (true, false);
    }

    /// The next piece; none: there is no more.
    ///
    /// # Errors
    /// See [`Error`]; `ResourceNotFound` if there is no such container.
    pub async fn next(&mut self) -> Result<Option<Piece>, Error> {
        while !self.done {
            let logs = match self.read(self.whose.is_previous()).await {
                Ok(logs) => logs,
                Err(error) if error.is_not_found() && self.may_come_back() => {
                    self.container_gone().await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if self.is_another(&logs) {
                if let Some(rest) = self.last_words().await {
                    return Ok(Some(rest));
                }
                self.container = Some(logs.instance_guid);
                self.from = 0;
                continue;
            }
            self.container = Some(logs.instance_guid);
            self.from = logs.next;
            if !logs.text.is_empty() {
                return Ok(Some(Piece { container: logs.instance_guid, text: logs.text }));
            }
            if logs.ended {
                self.container_gone().await?;
            } else if self.follow {
                sleep(LOG_PAUSE).await;
            } else {
                self.done = true;
            }
        }
        Ok(None)
    }

    /// Whether that there is no container is not a failure: there was one, or one will come.
    fn may_come_back(&self) -> bool {
        self.container.is_some() || (self.follow && self.whose.outlives_containers())
    }

    /// Whether another container took the place of the one that was read so far.
    fn is_another(&self, logs: &Logs) -> bool {
        self.container.is_some_and(|known| known != logs.instance_guid)
    }

    /// What the container that was read so far wrote before it crashed, if that is what became of it and something of
    /// it was not read yet.
    async fn last_words(&mut self) -> Option<Piece> {
        let rest =
            self.read(true).await.ok().filter(|rest| !self.is_another(rest) && !rest.text.is_empty())?;
        self.from = rest.next;
        Some(Piece { container: rest.instance_guid, text: rest.text })
    }

    /// What follows when a container wrote its last: nothing, or another container in its place.
    async fn container_gone(&mut self) -> Result<(), Error> {
        let Whose::Instance(id) = &self.whose else {
            self.done = true;
            return Ok(());
        };
        if !self.follow || !self.whose.outlives_containers() {
            self.done = true;
            return Ok(());
        }
        match self.client.instance(id).await {
            Ok(_) => sleep(LOG_PAUSE).await,
            Err(error) if error.is_not_found() && self.container.is_some() => self.done = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn read(&self, previous: bool) -> Result<Logs, Error> {
        let (query, id) = match &self.whose {
            Whose::Instance(id) | Whose::Previous(id) => (Query::InstanceLogs, id),
            Whose::Task(id) => (Query::TaskLogs, id),
        };
        let question = ReadLogs { id: id.clone(), from: self.from, limit: Some(LOG_BYTES), previous };
        self.client.line.ask(&self.client.query(query), &question, self.client.patience).await
    }
}
