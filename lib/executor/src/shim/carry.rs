//! Client of the executor's transfer service: requests downloads and uploads.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use schemas::action::Transfer;
use schemas::container::Recipe;
use tokio::time::{Instant, sleep};

use crate::socket;
use crate::transfer::{Answer, Question, SOCKET, number_of};

/// Time, counted from the first request, after which a request is not repeated while the executor is gone.
const LIMIT: Duration = Duration::from_mins(60);
/// Delay before a request is repeated while no executor is running.
const PAUSE: Duration = Duration::from_millis(250);

/// Requests the transfers of a container from the executor.
#[derive(Debug)]
pub(super) struct Carrier {
    folder: PathBuf,
}

/// Result of a transfer.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) bytes: u64,
    pub(super) kept: bool,
    /// Downloaded file. `None` for an upload.
    pub(super) file: Option<File>,
}

impl Carrier {
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Requests a transfer of the recipe, with the file for an upload. Returns the reason if it failed. If
    /// the executor is gone, the request is repeated until another one runs.
    pub(super) async fn carry(
        &self,
        recipe: &Recipe,
        transfer: Transfer<'_>,
        file: Option<&File>,
    ) -> Result<Carried, String> {
        let number = number_of(recipe, transfer).ok_or("it is none of what the container may have")?;
        let until = Instant::now() + LIMIT;
        loop {
            match self.ask(Question { number }, file).await {
                Ok((Answer::Done { bytes, kept }, file)) => return Ok(Carried { bytes, kept, file }),
                Ok((Answer::Failed(reason), _)) => return Err(reason),
                Err(error) if is_gone(&error) && Instant::now() < until => sleep(PAUSE).await,
                Err(error) => return Err(format!("the cell cannot be asked for it: {error}")),
            }
        }
    }

    async fn ask(&self, question: Question, file: Option<&File>) -> io::Result<(Answer, Option<File>)> {
        let executor = socket::connect(&self.folder, SOCKET).await?;
        socket::send(&executor, &question, file.map(AsFd::as_fd).as_slice()).await?;
        let (answer, mut files) = socket::receive(&executor).await?;
        Ok((answer, files.pop().map(File::from)))
    }
}

/// Returns `true` if the error means that no executor is running.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotFound
            | io::ErrorKind::UnexpectedEof
    )
}
