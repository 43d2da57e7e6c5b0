//! Download and upload actions (docs/internals/model/transfers.md, "Downloads and uploads").

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::process::Stdio;
use std::rc::Rc;

use futures::future::join_all;
use schemas::action::{Download, Transfer, Upload};

use super::actions::{Failure, MIB, Performer, Scope, log_line, spawn_confined};
use super::log::Source;
use super::output::Sink;
use super::transfer_client::Transferred;
use crate::archive::MAX_UNPACKED_BYTES;
use crate::isolation::{self, Operation, StartError};
use crate::transfer::{artifact_name, dependencies};

impl Performer {
    /// Downloads all dependencies concurrently, before anything else runs.
    pub(super) async fn fetch_dependencies(&self, scope: &Scope<'_>) -> Result<(), Failure> {
        let all = dependencies(&self.spec.recipe).iter().map(|download| self.download(download, scope));
        join_all(all).await.into_iter().collect()
    }

    /// Downloads an archive and unpacks it.
    pub(super) async fn download(&self, download: &Download, scope: &Scope<'_>) -> Result<(), Failure> {
        let scope = &scope.with_label(&self.label(&download.log_source));
        let transfer = Transfer::Download(download);
        log_transfer(scope, transfer, Source::Out, |name| format!("Downloading {name}..."));
        let done = self.fetch_and_unpack(download, scope).await;
        match &done {
            Ok(Transferred { bytes, kept, .. }) => log_transfer(scope, transfer, Source::Out, |name| {
                let from = if *kept { ", from cache" } else { "" };
                format!("Downloaded {name} ({}{from})", format_bytes(*bytes))
            }),
            Err(failure) => log_transfer(scope, transfer, Source::Err, |_| failure.to_string()),
        }
        done.map(drop)
    }

    async fn fetch_and_unpack(&self, download: &Download, scope: &Scope<'_>) -> Result<Transferred, Failure> {
        let transfer = Transfer::Download(download);
        let mut carried = self.request_transfer(transfer, None, scope, "Downloading").await?;
        let failed = |why: &str| transfer_failure("Unpacking", transfer, why);
        let archive = carried.file.take().ok_or_else(|| failed("the archive was not received"))?;
        let tail = Rc::new(RefCell::new(VecDeque::new()));
        let (child, socket) =
            spawn_confined(archive.into(), Stdio::piped()).map_err(|error| failed(&error.to_string()))?;
        let program = self.program(child, &Sink::Tail(Rc::clone(&tail)));
        let to = download.to.clone();
        let wish =
            self.request(Operation::Unpack { to, max_bytes: self.max_unpacked_bytes() }, &download.user);
        match isolation::send_request(socket, &wish, None) {
            Ok(Ok(())) => {}
            Ok(Err(StartError::WorkingDir(_, why) | StartError::Other(why))) => return Err(failed(&why)),
            Err(error) => return Err(failed(&error.to_string())),
        }
        let status = self.wait_for_end(program, scope).await.ok_or(Failure::Interrupted)?;
        let Err(end) = self.result_of(status) else { return Ok(carried) };
        // The last line that the program wrote explains the failure better than its exit status. If the
        // program was killed, the signal is the reason.
        let said = tail.borrow_mut().pop_back();
        Err(failed(&said.filter(|_| end.exit_status().is_some()).unwrap_or_else(|| end.to_string())))
    }

    /// Uploads a file.
    pub(super) async fn upload(&self, upload: &Upload, scope: &Scope<'_>) -> Result<(), Failure> {
        let scope = &scope.with_label(&self.label(&upload.log_source));
        let transfer = Transfer::Upload(upload);
        log_transfer(scope, transfer, Source::Out, |name| format!("Uploading {name}..."));
        let done = match self.open_for_upload(upload) {
            Ok(file) => self.request_transfer(transfer, Some(&file), scope, "Uploading").await,
            Err(why) => Err(transfer_failure("Reading", transfer, &why)),
        };
        match &done {
            Ok(Transferred { bytes, .. }) => {
                log_transfer(scope, transfer, Source::Out, |name| {
                    format!("Uploaded {name} ({})", format_bytes(*bytes))
                });
            }
            Err(failure) => log_transfer(scope, transfer, Source::Err, |_| failure.to_string()),
        }
        done.map(drop)
    }

    /// Opens a file of the container with the rights of a user of the container.
    fn open_for_upload(&self, upload: &Upload) -> Result<File, String> {
        let told = |error: io::Error| error.to_string();
        let (child, socket) = spawn_confined(Stdio::null(), Stdio::null()).map_err(told)?;
        let wish = self.request(Operation::Open { path: upload.from.clone() }, &upload.user);
        let opened = isolation::request_file(socket, &wish);
        // The reply already contains the result, so the exit status is not needed. The process is reaped
        // together with the other processes of the container.
        drop(child);
        match opened.map_err(told)? {
            Ok(file) => Ok(file),
            Err(StartError::WorkingDir(_, why) | StartError::Other(why)) => Err(why),
        }
    }

    /// Requests a transfer from the cell. The transfer is cancelled if the scope is interrupted.
    async fn request_transfer(
        &self,
        transfer: Transfer<'_>,
        file: Option<&File>,
        scope: &Scope<'_>,
        doing: &str,
    ) -> Result<Transferred, Failure> {
        tokio::select! {
            biased;
            () = scope.interrupt.cancelled() => Err(Failure::Interrupted),
            carried = self.transfers.transfer(&self.spec.recipe, transfer, file) => {
                carried.map_err(|why| transfer_failure(doing, transfer, &why))
            }
        }
    }

    /// Returns the maximum unpacked size of an archive in bytes.
    fn max_unpacked_bytes(&self) -> u64 {
        match self.spec.recipe.resources.disk_mb {
            0 => MAX_UNPACKED_BYTES,
            disk_mb => disk_mb.saturating_mul(MIB).min(MAX_UNPACKED_BYTES),
        }
    }
}

/// Logs a message about a transfer, if its artifact has a name.
fn log_transfer(
    scope: &Scope<'_>,
    transfer: Transfer<'_>,
    source: Source,
    text: impl FnOnce(&str) -> String,
) {
    match artifact_name(transfer) {
        "" => {}
        name => log_line(source, &text(name), scope),
    }
}

fn transfer_failure(doing: &str, transfer: Transfer<'_>, why: &str) -> Failure {
    Failure::Reason(match artifact_name(transfer) {
        "" => format!("{doing} failed: {why}"),
        name => format!("{doing} {name} failed: {why}"),
    })
}

/// Formats a number of bytes with a unit, such as `1.5 MiB`.
fn format_bytes(bytes: u64) -> String {
    const KIB: u64 = 1024;
    let tenths = |unit: u64| format!("{}.{}", bytes / unit, bytes % unit * 10 / unit);
    match bytes {
        MIB.. => format!("{} MiB", tenths(MIB)),
        KIB.. => format!("{} KiB", tenths(KIB)),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::format_bytes;

    #[test]
    fn sizes_are_formatted_with_units() {
        let told = [0, 1023, 1024, 1_600, 1_048_576, 1_073_741_824].map(format_bytes);
        assert_eq!(told, ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1024.0 MiB"]);
    }
}
