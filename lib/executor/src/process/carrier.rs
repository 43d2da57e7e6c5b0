//! Downloads and uploads requested by the shim of a container.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use artifacts::{FetchRequest, Store};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use schemas::action::{Download, Secret, Transfer, Upload};
use schemas::container::Recipe;
use schemas::names::InstanceGuid;
use schemas::secret::{Binding, Owner, Purpose, contains_secret};
use tokio::net::UnixStream;

use super::shared::{Shared, run_blocking};
use crate::folder::Folder;
use crate::socket;
use crate::transfer::{SOCKET, TransferReply, TransferRequest, transfers};

/// Transfer service of one container.
pub(super) struct TransferService {
    shared: Arc<Shared>,
    guid: InstanceGuid,
    folder: Folder,
}

/// Opens the transfer socket in a container's folder. `None` if the recipe has no downloads or uploads. Every
/// process with access to the folder may use the socket.
pub(super) fn listen(folder: &Folder, recipe: &Recipe) -> io::Result<Option<UnixListener>> {
    if transfers(recipe).is_empty() {
        return Ok(None);
    }
    socket::listen(folder.path(), SOCKET).map(Some)
}

impl TransferService {
    pub(super) fn new(shared: Arc<Shared>, guid: InstanceGuid, folder: Folder) -> Self {
        Self { shared, guid, folder }
    }

    /// Serves requests while the future is polled. Dropping the future cancels running transfers.
    pub(super) async fn serve(&self, listener: UnixListener) -> io::Result<()> {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let mut served = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => served.push(self.serve_one(accepted?.0)),
                Some(()) = served.next(), if !served.is_empty() => {}
            }
        }
    }

    async fn serve_one(&self, asked: UnixStream) {
        let (question, mut files) = match socket::receive::<TransferRequest>(&asked).await {
            Ok(received) => received,
            Err(error) => {
                return tracing::debug!(container = %self.guid, %error, "invalid transfer request from a shim");
            }
        };
        let (answer, file) = tokio::select! {
            answered = self.answer(question, files.pop().map(File::from)) => answered,
            // The shim closed the connection, so the result is not needed.
            () = socket::wait_until_closed(&asked) => return,
        };
        if let Err(error) = socket::send(&asked, &answer, file.as_ref().map(AsFd::as_fd).as_slice()).await {
            tracing::debug!(container = %self.guid, %error, "cannot send a transfer reply to a shim");
        }
    }

    async fn answer(
        &self,
        TransferRequest { number }: TransferRequest,
        file: Option<File>,
    ) -> (TransferReply, Option<File>) {
        let folder = self.folder.clone();
        let done = match run_blocking(move || folder.spec()).await {
            Ok(spec) => match (transfers(&spec.recipe).get(number), file) {
                (Some(Transfer::Download(download)), _) => self.fetch(&spec.recipe, download).await,
                (Some(Transfer::Upload(upload)), Some(file)) => self.send(&spec.recipe, upload, file).await,
                (Some(Transfer::Upload(_)) | None, _) => {
                    Err("invalid request: the recipe has no such transfer".to_owned())
                }
            },
            Err(error) => Err(format!("cannot read the recipe of the container: {error}")),
        };
        done.unwrap_or_else(|reason| (TransferReply::Failed(reason), None))
    }

    async fn fetch(
        &self,
        recipe: &Recipe,
        download: &Download,
    ) -> Result<(TransferReply, Option<File>), String> {
        let (url, is_secret) = self.decrypt_url(recipe, &download.from)?;
        let wanted = FetchRequest {
            domain: &recipe.domain,
            url: &url,
            is_secret,
            cache_key: &download.cache_key,
            checksum: download.checksum_algorithm.map(|by| (by, download.checksum_value.as_str())),
        };
        let fetched = self.store().await?.fetch(&wanted).await.map_err(|error| error.to_string())?;
        Ok((TransferReply::Done { bytes: fetched.bytes, from_cache: fetched.from_cache }, Some(fetched.file)))
    }

    async fn send(
        &self,
        recipe: &Recipe,
        upload: &Upload,
        file: File,
    ) -> Result<(TransferReply, Option<File>), String> {
        // A program of the container opened the file, so it may be of any type.
        let kind = file.metadata().map_err(|error| error.to_string())?;
        if !kind.is_file() {
            return Err("not a regular file".to_owned());
        }
        let (url, is_secret) = self.decrypt_url(recipe, &upload.to)?;
        let sent = self.store().await?.send(file, &url, is_secret).await;
        Ok((TransferReply::Done { bytes: sent.map_err(|error| error.to_string())?, from_cache: false }, None))
    }

    /// Returns the plain text of a URL. The second value is `true` if the URL must be kept secret.
    fn decrypt_url(&self, recipe: &Recipe, url: &Secret) -> Result<(String, bool), String> {
        if let Some(plain) = url.plain() {
            return Ok((plain.to_owned(), contains_secret(plain)));
        }
        let place = Binding {
            domain: recipe.domain.clone(),
            owner: Owner::of_work(&recipe.work),
            purpose: Purpose::ArtifactUrl,
        };
        let text = self.shared.settings.keys.text(&place, url);
        let text = text.map_err(|error| format!("{} {}", place.purpose, error.describe_for("this cell")))?;
        Ok((text, true))
    }

    /// Returns the artifact store of the cell. Opens the store at its first use.
    async fn store(&self) -> Result<&Store, String> {
        let settings = &self.shared.settings;
        let open = || async {
            let (folder, settings) = (settings.data.join("artifacts"), settings.artifacts.clone());
            run_blocking(move || Store::open(folder, settings)).await
        };
        let store = self.shared.store.get_or_try_init(open).await;
        store.map_err(|error| format!("cannot open the artifact store of this cell: {error}"))
    }
}
