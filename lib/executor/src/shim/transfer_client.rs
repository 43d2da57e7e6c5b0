//! Client of the executor's transfer service. It requests downloads and uploads.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use schemas::action::Transfer;
use schemas::container::Recipe;
use tokio::time::{Instant, sleep};

use crate::socket;
use crate::transfer::{SOCKET, TransferReply, TransferRequest, transfer_number};

/// Time limit for repeated requests while no executor is running, counted from the first request.
const TRANSFER_TIMEOUT: Duration = Duration::from_mins(60);
/// Delay before the next attempt of a request while no executor is running.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Requests the transfers of a container from the executor.
#[derive(Debug)]
pub(super) struct TransferClient {
    folder: PathBuf,
}

/// Result of a transfer.
#[derive(Debug)]
pub(super) struct Transferred {
    pub(super) bytes: u64,
    pub(super) kept: bool,
    /// Downloaded file. `None` for an upload.
    pub(super) file: Option<File>,
}

impl TransferClient {
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Requests a transfer of the recipe. For an upload, `file` is attached. Returns the reason if the
    /// transfer failed. If the executor is gone, the request is repeated until another executor is running.
    pub(super) async fn transfer(
        &self,
        recipe: &Recipe,
        transfer: Transfer<'_>,
        file: Option<&File>,
    ) -> Result<Transferred, String> {
        let number = transfer_number(recipe, transfer).ok_or("the recipe has no such transfer")?;
        let until = Instant::now() + TRANSFER_TIMEOUT;
        loop {
            match self.request(TransferRequest { number }, file).await {
                Ok((TransferReply::Done { bytes, from_cache }, file)) => {
                    return Ok(Transferred { bytes, kept: from_cache, file });
                }
                Ok((TransferReply::Failed(reason), _)) => return Err(reason),
                Err(error) if is_executor_gone(&error) && Instant::now() < until => sleep(RETRY_DELAY).await,
                Err(error) => return Err(format!("cannot send the request to the cell: {error}")),
            }
        }
    }

    async fn request(
        &self,
        question: TransferRequest,
        file: Option<&File>,
    ) -> io::Result<(TransferReply, Option<File>)> {
        let executor = socket::connect(&self.folder, SOCKET).await?;
        socket::send(&executor, &question, file.map(AsFd::as_fd).as_slice()).await?;
        let (answer, mut files) = socket::receive(&executor).await?;
        Ok((answer, files.pop().map(File::from)))
    }
}

/// Returns `true` if the error means that no executor is running.
fn is_executor_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotFound
            | io::ErrorKind::UnexpectedEof
    )
}
