//! Rules for callback targets: hosts, networks and schemes.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use outbound::{Scheme, Target};
use text::words::InvalidValue;

use super::kinds::{effective_address, special_kind};

/// Rule that allows some targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// `None` allows both schemes.
    scheme: Option<Scheme>,
    to: Targets,
}

/// Targets of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Targets {
    Public,
    /// The host with this name, if its address is public.
    Host(String),
    /// Hosts below this domain name, if their addresses are public.
    Subdomains(String),
    /// Addresses in this network, regardless of the host name. The addresses may be public or private.
    Network(IpNet),
}

impl FromStr for Rule {
    type Err = InvalidValue;

    /// Parses `hooks.example.com`, `*.example.com`, `10.0.0.0/8`, `127.0.0.1` or `*`, each with an optional
    /// prefix `http://` or `https://`.
    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let wrong = || {
            InvalidValue::new(
                "target",
                text,
                "HOST, *.HOST, an address, a network such as 10.0.0.0/8, or *, with an optional prefix \
                 http:// or https://",
            )
        };
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(Scheme::parse(scheme).ok_or_else(wrong)?), rest),
            None => (None, text),
        };
        let network = rest.parse::<IpNet>().ok().or_else(|| rest.parse::<IpAddr>().ok().map(IpNet::from));
        let to = match (network, rest.strip_prefix("*.")) {
            (Some(network), _) => Targets::Network(network.trunc()),
            (None, None) if rest == "*" => Targets::Public,
            (None, Some(name)) if is_name(name) => Targets::Subdomains(normalize(name)),
            (None, None) if is_name(rest) => Targets::Host(normalize(rest)),
            (None, Some(_) | None) => return Err(wrong()),
        };
        Ok(Self { scheme, to })
    }
}

/// Normalises a host name: lower case, without a final dot.
fn normalize(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    // A name with a numeric last label would be parsed as an address.
    let is_number =
        name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    name.len() <= 253 && name.split('.').all(is_label) && !is_number
}

/// Rules for callback targets. Without rules, all public addresses are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed(Vec<Rule>);

impl FromIterator<Rule> for Allowed {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

impl Allowed {
    /// Returns the rules for a cluster on a single host. They allow all public addresses and the loopback
    /// addresses of this host.
    pub(crate) fn with_loopback() -> Self {
        ["*", "127.0.0.0/8", "::1"].map(|rule| rule.parse().expect("valid rule")).into_iter().collect()
    }

    fn rules(&self, scheme: Scheme) -> impl Iterator<Item = &Targets> {
        const PUBLIC: &Targets = &Targets::Public;
        let given = self.0.iter().filter(move |rule| rule.scheme.is_none_or(|only| only == scheme));
        given.map(|rule| &rule.to).chain(self.0.is_empty().then_some(PUBLIC))
    }

    /// Checks the host and the address of a target, as far as they are known.
    ///
    /// # Errors
    /// The target is not allowed.
    pub(crate) fn check(&self, target: &Target<'_>) -> Result<(), NotAllowed> {
        match (target.address, target.host) {
            (Some(address), host) => self.check_address(target.scheme, host, address),
            (None, Some(host)) => self.check_host(target.scheme, host),
            (None, None) => Err(NotAllowed::InvalidUrl),
        }
    }

    /// Checks a host before its address is known.
    ///
    /// # Errors
    /// The rules allow no address of the host.
    fn check_host(&self, scheme: Scheme, host: &str) -> Result<(), NotAllowed> {
        let name = normalize(host);
        let may = |to: &Targets| match to {
            Targets::Public | Targets::Network(_) => true,
            Targets::Host(_) | Targets::Subdomains(_) => matches(to, &name),
        };
        if self.rules(scheme).any(may) { Ok(()) } else { Err(NotAllowed::Host { host: name }) }
    }

    /// Checks an address. If a host name resolved to the address, checks the host name, too.
    ///
    /// # Errors
    /// The address is not allowed.
    fn check_address(&self, scheme: Scheme, host: Option<&str>, address: IpAddr) -> Result<(), NotAllowed> {
        let (name, is_public) = (host.map(normalize), special_kind(address).is_none());
        let may = |to: &Targets| match to {
            Targets::Public => is_public,
            Targets::Host(_) | Targets::Subdomains(_) => {
                is_public && name.as_deref().is_some_and(|name| matches(to, name))
            }
            Targets::Network(network) => {
                network.contains(&address) || network.contains(&effective_address(address))
            }
        };
        if self.rules(scheme).any(may) {
            return Ok(());
        }
        Err(NotAllowed::Address { host: name, address, kind: special_kind(address) })
    }
}

/// Returns `true` if a rule for hosts matches a host name.
fn matches(to: &Targets, name: &str) -> bool {
    match to {
        Targets::Host(host) => host == name,
        Targets::Subdomains(above) => {
            name.strip_suffix(above.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        }
        Targets::Public | Targets::Network(_) => false,
    }
}

/// Reason why a target is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAllowed {
    /// The text is not an HTTP or HTTPS URL.
    InvalidUrl,
    /// No rule allows the host.
    Host { host: String },
    /// No rule allows the address.
    Address {
        /// Host name that resolved to the address. `None` if the URL contains the address.
        host: Option<String>,
        address: IpAddr,
        /// Kind of the address. `None` if the address is public.
        kind: Option<&'static str>,
    },
}

impl NotAllowed {
    /// Describes the reason without the host and the address.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::InvalidUrl => "the URL is neither http nor https".to_owned(),
            Self::Host { .. } => "the host is not allowed by --callback-allow".to_owned(),
            Self::Address { kind, .. } => {
                format!("the {} address is not allowed by --callback-allow", kind.unwrap_or("public"))
            }
        }
    }
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidUrl => f.write_str(&self.kind()),
            Self::Host { host } => write!(f, "{host} is not allowed by --callback-allow"),
            Self::Address { host, address, kind } => {
                if let Some(host) = host {
                    write!(f, "{host} resolves to ")?;
                }
                let kind = kind.unwrap_or("public");
                write!(f, "{address} ({kind}): not allowed by --callback-allow")
            }
        }
    }
}

impl std::error::Error for NotAllowed {}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(rules: &[&str]) -> Allowed {
        rules.iter().map(|rule| rule.parse().unwrap()).collect()
    }

    #[test]
    fn rule_is_a_host_a_network_or_all_public_addresses() {
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
    fn no_rules_allow_only_public_addresses() {
        let all = Allowed::default();
        let public: IpAddr = "1.1.1.1".parse().unwrap();
        assert_eq!(all.check_address(Scheme::Http, None, public), Ok(()));
        assert_eq!(all.check_host(Scheme::Https, "anything"), Ok(()));
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
                all.check_address(Scheme::Http, Some("a"), address.parse().unwrap()).unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("a resolves to {}", address.parse::<IpAddr>().unwrap())),
                "{refused}"
            );
        }
    }

    #[test]
    fn rules_allow_only_the_targets_they_name() {
        let rules = allowed(&["https://*.example.com", "hooks.internal", "10.1.0.0/16"]);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(rules.check_address(Scheme::Https, Some("a.EXAMPLE.com."), address("1.1.1.1")).is_ok());
        assert!(
            rules.check_address(Scheme::Http, Some("a.example.com"), address("1.1.1.1")).is_err(),
            "the rule allows https only"
        );
        assert!(
            rules.check_address(Scheme::Https, Some("example.com"), address("1.1.1.1")).is_err(),
            "not a subdomain"
        );
        assert!(rules.check_address(Scheme::Https, Some("aexample.com"), address("1.1.1.1")).is_err());
        assert!(rules.check_address(Scheme::Http, Some("hooks.internal"), address("1.1.1.1")).is_ok());
        assert!(
            rules.check_address(Scheme::Http, Some("hooks.internal"), address("10.2.0.1")).is_err(),
            "not public"
        );
        assert!(
            rules.check_address(Scheme::Http, Some("any"), address("10.1.2.3")).is_ok(),
            "allowed by its network"
        );
        assert!(
            rules.check_address(Scheme::Http, None, address("::ffff:10.1.2.3")).is_ok(),
            "the IPv4-mapped form of an allowed address"
        );
        assert!(rules.check_address(Scheme::Http, None, address("1.1.1.1")).is_err());
        let only_hosts = allowed(&["*.example.com"]);
        assert_eq!(only_hosts.check_host(Scheme::Http, "a.b.example.com"), Ok(()));
        let refused = only_hosts.check_host(Scheme::Http, "Other.com").unwrap_err().to_string();
        assert_eq!(refused, "other.com is not allowed by --callback-allow");
    }
}
