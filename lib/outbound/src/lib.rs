//! HTTP requests to URLs that a client of the cluster chose. The service that sends such a request may be
//! inside the cluster's network, so the policy checks the resolved addresses of each connection. A name that
//! later resolves to another address does not bypass the policy. Redirects are not followed, and no proxy is
//! used.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};

/// URL scheme of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// Parses a URL scheme. Returns `None` unless it is `http` or `https`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "http" => Some(Self::Http),
            "https" => Some(Self::Https),
            _ => None,
        }
    }
}

/// Destination of a request: a host name, an address, or an address that a host name resolved to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub scheme: Scheme,
    /// Host name, or `None` if the URL contains an address.
    pub host: Option<&'a str>,
    /// Address, or `None` if the host name has not been resolved yet.
    pub address: Option<IpAddr>,
}

type TargetCheck<R> = dyn Fn(Target<'_>) -> Result<(), R> + Send + Sync;

/// Policy that allows a request to a target, or refuses it with a reason.
pub struct TargetPolicy<R>(Arc<TargetCheck<R>>);

impl<R> TargetPolicy<R> {
    /// Creates a policy that calls `question` for each target.
    pub fn new<W: Into<R>>(question: impl Fn(Target<'_>) -> Result<(), W> + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |target| question(target).map_err(Into::into)))
    }

    /// Creates a policy that allows every target.
    #[must_use]
    pub fn allow_all() -> Self {
        Self(Arc::new(|_| Ok(())))
    }
}

impl<R> Clone for TargetPolicy<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> fmt::Debug for TargetPolicy<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Judge(..)")
    }
}

/// Reason why [`Clients::for_url`] returns no client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlError<R> {
    /// The URL has another scheme than HTTP or HTTPS, or no host.
    NotHttp,
    /// The policy refused the target.
    Refused(R),
}

/// HTTP clients that send requests only to targets that the policy allows.
#[derive(Debug)]
pub struct Clients<R> {
    judge: TargetPolicy<R>,
    /// Client for HTTP. There is one client per scheme, because a resolver does not know the scheme of the
    /// request.
    http: Client,
    https: Client,
}

impl<R: Error + Send + Sync + 'static> Clients<R> {
    /// Creates the clients. `set_up` configures each client builder.
    ///
    /// # Errors
    /// Returns an error if the certificates of the system can't be used.
    pub fn new(
        judge: TargetPolicy<R>,
        set_up: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Result<Self, reqwest::Error> {
        let client = |scheme| {
            let resolver = PolicyResolver { judge: judge.clone(), scheme };
            let builder = builder().redirect(Policy::none()).no_proxy().dns_resolver(Arc::new(resolver));
            set_up(builder).build()
        };
        let (http, https) = (client(Scheme::Http)?, client(Scheme::Https)?);
        Ok(Self { judge, http, https })
    }

    /// Returns the client for a URL after checking the target as far as it is known. A host name is checked
    /// again for each address that it resolves to. An address needs no second check.
    ///
    /// # Errors
    /// Returns an error if the URL is not an HTTP URL or the policy refuses the target.
    pub fn for_url(&self, url: &Url) -> Result<&Client, UrlError<R>> {
        let scheme = Scheme::parse(url.scheme()).ok_or(UrlError::NotHttp)?;
        let host = url.host_str().ok_or(UrlError::NotHttp)?;
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let target = Target { scheme, host: Some(host).filter(|_| address.is_none()), address };
        (self.judge.0)(target).map_err(UrlError::Refused)?;
        Ok(match scheme {
            Scheme::Http => &self.http,
            Scheme::Https => &self.https,
        })
    }
}

/// Returns a client builder, after installing the process-wide crypto provider.
pub fn builder() -> ClientBuilder {
    // The installation fails if another part of the program has already installed the same provider. This
    // failure is harmless.
    drop(rustls::crypto::ring::default_provider().install_default());
    Client::builder()
}

/// Returns the policy's reason from the source chain of an error. `None` if no refused address caused the
/// error.
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

/// DNS resolver that returns only addresses that the policy allows.
struct PolicyResolver<R> {
    judge: TargetPolicy<R>,
    scheme: Scheme,
}

impl<R: Error + Send + Sync + 'static> Resolve for PolicyResolver<R> {
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
