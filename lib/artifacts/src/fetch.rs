//! One download with its attempts. Each attempt resumes where the previous one broke off, if the server
//! supports ranges.

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

use crate::Wanted;
use crate::digest::Summing;
use crate::error::Error;
use crate::limits::ATTEMPTS;
use crate::web::{Trouble, Web, of_request, of_status, pauses};

/// HTTP validators of an archive: the headers that show whether it changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changed {
    etag: Option<String>,
    last_modified: Option<String>,
}

impl Changed {
    fn of(answer: &Response) -> Self {
        let text = |name: HeaderName| Some(answer.headers().get(name)?.to_str().ok()?.to_owned());
        Self { etag: text(ETAG), last_modified: text(LAST_MODIFIED) }
    }

    /// Returns `true` if the server sent at least one validator.
    pub(crate) const fn tells(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }

    /// Returns the validator that identifies the exact bytes. A weak tag does not, so `Last-Modified` is used
    /// then.
    fn exact(&self) -> Option<&String> {
        self.etag.as_ref().filter(|tag| !tag.starts_with("W/")).or(self.last_modified.as_ref())
    }
}

/// Outcome of a download.
pub(crate) enum Got {
    /// The known archive is still current.
    Unchanged,
    /// A complete archive was written to the file.
    Whole(Whole),
}

/// Metadata of a downloaded archive.
pub(crate) struct Whole {
    pub(crate) bytes: u64,
    pub(crate) changed: Changed,
}

/// State of a download across its attempts.
struct Download<'a> {
    web: &'a Web,
    url: Url,
    is_secret: bool,
    file: File,
    limit: u64,
    written: u64,
    /// Validators of the archive that the bytes written so far belong to.
    changed: Changed,
    sum: Option<Summing>,
    wanted: &'a Wanted<'a>,
}

/// Downloads into a new file at `path`, unless the server reports that the `known` archive is unchanged.
pub(crate) async fn fetch(
    web: &Web,
    wanted: &Wanted<'_>,
    known: Option<&Changed>,
    path: &Path,
    limit: u64,
) -> Result<Got, Error> {
    let url = wanted.url.parse().map_err(|_| Error::NoUrl)?;
    let file = File::create_new(path).await?;
    let (is_secret, written, changed, sum) = (wanted.is_secret, 0, Changed::default(), None);
    let mut download = Download { web, url, is_secret, file, limit, written, changed, sum, wanted };
    let (mut failures, mut pause) = (0, pauses());
    loop {
        let before = download.written;
        let error = match download.attempt(known).await {
            Ok(got) => return Ok(got),
            Err(Trouble::Lasting(error)) => return Err(error),
            Err(Trouble::Passing(error)) => error,
        };
        if download.written > before {
            (failures, pause) = (0, pauses());
        }
        failures += 1;
        if failures >= ATTEMPTS {
            return Err(error);
        }
        sleep(pause.next().unwrap_or_default()).await;
    }
}

impl Download<'_> {
    async fn attempt(&mut self, known: Option<&Changed>) -> Result<Got, Trouble> {
        let (headers, goes_on) = self.headers(known);
        let answer = self.web.get(&self.url, self.is_secret, &headers).await?;
        match answer.status() {
            StatusCode::NOT_MODIFIED if known.is_some() && !goes_on => return Ok(Got::Unchanged),
            StatusCode::PARTIAL_CONTENT if goes_on && begins_at(&answer) == Some(self.written) => {}
            StatusCode::OK => {
                self.begin_anew().await?;
                self.changed = Changed::of(&answer);
            }
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if goes_on => {
                // The server cannot resume at this byte, so the next attempt requests the whole archive.
                self.begin_anew().await?;
                return Err(Trouble::Passing(Error::Answered(answer.status().as_u16())));
            }
            status => return Err(of_status(status)),
        }
        self.copy(answer).await?;
        self.file.flush().await?;
        self.file.sync_all().await?;
        self.check()?;
        Ok(Got::Whole(Whole { bytes: self.written, changed: self.changed.clone() }))
    }

    /// Returns the request headers, and `true` if they ask for the rest of a partial download.
    fn headers(&self, known: Option<&Changed>) -> (HeaderMap, bool) {
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        if let Some(exact) = self.changed.exact().filter(|_| self.written > 0) {
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

    async fn begin_anew(&mut self) -> Result<(), Error> {
        self.file.set_len(0).await?;
        self.file.rewind().await?;
        (self.written, self.changed) = (0, Changed::default());
        self.sum = self.wanted.checksum.map(|(by, _)| Summing::by(by));
        Ok(())
    }

    async fn copy(&mut self, mut answer: Response) -> Result<(), Trouble> {
        let too_large = Error::TooLarge { limit: self.limit };
        if answer.content_length().is_some_and(|length| self.written.saturating_add(length) > self.limit) {
            return Err(too_large.into());
        }
        loop {
            let piece = answer.chunk().await.map_err(|error| of_request(error, self.is_secret));
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
                sum.add(&piece);
            }
        }
    }

    fn check(&mut self) -> Result<(), Error> {
        let Some(((by, wanted), sum)) = self.wanted.checksum.zip(self.sum.take()) else { return Ok(()) };
        let found = sum.text();
        if found == wanted { Ok(()) } else { Err(Error::Checksum { by, found, wanted: wanted.to_owned() }) }
    }
}

/// Returns the first byte position of a partial response.
fn begins_at(answer: &Response) -> Option<u64> {
    let range = answer.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}
