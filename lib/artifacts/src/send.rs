//! One upload, including its repeated attempts.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use data_encoding::BASE64;
use futures::Stream;
use futures::stream::unfold;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, Url};
use schemas::action::ChecksumAlgorithm;
use tokio::time::sleep;

use crate::digest::{Hasher, hash_file};
use crate::error::Error;
use crate::limits::{CHUNK_BYTES, MAX_ATTEMPTS};
use crate::web::{AttemptError, Web, backoff, classify_request_error, classify_status};

/// State of an upload across its attempts.
struct Upload<'a> {
    web: &'a Web,
    url: Url,
    is_secret: bool,
    file: Arc<File>,
    bytes: u64,
    md5: String,
}

/// Uploads a file by POST and returns its size in bytes.
pub(crate) async fn send(
    web: &Web,
    file: File,
    url: &str,
    is_secret: bool,
    limit: u64,
) -> Result<u64, Error> {
    let url = url.parse().map_err(|_| Error::InvalidUrl)?;
    if file.metadata()?.len() > limit {
        return Err(Error::TooLarge { limit });
    }
    let file = Arc::new(file);
    let summed = Arc::clone(&file);
    let sum = move || hash_file(&summed, Hasher::new(ChecksumAlgorithm::Md5));
    let (sum, bytes) = tokio::task::spawn_blocking(sum).await.map_err(io::Error::other)??;
    let upload = Upload { web, url, is_secret, file, bytes, md5: BASE64.encode(&sum.into_bytes()) };
    let (mut failures, mut pause) = (0, backoff());
    loop {
        let error = match upload.attempt().await {
            Ok(()) => return Ok(bytes),
            Err(AttemptError::Permanent(error)) => return Err(error),
            Err(AttemptError::Transient(error)) => error,
        };
        if upload.file.metadata()?.len() != bytes {
            return Err(Error::FileChanged);
        }
        failures += 1;
        if failures >= MAX_ATTEMPTS {
            return Err(error);
        }
        sleep(pause.next().unwrap_or_default()).await;
    }
}

impl Upload<'_> {
    async fn attempt(&self) -> Result<(), AttemptError> {
        let client = self.web.client(&self.url, self.is_secret)?;
        let request = client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, self.bytes)
            .header("content-md5", &self.md5)
            .body(Body::wrap_stream(file_chunks(Arc::clone(&self.file), self.bytes)));
        let answer = request.send().await.map_err(|error| classify_request_error(error, self.is_secret))?;
        if answer.status().is_success() { Ok(()) } else { Err(classify_status(answer.status())) }
    }
}

/// Streams the first `bytes` bytes of a file.
fn file_chunks(file: Arc<File>, bytes: u64) -> impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static {
    unfold((file, 0), move |(file, at)| async move {
        if at >= bytes {
            return None;
        }
        let from = Arc::clone(&file);
        let read = tokio::task::spawn_blocking(move || read_chunk(&from, at, bytes - at)).await;
        let piece = read.map_err(io::Error::other).flatten();
        let next = piece.as_ref().map_or(bytes, |piece| at + piece.len() as u64);
        Some((piece, (file, next)))
    })
}

fn read_chunk(mut file: &File, at: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut piece = vec![];
    file.seek(SeekFrom::Start(at))?;
    file.take(most.min(CHUNK_BYTES as u64)).read_to_end(&mut piece)?;
    if piece.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file was truncated during the upload"));
    }
    Ok(piece)
}
