//! Output of containers, either up to its current end or followed.

use schemas::names::InstanceGuid;
use schemas::query::{Logs, ReadLogs};
use tokio::time::sleep;

use crate::client::Client;
use crate::error::Error;
use crate::limits::{LOG_BYTES, LOG_POLL_INTERVAL};
use crate::subjects::Query;

/// Container of the log to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogSource {
    /// Container of an instance: `PROCESS/INDEX`, `PROCESS/INDEX@DEFINITION`, or an instance guid.
    Instance(String),
    /// Last crashed container at `PROCESS/INDEX` or `PROCESS/INDEX@DEFINITION`, even if another container is
    /// running.
    Previous(String),
    Task(String),
}

/// Reader of a log.
#[derive(Debug)]
pub struct LogReader {
    client: Client,
    whose: LogSource,
    follow: bool,
    from: u64,
    container: Option<InstanceGuid>,
    done: bool,
}

/// Part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// Container that wrote the text.
    pub container: InstanceGuid,
    /// Text, never empty.
    pub text: String,
}

impl LogSource {
    /// Returns `true` if the id names a slot (an index of a process), which can have several containers in
    /// succession. Returns `false` if it names a single container.
    fn names_slot(&self) -> bool {
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
    /// Reads a log from the oldest retained text. With `follow`, the reader waits for more text until the
    /// container is gone. For `PROCESS/INDEX`, the reader continues with the next container until the
    /// instance is gone. While an instance has no container, its log is the log of the last crashed
    /// container.
    #[must_use]
    pub fn logs(&self, whose: LogSource, follow: bool) -> LogReader {
        LogReader { client: self.clone(), whose, follow, from: 0, container: None, done: false }
    }
}

impl LogReader {
    /// Continues after the last returned text, and waits for more text.
    pub fn continue_following(&mut self) {
        (self.follow, self.done) = (true, false);
    }

    /// Reads the rest of the existing text without waiting for more.
    pub const fn stop_following(&mut self) {
        self.follow = false;
    }

    /// Returns the next part of the log. `None` at the end of the log.
    ///
    /// # Errors
    /// See [`Error`]; `ResourceNotFound` if the container does not exist.
    pub async fn next(&mut self) -> Result<Option<LogChunk>, Error> {
        while !self.done {
            let logs = match self.read(self.whose.is_previous()).await {
                Ok(logs) => logs,
                Err(error) if error.is_not_found() && self.may_reappear() => {
                    self.handle_container_end().await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if self.is_other_container(&logs) {
                if let Some(rest) = self.read_crashed_rest().await {
                    return Ok(Some(rest));
                }
                self.container = Some(logs.instance_guid);
                self.from = 0;
                continue;
            }
            self.container = Some(logs.instance_guid);
            self.from = logs.next;
            if !logs.text.is_empty() {
                return Ok(Some(LogChunk { container: logs.instance_guid, text: logs.text }));
            }
            if logs.ended {
                self.handle_container_end().await?;
            } else if self.follow {
                sleep(LOG_POLL_INTERVAL).await;
            } else {
                self.done = true;
            }
        }
        Ok(None)
    }

    /// Returns `true` if a missing container is not an error, because an earlier container existed or a later
    /// one will follow.
    fn may_reappear(&self) -> bool {
        self.container.is_some() || (self.follow && self.whose.names_slot())
    }

    /// Returns `true` if the log comes from another container than the text read so far.
    fn is_other_container(&self, logs: &Logs) -> bool {
        self.container.is_some_and(|known| known != logs.instance_guid)
    }

    /// Returns the unread rest of the current container's text. `None` if the container did not crash, or if
    /// no text is unread.
    async fn read_crashed_rest(&mut self) -> Option<LogChunk> {
        let rest = self
            .read(true)
            .await
            .ok()
            .filter(|rest| !self.is_other_container(rest) && !rest.text.is_empty())?;
        self.from = rest.next;
        Some(LogChunk { container: rest.instance_guid, text: rest.text })
    }

    /// Handles the end of a container's log. The reader ends, or waits for the next container in the same
    /// slot.
    async fn handle_container_end(&mut self) -> Result<(), Error> {
        let LogSource::Instance(id) = &self.whose else {
            self.done = true;
            return Ok(());
        };
        if !self.follow || !self.whose.names_slot() {
            self.done = true;
            return Ok(());
        }
        match self.client.instance(id).await {
            Ok(_) => sleep(LOG_POLL_INTERVAL).await,
            Err(error) if error.is_not_found() && self.container.is_some() => self.done = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn read(&self, previous: bool) -> Result<Logs, Error> {
        let (query, id) = match &self.whose {
            LogSource::Instance(id) | LogSource::Previous(id) => (Query::InstanceLogs, id),
            LogSource::Task(id) => (Query::TaskLogs, id),
        };
        let question = ReadLogs { id: id.clone(), from: self.from, limit: Some(LOG_BYTES), previous };
        self.client.line.request(&self.client.query_subject(query), &question, self.client.patience).await
    }
}
