//! HTTP to where others said: a client of the cluster names a URL, and a service within the network of its cluster sends a
//! request there. So each is judged by the addresses of the very connection: a name that leads to somebody else by then is of
//! no use, no redirect is followed by itself, and no proxy stands in between.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};

/// How a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Encrypted.
    Https,
}

impl Scheme {
    /// The scheme of a URL, if it is one of HTTP.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        match text {
            "http" => Some(Self::Http),
            "https" => Some(Self::Https),
            _ => None,
        }
    }
}

/// Where a request would go: a host, an address, or an address to which the name of a host leads.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// How.
    pub scheme: Scheme,
    /// The name of the host; none: the URL names an address.
    pub host: Option<&'a str>,
    /// The address; none: the name is not looked up yet.
    pub address: Option<IpAddr>,
}

type Question<R> = dyn Fn(Target<'_>) -> Result<(), R> + Send + Sync;

/// Says whether a request may go somewhere, or why not.
pub struct Judge<R>(Arc<Question<R>>);

impl<R> Judge<R> {
    /// Who asks this.
    pub fn new<W: Into<R>>(question: impl Fn(Target<'_>) -> Result<(), W> + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |target| question(target).map_err(Into::into)))
    }

    /// Who lets them go everywhere.
    #[must_use]
    pub fn everywhere() -> Self {
        Self(Arc::new(|_| Ok(())))
    }
}

impl<R> Clone for Judge<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> fmt::Debug for Judge<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Judge(..)")
    }
}

/// Why nothing is sent to a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreached<R> {
    /// It is none of HTTP.
    NoUrl,
    /// It may not be reached.
    Refused(R),
}

/// Sends requests only to where they may go.
#[derive(Debug)]
pub struct Clients<R> {
    judge: Judge<R>,
    /// One for each scheme: who looks up a name doesn't know for which it is.
    http: Client,
    https: Client,
}

impl<R: Error + Send + Sync + 'static> Clients<R> {
    /// Clients that are set up so.
    ///
    /// # Errors
    /// The certificates of the system can't be used.
    pub fn new(
        judge: Judge<R>,
        set_up: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Result<Self, reqwest::Error> {
        let client = |scheme| {
            let resolver = Judging { judge: judge.clone(), scheme };
            let builder = builder().redirect(Policy::none()).no_proxy().dns_resolver(Arc::new(resolver));
            set_up(builder).build()
        };
        let (http, https) = (client(Scheme::Http)?, client(Scheme::Https)?);
        Ok(Self { judge, http, https })
    }

    /// The client for a URL, if nothing about it is refused before a name is looked up. An address needs no looking up.
    ///
    /// # Errors
    /// Why nothing is sent there.
    pub fn for_url(&self, url: &Url) -> Result<&Client, Unreached<R>> {
        let scheme = Scheme::of(url.scheme()).ok_or(Unreached::NoUrl)?;
        let host = url.host_str().ok_or(Unreached::NoUrl)?;
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let target = Target { scheme, host: Some(host).filter(|_| address.is_none()), address };
        (self.judge.0)(target).map_err(Unreached::Refused)?;
        Ok(match scheme {
            Scheme::Http => &self.http,
            Scheme::Https => &self.https,
        })
    }
}

/// What makes a client, with what encrypts for it.
pub fn builder() -> ClientBuilder {
    // Another part of the program may have chosen the same provider first: then there is one.
    drop(rustls::crypto::ring::default_provider().install_default());
    Client::builder()
}

/// Why an error came to be, if a refused address is the reason.
#[must_use]
pub fn refusal<'a, R: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a R> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(refused) = error.downcast_ref() {
            return Some(refused);
        }
        next = error.source();
    }
    None
}

/// Looks up names, and gives only addresses that may be reached.
struct Judging<R> {
    judge: Judge<R>,
    scheme: Scheme,
}

impl<R: Error + Send + Sync + 'static> Resolve for Judging<R> {
    fn resolve(&self, name: Name) -> Resolving {
        let (judge, scheme) = (self.judge.clone(), self.scheme);
        Box::pin(async move {
            let host = name.as_str();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            let (mut fine, mut refused) = (vec![], None);
            for address in found {
                match (judge.0)(Target { scheme, host: Some(host), address: Some(address.ip()) }) {
                    Ok(()) => fine.push(address),
                    Err(why) => refused = Some(why),
                }
            }
            match (fine.is_empty(), refused) {
                (true, Some(why)) => Err(why.into()),
                (true, None) => Err(format!("{host} has no address").into()),
                (false, _) => Ok(Box::new(fine.into_iter()) as Addrs),
            }
        })
    }
}
