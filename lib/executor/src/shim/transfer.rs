//! Download and upload actions (docs/model.md, "Downloads and uploads").

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::process::Stdio;
use std::rc::Rc;

use futures::future::join_all;
use schemas::action::{Download, Transfer, Upload};

use super::carry::Carried;
use super::log::Source;
use super::output::Sink;
use super::perform::{Failure, MIB, Performer, Scope, begin_inside, log_line};
use crate::archive::UNPACKED_BYTES;
use crate::isolation::{self, Deed, NotStarted};
use crate::transfer::{dependencies, name_of};

impl Performer {
    /// Downloads all dependencies concurrently, before anything else runs.
    pub(super) async fn fetch_dependencies(&self, scope: &Scope<'_>) -> Result<(), Failure> {
        let all = dependencies(&self.spec.recipe).iter().map(|download| self.download(download, scope));
        join_all(all).await.into_iter().collect()
    }

    /// Downloads an archive and unpacks it.
    pub(super) async fn download(&self, download: &Download, scope: &Scope<'_>) -> Result<(), Failure> {
        let scope = &scope.told_as(&self.label(&download.log_source));
        let transfer = Transfer::Download(download);
        tell(scope, transfer, Source::Out, |name| format!("Downloading {name}..."));
        let done = self.fetch_and_unpack(download, scope).await;
        match &done {
            Ok(Carried { bytes, kept, .. }) => tell(scope, transfer, Source::Out, |name| {
                let from = if *kept { ", kept by the cell" } else { "" };
                format!("Downloaded {name} ({}{from})", size(*bytes))
            }),
            Err(failure) => tell(scope, transfer, Source::Err, |_| failure.to_string()),
        }
        done.map(drop)
    }

    async fn fetch_and_unpack(&self, download: &Download, scope: &Scope<'_>) -> Result<Carried, Failure> {
        let transfer = Transfer::Download(download);
        let mut carried = self.carry(transfer, None, scope, "Downloading").await?;
        let failed = |why: &str| failed("Unpacking", transfer, why);
        let archive = carried.file.take().ok_or_else(|| failed("it did not come"))?;
        let tail = Rc::new(RefCell::new(VecDeque::new()));
        let (child, socket) =
            begin_inside(archive.into(), Stdio::piped()).map_err(|error| failed(&error.to_string()))?;
        let program = self.program(child, &Sink::Tail(Rc::clone(&tail)));
        let to = download.to.clone();
        let wish = self.wish(Deed::Unpack { to, most_bytes: self.unpacked_bytes() }, &download.user);
        match isolation::exchange(socket, &wish, None) {
            Ok(Ok(())) => {}
            Ok(Err(NotStarted::Dir(_, why) | NotStarted::Other(why))) => return Err(failed(&why)),
            Err(error) => return Err(failed(&error.to_string())),
        }
        let status = self.ended(program, scope).await.ok_or(Failure::Interrupted)?;
        let Err(end) = self.judge(status) else { return Ok(carried) };
        // The last line that the program wrote is a better reason than its exit status. If it was killed, the
        // signal is the reason.
        let said = tail.borrow_mut().pop_back();
        Err(failed(&said.filter(|_| end.exit_status().is_some()).unwrap_or_else(|| end.to_string())))
    }

    /// Uploads a file.
    pub(super) async fn upload(&self, upload: &Upload, scope: &Scope<'_>) -> Result<(), Failure> {
        let scope = &scope.told_as(&self.label(&upload.log_source));
        let transfer = Transfer::Upload(upload);
        tell(scope, transfer, Source::Out, |name| format!("Uploading {name}..."));
        let done = match self.open(upload) {
            Ok(file) => self.carry(transfer, Some(&file), scope, "Uploading").await,
            Err(why) => Err(failed("Reading", transfer, &why)),
        };
        match &done {
            Ok(Carried { bytes, .. }) => {
                tell(scope, transfer, Source::Out, |name| format!("Uploaded {name} ({})", size(*bytes)));
            }
            Err(failure) => tell(scope, transfer, Source::Err, |_| failure.to_string()),
        }
        done.map(drop)
    }

    /// Opens a file of the container with the rights of a user of it.
    fn open(&self, upload: &Upload) -> Result<File, String> {
        let told = |error: io::Error| error.to_string();
        let (child, socket) = begin_inside(Stdio::null(), Stdio::null()).map_err(told)?;
        let wish = self.wish(Deed::Open { path: upload.from.clone() }, &upload.user);
        let opened = isolation::exchange_for_file(socket, &wish);
        // The exit status adds nothing to the reply. The process is reaped with the rest of the container.
        drop(child);
        match opened.map_err(told)? {
            Ok(file) => Ok(file),
            Err(NotStarted::Dir(_, why) | NotStarted::Other(why)) => Err(why),
        }
    }

    /// Requests a transfer from the cell. An interruption cancels it.
    async fn carry(
        &self,
        transfer: Transfer<'_>,
        file: Option<&File>,
        scope: &Scope<'_>,
        doing: &str,
    ) -> Result<Carried, Failure> {
        tokio::select! {
            biased;
            () = scope.interrupt.cancelled() => Err(Failure::Interrupted),
            carried = self.carrier.carry(&self.spec.recipe, transfer, file) => {
                carried.map_err(|why| failed(doing, transfer, &why))
            }
        }
    }

    /// Returns the maximum unpacked size of an archive in bytes.
    fn unpacked_bytes(&self) -> u64 {
        match self.spec.recipe.resources.disk_mb {
            0 => UNPACKED_BYTES,
            disk_mb => disk_mb.saturating_mul(MIB).min(UNPACKED_BYTES),
        }
    }
}

/// Logs a message about a transfer, if its artifact has a name.
fn tell(scope: &Scope<'_>, transfer: Transfer<'_>, source: Source, text: impl FnOnce(&str) -> String) {
    match name_of(transfer) {
        "" => {}
        name => log_line(source, &text(name), scope),
    }
}

fn failed(doing: &str, transfer: Transfer<'_>, why: &str) -> Failure {
    Failure::Reason(match name_of(transfer) {
        "" => format!("{doing} failed: {why}"),
        name => format!("{doing} {name} failed: {why}"),
    })
}

/// Formats a number of bytes for people.
fn size(bytes: u64) -> String {
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
    use super::size;

    #[test]
    fn sizes_are_formatted_with_units() {
        let told = [0, 1023, 1024, 1_600, 1_048_576, 1_073_741_824].map(size);
        assert_eq!(told, ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1024.0 MiB"]);
    }
}
