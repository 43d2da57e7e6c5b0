//! HTTP requests to permitted targets, their redirects, and the classification of failures.

use std::error::Error as StdError;

use backon::{BackoffBuilder, ExponentialBuilder};
use outbound::{Clients, UrlError, refusal};
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Client, Response, StatusCode, Url};

use crate::Judge;
use crate::error::{Error, Refusal};
use crate::limits::{BACKOFF, CONNECT_TIMEOUT, MAX_REDIRECTS, READ_TIMEOUT};

/// HTTP clients that connect only to permitted targets.
#[derive(Debug)]
pub(crate) struct Web(Clients<Refusal>);

/// Failure of one attempt.
pub(crate) enum AttemptError {
    /// A retry would fail in the same way.
    Permanent(Error),
    /// A retry may succeed.
    Transient(Error),
}

impl From<Error> for AttemptError {
    fn from(error: Error) -> Self {
        Self::Permanent(error)
    }
}

impl From<std::io::Error> for AttemptError {
    fn from(error: std::io::Error) -> Self {
        Self::Permanent(error.into())
    }
}

impl Web {
    pub(crate) fn new(judge: Judge) -> Result<Self, reqwest::Error> {
        Clients::new(judge, |client| client.connect_timeout(CONNECT_TIMEOUT).read_timeout(READ_TIMEOUT))
            .map(Self)
    }

    /// Returns the client for a URL. Returns an error if a check that needs no DNS lookup refuses the URL.
    pub(crate) fn client(&self, url: &Url, is_secret: bool) -> Result<&Client, Error> {
        self.0.for_url(url).map_err(|why| match why {
            UrlError::NotHttp => Error::InvalidUrl,
            UrlError::Refused(why) => not_allowed(&why, is_secret),
        })
    }

    /// Sends a GET request and follows redirects.
    pub(crate) async fn get(
        &self,
        url: &Url,
        is_secret: bool,
        headers: &HeaderMap,
    ) -> Result<Response, AttemptError> {
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let client = self.client(&url, is_secret)?;
            let sent = client.get(url.clone()).headers(headers.clone()).send().await;
            let answer = sent.map_err(|error| classify_request_error(error, is_secret))?;
            if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let next = to.and_then(|to| url.join(to).ok()).ok_or(Error::BadRedirect)?;
            if url.scheme() == "https" && next.scheme() != "https" {
                return Err(Error::BadRedirect.into());
            }
            url = next;
        }
        Err(Error::TooManyRedirects.into())
    }
}

fn not_allowed(why: &Refusal, is_secret: bool) -> Error {
    Error::NotAllowed(if is_secret {
        "the rules of the cell do not allow this target".to_owned()
    } else {
        why.to_string()
    })
}

/// Classifies an error of a request that got no response.
pub(crate) fn classify_request_error(error: reqwest::Error, is_secret: bool) -> AttemptError {
    if let Some(why) = refusal::<Refusal>(&error) {
        return not_allowed(why, is_secret).into();
    }
    let error = error.without_url();
    // The messages of the error's causes may contain the host.
    AttemptError::Transient(Error::ConnectionFailed(if is_secret {
        error.to_string()
    } else {
        error_chain(&error)
    }))
}

/// Classifies an unexpected HTTP status.
pub(crate) fn classify_status(status: StatusCode) -> AttemptError {
    let error = Error::UnexpectedStatus(status.as_u16());
    let passes = status.is_server_error()
        || status == StatusCode::REQUEST_TIMEOUT
        || status == StatusCode::TOO_MANY_REQUESTS;
    if passes { AttemptError::Transient(error) } else { AttemptError::Permanent(error) }
}

/// Returns the delays between attempts. A cell makes only a few attempts at the same time, so the delays have
/// no jitter.
pub(crate) fn backoff() -> impl Iterator<Item = std::time::Duration> {
    ExponentialBuilder::default()
        .with_min_delay(BACKOFF.0)
        .with_max_delay(BACKOFF.1)
        .without_max_times()
        .build()
}

/// Returns the message of an error, followed by the messages of its causes.
fn error_chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
