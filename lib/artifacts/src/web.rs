//! Requests, redirects, and which failures may pass.

use std::error::Error as StdError;

use backon::{BackoffBuilder, ExponentialBuilder};
use outbound::{Clients, Unreached, refusal};
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Client, Response, StatusCode, Url};

use crate::Judge;
use crate::error::{Error, Refused};
use crate::limits::{CONNECT, PAUSES, REDIRECTS, SILENCE};

/// Sends requests to where they may go.
#[derive(Debug)]
pub(crate) struct Web(Clients<Refused>);

/// A failure.
pub(crate) enum Trouble {
    /// It will be the same the next time.
    Lasting(Error),
    /// It may be otherwise the next time.
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

    /// The client for a URL, if nothing about it is refused before a name is looked up.
    pub(crate) fn client(&self, url: &Url, is_secret: bool) -> Result<&Client, Error> {
        self.0.for_url(url).map_err(|why| match why {
            Unreached::NoUrl => Error::NoUrl,
            Unreached::Refused(why) => not_allowed(&why, is_secret),
        })
    }

    /// Asks for what is at a URL, or wherever that leads.
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

/// What it means that no answer came.
pub(crate) fn of_request(error: reqwest::Error, is_secret: bool) -> Trouble {
    if let Some(why) = refusal::<Refused>(&error) {
        return not_allowed(why, is_secret).into();
    }
    let error = error.without_url();
    // Its causes may name the host.
    Trouble::Passing(Error::Broken(if is_secret { error.to_string() } else { chain(&error) }))
}

/// What an answer means that is none of those that were hoped for.
pub(crate) fn of_status(status: StatusCode) -> Trouble {
    let error = Error::Answered(status.as_u16());
    let passes = status.is_server_error()
        || status == StatusCode::REQUEST_TIMEOUT
        || status == StatusCode::TOO_MANY_REQUESTS;
    if passes { Trouble::Passing(error) } else { Trouble::Lasting(error) }
}

/// The pauses between attempts. They are the same each time: of one cell few attempts go on at once.
pub(crate) fn pauses() -> impl Iterator<Item = std::time::Duration> {
    ExponentialBuilder::default()
        .with_min_delay(PAUSES.0)
        .with_max_delay(PAUSES.1)
        .without_max_times()
        .build()
}

/// An error with its causes.
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
