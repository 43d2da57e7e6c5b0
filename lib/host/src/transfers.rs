//! Restrictions on the targets of downloads and uploads that a cell performs for containers.
//!
//! A container can read the files that its cell downloads, so a download must not give access to the cell's
//! host. Requests to the host itself, and to the metadata services of clouds, are refused unless an operator
//! allows them. Private addresses are allowed because blobstores use them.

use std::net::IpAddr;

use artifacts::{Judge, Settings, limits};
use clap::Args;
use outbound::Target;
use schemas::limits::RESOURCE_MB;
use text::words::number;

use crate::callback::allow::{Allowed, Rule};
use crate::callback::kinds::{effective_address, special_kind};

/// Addresses of cloud metadata services, in addition to the link-local addresses.
const METADATA_ADDRESSES: [&str; 3] = ["fd00:ec2::254", "100.100.100.200", "168.63.129.16"];
const MIB: u64 = 1024 * 1024;

/// Options for downloads and uploads.
#[derive(Clone, Debug, Args)]
pub(crate) struct ArtifactsArgs {
    /// Allowed target of downloads and uploads for containers; may be repeated. HOST, *.HOST, an address, a
    /// network such as 10.0.0.0/8, or * for every public address; a prefix http:// or https:// allows only
    /// that scheme. If this option is set, all other targets are refused [default: every public and private
    /// address, except cloud metadata services]
    #[arg(long, value_name = "WHERE", value_delimiter = ',', env = "MUSTER_DOWNLOAD_ALLOW")]
    download_allow: Vec<Rule>,
    /// Size of the cache for downloaded archives, in MiB; a download with the same key is served from the
    /// cache
    #[arg(long, default_value_t = limits::DEFAULT_CACHE_BYTES / MIB, value_parser = number(0..=RESOURCE_MB), allow_negative_numbers = true, value_name = "MIB", env = "MUSTER_DOWNLOAD_CACHE")]
    download_cache: u64,
}

impl ArtifactsArgs {
    pub(crate) fn settings(&self) -> Settings {
        let reach = match self.download_allow.as_slice() {
            [] => Reach::Usual,
            rules => Reach::Only(rules.iter().cloned().collect()),
        };
        Settings {
            judge: judge(reach),
            cache_bytes: self.download_cache.saturating_mul(MIB),
            ..Settings::default()
        }
    }
}

/// Allowed targets of requests.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    /// Public and private addresses.
    Usual,
    /// Public and private addresses and this host, for a cluster on a single host.
    AlsoThisHost,
    /// Only the targets that these rules allow.
    Only(Allowed),
}

/// Returns the function that allows or refuses each request.
pub(crate) fn judge(reach: Reach) -> Judge {
    Judge::new(move |target| match &reach {
        Reach::Usual => check_default(&target, false),
        Reach::AlsoThisHost => check_default(&target, true),
        Reach::Only(allowed) => check_rules(allowed, &target),
    })
}

fn check_default(target: &Target<'_>, also_this_host: bool) -> Result<(), String> {
    let Some(address) = target.address else { return Ok(()) };
    let kind = if is_metadata_service(address) { Some("cloud metadata") } else { special_kind(address) };
    match kind {
        None | Some("private") => Ok(()),
        Some("loopback") if also_this_host => Ok(()),
        Some(kind) => Err(refused(target.host, address, &format!(" ({kind})"))),
    }
}

fn check_rules(allowed: &Allowed, target: &Target<'_>) -> Result<(), String> {
    allowed.check(target).map_err(|_| match target.address {
        Some(address) => refused(target.host, address, ""),
        None => {
            format!("{} is not allowed by --download-allow of the cell", target.host.unwrap_or_default())
        }
    })
}

fn refused(host: Option<&str>, address: IpAddr, which: &str) -> String {
    let leads = host.map_or_else(String::new, |host| format!("{host} resolves to "));
    format!("{leads}{address}{which}: not allowed by --download-allow of the cell")
}

fn is_metadata_service(address: IpAddr) -> bool {
    METADATA_ADDRESSES
        .iter()
        .any(|known| known.parse::<IpAddr>().is_ok_and(|known| known == effective_address(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reach: &Reach, address: &str) -> Result<(), String> {
        let target = Target {
            scheme: outbound::Scheme::Http,
            host: Some("blobs"),
            address: Some(address.parse().unwrap()),
        };
        match reach {
            Reach::Usual => check_default(&target, false),
            Reach::AlsoThisHost => check_default(&target, true),
            Reach::Only(allowed) => check_rules(allowed, &target),
        }
    }

    #[test]
    fn private_addresses_are_allowed_and_host_and_metadata_are_refused() {
        for fine in ["1.1.1.1", "10.0.0.7", "192.168.1.1", "fd00::1", "2606:4700::1111"] {
            assert_eq!(check(&Reach::Usual, fine), Ok(()), "{fine}");
        }
        for (address, kind) in [
            ("127.0.0.1", "loopback"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("169.254.169.254", "link-local"),
            ("::ffff:169.254.169.254", "link-local"),
            ("fe80::1", "link-local"),
            ("0.0.0.0", "unspecified"),
            ("fd00:ec2::254", "cloud metadata"),
            ("100.100.100.200", "cloud metadata"),
        ] {
            let said = check(&Reach::Usual, address).unwrap_err();
            let parsed: IpAddr = address.parse().unwrap();
            assert_eq!(
                said,
                format!("blobs resolves to {parsed} ({kind}): not allowed by --download-allow of the cell")
            );
        }
        assert_eq!(check(&Reach::AlsoThisHost, "127.0.0.1"), Ok(()));
        assert!(check(&Reach::AlsoThisHost, "169.254.169.254").is_err());
    }

    #[test]
    fn rules_replace_the_default_targets() {
        let only = Reach::Only(
            ["10.0.0.0/8", "169.254.169.254"].map(|rule| rule.parse().unwrap()).into_iter().collect(),
        );
        for fine in ["10.1.2.3", "169.254.169.254"] {
            assert_eq!(check(&only, fine), Ok(()));
        }
        for other in ["1.1.1.1", "192.168.1.1", "127.0.0.1"] {
            assert!(check(&only, other).unwrap_err().contains("--download-allow"));
        }
    }
}
