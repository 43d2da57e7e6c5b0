//! Asks the executor to fetch and send.

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

/// How long it is asked for one thing, however often the executor goes and another one comes.
const LIMIT: Duration = Duration::from_mins(60);
/// The pause before it is asked again when it is gone.
const PAUSE: Duration = Duration::from_millis(250);

/// Who fetches and sends for a container.
#[derive(Debug)]
pub(super) struct Carrier {
    folder: PathBuf,
}

/// What was fetched or sent.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) bytes: u64,
    pub(super) kept: bool,
    /// What was fetched.
    pub(super) file: Option<File>,
}

impl Carrier {
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Has something of the recipe be fetched, or this file be sent; else says why not. An executor that is gone is waited for.
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

/// Whether an error says that there is no executor at present.
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
