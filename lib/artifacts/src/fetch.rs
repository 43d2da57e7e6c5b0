//! One download with its attempts. If the server supports ranges, each attempt resumes at the end of the
//! previous attempt.

use std::path::Path;

use reqwest::header::{
    CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    LAST_MODIFIED, RANGE,
};
use reqwest::{Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::time::sleep;

use crate::FetchRequest;
use crate::digest::Hasher;
use crate::error::Error;
use crate::limits::MAX_ATTEMPTS;
use crate::web::{AttemptError, Web, backoff, classify_request_error, classify_status};

/// HTTP validators of an archive: the headers that identify its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Validators {
    etag: Option<String>,
    last_modified: Option<String>,
}

impl Validators {
    fn from_response(answer: &Response) -> Self {
        let text = |name: HeaderName| Some(answer.headers().get(name)?.to_str().ok()?.to_owned());
        Self { etag: text(ETAG), last_modified: text(LAST_MODIFIED) }
    }

    /// Returns `true` if the server sent at least one validator.
    pub(crate) const fn is_present(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }

    /// Returns the validator that identifies the exact bytes of the archive. A weak `ETag` does not identify
    /// the bytes, so `Last-Modified` replaces it.
    fn strong(&self) -> Option<&String> {
        self.etag.as_ref().filter(|tag| !tag.starts_with("W/")).or(self.last_modified.as_ref())
    }
}

/// Outcome of a download.
pub(crate) enum Outcome {
    /// The known archive is still current.
    Unchanged,
    /// A complete archive was written to the file.
    Downloaded(DownloadedArchive),
}

/// Metadata of a downloaded archive.
pub(crate) struct DownloadedArchive {
    pub(crate) bytes: u64,
    pub(crate) changed: Validators,
}

/// State of a download across its attempts.
struct Download<'a> {
    web: &'a Web,
    url: Url,
    is_secret: bool,
    file: File,
    limit: u64,
    written: u64,
    /// Validators of the archive that the written bytes belong to.
    changed: Validators,
    sum: Option<Hasher>,
    wanted: &'a FetchRequest<'a>,
}

/// Downloads an archive into a new file at `path`. Writes nothing if the server reports that the `known`
/// archive is unchanged.
pub(crate) async fn fetch(
    web: &Web,
    wanted: &FetchRequest<'_>,
    known: Option<&Validators>,
    path: &Path,
    limit: u64,
) -> Result<Outcome, Error> {
    let url = wanted.url.parse().map_err(|_| Error::InvalidUrl)?;
    let file = File::create_new(path).await?;
    let (is_secret, written, changed, sum) = (wanted.is_secret, 0, Validators::default(), None);
    let mut download = Download { web, url, is_secret, file, limit, written, changed, sum, wanted };
    let (mut failures, mut pause) = (0, backoff());
    loop {
        let before = download.written;
        let error = match download.attempt(known).await {
            Ok(got) => return Ok(got),
            Err(AttemptError::Permanent(error)) => return Err(error),
            Err(AttemptError::Transient(error)) => error,
        };
        if download.written > before {
            (failures, pause) = (0, backoff());
        }
        failures += 1;
        if failures >= MAX_ATTEMPTS {
            return Err(error);
        }
        sleep(pause.next().unwrap_or_default()).await;
    }
}

impl Download<'_> {
    async fn attempt(&mut self, known: Option<&Validators>) -> Result<Outcome, AttemptError> {
        let (headers, goes_on) = self.headers(known);
        let answer = self.web.get(&self.url, self.is_secret, &headers).await?;
        match answer.status() {
            StatusCode::NOT_MODIFIED if known.is_some() && !goes_on => return Ok(Outcome::Unchanged),
            StatusCode::PARTIAL_CONTENT if goes_on && range_start(&answer) == Some(self.written) => {}
            StatusCode::OK => {
                self.restart().await?;
                self.changed = Validators::from_response(&answer);
            }
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if goes_on => {
                // The server cannot resume at this byte, so the next attempt requests the whole archive.
                self.restart().await?;
                return Err(AttemptError::Transient(Error::UnexpectedStatus(answer.status().as_u16())));
            }
            status => return Err(classify_status(status)),
        }
        self.copy(answer).await?;
        self.file.flush().await?;
        self.file.sync_all().await?;
        self.check()?;
        Ok(Outcome::Downloaded(DownloadedArchive { bytes: self.written, changed: self.changed.clone() }))
    }

    /// Returns the request headers. The second value is `true` if the headers request the rest of a partial
    /// download.
    fn headers(&self, known: Option<&Validators>) -> (HeaderMap, bool) {
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        if let Some(exact) = self.changed.strong().filter(|_| self.written > 0) {
            set(RANGE, &format!("bytes={}-", self.written));
            set(IF_RANGE, exact);
            return (headers, true);
        }
        if let Some(known) = known {
            if let Some(tag) = &known.etag {
                set(IF_NONE_MATCH, tag);
            }
            if let Some(time) = &known.last_modified {
                set(IF_MODIFIED_SINCE, time);
            }
        }
        (headers, false)
    }

    async fn restart(&mut self) -> Result<(), Error> {
        self.file.set_len(0).await?;
        self.file.rewind().await?;
        (self.written, self.changed) = (0, Validators::default());
        self.sum = self.wanted.checksum.map(|(by, _)| Hasher::new(by));
        Ok(())
    }

    async fn copy(&mut self, mut answer: Response) -> Result<(), AttemptError> {
        let too_large = Error::TooLarge { limit: self.limit };
        if answer.content_length().is_some_and(|length| self.written.saturating_add(length) > self.limit) {
            return Err(too_large.into());
        }
        loop {
            let piece = answer.chunk().await.map_err(|error| classify_request_error(error, self.is_secret));
            let piece = match piece {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(()),
                Err(trouble) => {
                    // Flush the bytes received so far before the next attempt resumes.
                    self.file.flush().await?;
                    return Err(trouble);
                }
            };
            let more = piece.len() as u64;
            if self.written + more > self.limit {
                return Err(too_large.into());
            }
            self.file.write_all(&piece).await?;
            self.written += more;
            if let Some(sum) = &mut self.sum {
                sum.update(&piece);
            }
        }
    }

    fn check(&mut self) -> Result<(), Error> {
        let Some(((by, wanted), sum)) = self.wanted.checksum.zip(self.sum.take()) else { return Ok(()) };
        let actual = sum.into_hex();
        if actual == wanted {
            Ok(())
        } else {
            Err(Error::Checksum { algorithm: by, actual, expected: wanted.to_owned() })
        }
    }
}

/// Returns the first byte position of a partial response.
fn range_start(answer: &Response) -> Option<u64> {
    let range = answer.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}
