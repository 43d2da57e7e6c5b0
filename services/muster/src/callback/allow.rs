//! What may be called: hosts, networks, schemes.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use outbound::{Scheme, Target};

use super::kinds::{kind, meant};
use crate::cli::words::Invalid;

/// Something that may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// None: by both schemes.
    scheme: Option<Scheme>,
    to: To,
}

/// Where a call may go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum To {
    /// Any public address.
    Public,
    /// A host by its name, if it has a public address.
    Host(String),
    /// Every host below a name, if it has a public address.
    Below(String),
    /// Addresses, public or not, whatever name leads there.
    Network(IpNet),
}

impl FromStr for Rule {
    type Err = Invalid;

    /// Reads `hooks.example.com`, `*.example.com`, `10.0.0.0/8`, `127.0.0.1`, `*`, each also behind `http://` or `https://`.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let wrong = || {
            Invalid::new(
                "rule for callbacks",
                text,
                "HOST, *.HOST, an address, a network as 10.0.0.0/8, or *, behind http:// or https:// if only so",
            )
        };
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(Scheme::of(scheme).ok_or_else(wrong)?), rest),
            None => (None, text),
        };
        let network = rest.parse::<IpNet>().ok().or_else(|| rest.parse::<IpAddr>().ok().map(IpNet::from));
        let to = match (network, rest.strip_prefix("*.")) {
            (Some(network), _) => To::Network(network.trunc()),
            (None, None) if rest == "*" => To::Public,
            (None, Some(name)) if is_name(name) => To::Below(plain(name)),
            (None, None) if is_name(rest) => To::Host(plain(rest)),
            (None, Some(_) | None) => return Err(wrong()),
        };
        Ok(Self { scheme, to })
    }
}

/// A name as names are compared: of small letters, without the dot that may end it.
fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    // What ends in digits would be read as an address.
    let is_number =
        name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    name.len() <= 253 && name.split('.').all(is_label) && !is_number
}

/// All that may be called. Without a rule every public address may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed(Vec<Rule>);

impl FromIterator<Rule> for Allowed {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

impl Allowed {
    /// Every public address, and this host: for a cluster that is all on it.
    pub(crate) fn with_loopback() -> Self {
        ["*", "127.0.0.0/8", "::1"].map(|rule| rule.parse().expect("it is a rule")).into_iter().collect()
    }

    fn rules(&self, scheme: Scheme) -> impl Iterator<Item = &To> {
        const PUBLIC: &To = &To::Public;
        let given = self.0.iter().filter(move |rule| rule.scheme.is_none_or(|only| only == scheme));
        given.map(|rule| &rule.to).chain(self.0.is_empty().then_some(PUBLIC))
    }

    /// Whether something may be called, as far as is known where it is.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn judge(&self, target: &Target<'_>) -> Result<(), Refused> {
        match (target.address, target.host) {
            (Some(address), host) => self.address(target.scheme, host, address),
            (None, Some(host)) => self.host(target.scheme, host),
            (None, None) => Err(Refused::NoUrl),
        }
    }

    /// Whether a host may be called if it has the right address.
    ///
    /// # Errors
    /// It may not, whatever address it has.
    fn host(&self, scheme: Scheme, host: &str) -> Result<(), Refused> {
        let name = plain(host);
        let may = |to: &To| match to {
            To::Public | To::Network(_) => true,
            To::Host(_) | To::Below(_) => names(to, &name),
        };
        if self.rules(scheme).any(may) { Ok(()) } else { Err(Refused::Host { host: name }) }
    }

    /// Whether an address may be called, which a name led to if there is one.
    ///
    /// # Errors
    /// It may not.
    fn address(&self, scheme: Scheme, host: Option<&str>, address: IpAddr) -> Result<(), Refused> {
        let (name, is_public) = (host.map(plain), kind(address).is_none());
        let may = |to: &To| match to {
            To::Public => is_public,
            To::Host(_) | To::Below(_) => is_public && name.as_deref().is_some_and(|name| names(to, name)),
            To::Network(network) => network.contains(&address) || network.contains(&meant(address)),
        };
        if self.rules(scheme).any(may) {
            return Ok(());
        }
        Err(Refused::Address { host: name, address, kind: kind(address) })
    }
}

/// Whether a rule that names hosts names this one.
fn names(to: &To, name: &str) -> bool {
    match to {
        To::Host(host) => host == name,
        To::Below(above) => {
            name.strip_suffix(above.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        }
        To::Public | To::Network(_) => false,
    }
}

/// Why something is not called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is no URL that is called.
    NoUrl,
    /// No rule names the host.
    Host {
        /// The host.
        host: String,
    },
    /// No rule allows the address.
    Address {
        /// The name that led there; none: the URL names the address.
        host: Option<String>,
        /// The address.
        address: IpAddr,
        /// Of which kind it is; none: it is public.
        kind: Option<&'static str>,
    },
}

impl Refused {
    /// The same without the host and the address.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::NoUrl => "the URL is none of http or https".to_owned(),
            Self::Host { .. } => "the host is called only if --callback-allow names it".to_owned(),
            Self::Address { kind, .. } => {
                format!("{} address is called only if --callback-allow names it", kind.unwrap_or("another"))
            }
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUrl => f.write_str(&self.kind()),
            Self::Host { host } => write!(f, "{host} is called only if --callback-allow names it"),
            Self::Address { host, address, kind } => {
                if let Some(host) = host {
                    write!(f, "{host} leads to ")?;
                }
                match kind {
                    Some(kind) => write!(
                        f,
                        "{address}, which is {kind} and is called only if --callback-allow names it"
                    ),
                    None => write!(f, "{address}, which is called only if --callback-allow names it"),
                }
            }
        }
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(rules: &[&str]) -> Allowed {
        rules.iter().map(|rule| rule.parse().unwrap()).collect()
    }

    #[test]
    fn a_rule_is_a_host_a_network_or_everything_public() {
        for good in [
            "hooks.example.com",
            "*.example.com",
            "10.0.0.0/8",
            "127.0.0.1",
            "::1",
            "fd00::/8",
            "*",
            "https://*",
            "http://10.0.0.0/8",
            "https://hooks.example.com",
            "localhost",
            "a_b.internal.",
        ] {
            assert!(good.parse::<Rule>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "a b",
            "*.",
            "**.a",
            "a*",
            "10.0.0.0/33",
            "10.0.0",
            "999.1.1.1",
            "ftp://a",
            "http://",
            "a/b",
            "http://a/b",
            "a:80",
            "[::1]",
        ] {
            let said = bad.parse::<Rule>().unwrap_err().to_string();
            assert!(said.contains("HOST, *.HOST"), "{bad}: {said}");
        }
    }

    #[test]
    fn without_rules_every_public_address_may_be_called_and_no_other() {
        let all = Allowed::default();
        let public: IpAddr = "1.1.1.1".parse().unwrap();
        assert_eq!(all.address(Scheme::Http, None, public), Ok(()));
        assert_eq!(all.host(Scheme::Https, "anything"), Ok(()));
        for address in [
            "127.0.0.1",
            "::1",
            "169.254.169.254",
            "fe80::1",
            "10.0.0.1",
            "0.0.0.0",
            "::",
            "ff02::1",
            "::ffff:127.0.0.1",
        ] {
            let refused =
                all.address(Scheme::Http, Some("a"), address.parse().unwrap()).unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("a leads to {}", address.parse::<IpAddr>().unwrap())),
                "{refused}"
            );
        }
    }

    #[test]
    fn with_rules_only_what_they_name_may_be_called() {
        let rules = allowed(&["https://*.example.com", "hooks.internal", "10.1.0.0/16"]);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(rules.address(Scheme::Https, Some("a.EXAMPLE.com."), address("1.1.1.1")).is_ok());
        assert!(
            rules.address(Scheme::Http, Some("a.example.com"), address("1.1.1.1")).is_err(),
            "another scheme"
        );
        assert!(rules.address(Scheme::Https, Some("example.com"), address("1.1.1.1")).is_err(), "not below");
        assert!(rules.address(Scheme::Https, Some("aexample.com"), address("1.1.1.1")).is_err());
        assert!(rules.address(Scheme::Http, Some("hooks.internal"), address("1.1.1.1")).is_ok());
        assert!(
            rules.address(Scheme::Http, Some("hooks.internal"), address("10.2.0.1")).is_err(),
            "not public"
        );
        assert!(rules.address(Scheme::Http, Some("any"), address("10.1.2.3")).is_ok(), "by its network");
        assert!(rules.address(Scheme::Http, None, address("::ffff:10.1.2.3")).is_ok(), "the same address");
        assert!(rules.address(Scheme::Http, None, address("1.1.1.1")).is_err());
        let only_hosts = allowed(&["*.example.com"]);
        assert_eq!(only_hosts.host(Scheme::Http, "a.b.example.com"), Ok(()));
        let refused = only_hosts.host(Scheme::Http, "Other.com").unwrap_err().to_string();
        assert_eq!(refused, "other.com is called only if --callback-allow names it");
    }
}
