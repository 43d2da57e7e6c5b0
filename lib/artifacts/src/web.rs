//! HTTP requests to permitted targets, their redirects, and the classification of failures.

use std::error::Error as StdError;

use backon::{BackoffBuilder, ExponentialBuilder};
use outbound::{Clients, Unreached, refusal};
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Client, Response, StatusCode, Url};

use crate::Judge;
use crate::error::{Error, Refused};
use crate::limits::{CONNECT, PAUSES, REDIRECTS, SILENCE};

/// HTTP clients that reach permitted targets only.
#[derive(Debug)]
pub(crate) struct Web(Clients<Refused>);

/// Failure of one attempt.
pub(crate) enum Trouble {
    /// A retry would fail in the same way.
    Lasting(Error),
    /// A retry may succeed.
    Passing(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Lasting(error)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Lasting(error.into())
    }
}

impl Web {
    pub(crate) fn new(judge: Judge) -> Result<Self, reqwest::Error> {
        Clients::new(judge, |client| client.connect_timeout(CONNECT).read_timeout(SILENCE)).map(Self)
    }

    /// Returns the client for a URL, unless a check that needs no DNS lookup refuses it.
    pub(crate) fn client(&self, url: &Url, is_secret: bool) -> Result<&Client, Error> {
        self.0.for_url(url).map_err(|why| match why {
            Unreached::NoUrl => Error::NoUrl,
            Unreached::Refused(why) => not_allowed(&why, is_secret),
        })
    }

    /// Sends a GET request and follows redirects.
    pub(crate) async fn get(
        &self,
        url: &Url,
        is_secret: bool,
        headers: &HeaderMap,
    ) -> Result<Response, Trouble> {
        let mut url = url.clone();
        for _ in 0..=REDIRECTS {
            let client = self.client(&url, is_secret)?;
            let sent = client.get(url.clone()).headers(headers.clone()).send().await;
            let answer = sent.map_err(|error| of_request(error, is_secret))?;
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
        Err(Error::Redirected.into())
    }
}

fn not_allowed(why: &Refused, is_secret: bool) -> Error {
    Error::NotAllowed(if is_secret { "the cell may not reach it".to_owned() } else { why.to_string() })
}

/// Classifies an error of a request that got no response.
pub(crate) fn of_request(error: reqwest::Error, is_secret: bool) -> Trouble {
    if let Some(why) = refusal::<Refused>(&error) {
        return not_allowed(why, is_secret).into();
    }
    let error = error.without_url();
    // The causes may contain the host.
    Trouble::Passing(Error::Broken(if is_secret { error.to_string() } else { chain(&error) }))
}

/// Classifies an unexpected HTTP status.
pub(crate) fn of_status(status: StatusCode) -> Trouble {
    let error = Error::Answered(status.as_u16());
    let passes = status.is_server_error()
        || status == StatusCode::REQUEST_TIMEOUT
        || status == StatusCode::TOO_MANY_REQUESTS;
    if passes { Trouble::Passing(error) } else { Trouble::Lasting(error) }
}

/// Returns the delays between attempts. They have no jitter, since a cell makes only a few attempts at once.
pub(crate) fn pauses() -> impl Iterator<Item = std::time::Duration> {
    ExponentialBuilder::default()
        .with_min_delay(PAUSES.0)
        .with_max_delay(PAUSES.1)
        .without_max_times()
        .build()
}

/// Returns an error's message with those of its causes.
fn chain(error: &dyn StdError) -> String {
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
