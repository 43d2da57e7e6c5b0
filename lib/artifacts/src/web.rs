//! Requests, redirects, and which failures may pass.

use std::error::Error as StdError;
use std::net::IpAddr;

use backon::{BackoffBuilder, ExponentialBuilder};
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};

use crate::error::Error;
use crate::gate::{Judge, Judging, Scheme, Target, refusal};
use crate::limits::{CONNECT, PAUSES, REDIRECTS, SILENCE};

/// Sends requests. It knows no proxy: who is reached is judged by the address.
#[derive(Debug)]
pub(crate) struct Web {
    judge: Judge,
    /// One for each scheme: who looks up a name doesn't know for which it is.
    http: Client,
    https: Client,
}

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
        // Another part of the program may have chosen the same provider first: then there is one.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = |scheme| {
            Client::builder()
                .connect_timeout(CONNECT)
                .read_timeout(SILENCE)
                .redirect(Policy::none())
                .no_proxy()
                .dns_resolver(std::sync::Arc::new(Judging { judge: judge.clone(), scheme }))
                .build()
        };
        let (http, https) = (client(Scheme::Http)?, client(Scheme::Https)?);
        Ok(Self { judge, http, https })
    }

    /// The client for a URL, if nothing about it is refused before a name is looked up.
    pub(crate) fn client(&self, url: &Url, is_secret: bool) -> Result<&Client, Error> {
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(Error::NoUrl),
        };
        let host = url.host_str().ok_or(Error::NoUrl)?;
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let target = Target { scheme, host: Some(host).filter(|_| address.is_none()), address };
        self.judge.ask(target).map_err(|why| not_allowed(why, is_secret))?;
        Ok(match scheme {
            Scheme::Http => &self.http,
            Scheme::Https => &self.https,
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

fn not_allowed(why: String, is_secret: bool) -> Error {
    Error::NotAllowed(if is_secret { "the cell may not reach it".to_owned() } else { why })
}

/// What it means that no answer came.
pub(crate) fn of_request(error: reqwest::Error, is_secret: bool) -> Trouble {
    if let Some(why) = refusal(&error) {
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
