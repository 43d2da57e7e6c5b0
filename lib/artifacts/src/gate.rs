//! Where requests may go: judged by the addresses of the very connection, so that a name that leads to somebody else by then is
//! of no use.

use std::error::Error as StdError;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// How a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Encrypted.
    Https,
}

/// Where a request would go.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// How.
    pub scheme: Scheme,
    /// The name of the host; none: the URL names an address.
    pub host: Option<&'a str>,
    /// The address; none: the name is not looked up yet.
    pub address: Option<IpAddr>,
}

type Question = dyn Fn(Target<'_>) -> Result<(), String> + Send + Sync;

/// Says whether a request may go somewhere, or why not.
#[derive(Clone)]
pub struct Judge(Arc<Question>);

impl Judge {
    /// Who asks this.
    pub fn new(question: impl Fn(Target<'_>) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(question))
    }

    /// Who lets them go everywhere.
    #[must_use]
    pub fn everywhere() -> Self {
        Self::new(|_| Ok(()))
    }

    pub(crate) fn ask(&self, target: Target<'_>) -> Result<(), String> {
        (self.0)(target)
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Judge(..)")
    }
}

/// Why no address of a name may be reached.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

/// Why an error came to be, if a refused address is the reason.
pub(crate) fn refusal(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(Refused(why)) = error.downcast_ref() {
            return Some(why.clone());
        }
        next = error.source();
    }
    None
}

/// Looks up names, and gives only addresses that may be reached.
#[derive(Clone, Debug)]
pub(crate) struct Judging {
    pub(crate) judge: Judge,
    pub(crate) scheme: Scheme,
}

impl Resolve for Judging {
    fn resolve(&self, name: Name) -> Resolving {
        let Self { judge, scheme } = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            let (mut fine, mut refused) = (vec![], None);
            for address in found {
                match judge.ask(Target { scheme, host: Some(host), address: Some(address.ip()) }) {
                    Ok(()) => fine.push(address),
                    Err(why) => refused = Some(why),
                }
            }
            match (fine.is_empty(), refused) {
                (true, Some(why)) => Err(Refused(why).into()),
                (true, None) => Err(format!("{host} has no address").into()),
                (false, _) => Ok(Box::new(fine.into_iter()) as Addrs),
            }
        })
    }
}
