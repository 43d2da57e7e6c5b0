//! Classification of IP addresses as public or as a special kind, based on the IANA special-purpose address
//! registries. The registries also contain some globally reachable addresses. These addresses count as
//! public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the effective address. For an IPv6 address that embeds an IPv4 address, this is the IPv4 address.
/// Otherwise, it is the address itself.
pub(crate) fn effective_address(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let bytes = v6.octets();
    let last = || Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]);
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] => last().into(),
        // The network translates this IPv6 address to IPv4 (RFC 6052).
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => last().into(),
        // 6to4: the IPv4 address follows the prefix.
        [0x2002, ..] => Ipv4Addr::new(bytes[2], bytes[3], bytes[4], bytes[5]).into(),
        // IPv4-compatible addresses, which are deprecated. `::` and `::1` have the same prefix, but contain
        // no IPv4 address.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => last().into(),
        _ => address,
    }
}

/// Returns the kind of an address. `None` if the address is public.
pub(crate) fn special_kind(address: IpAddr) -> Option<&'static str> {
    match effective_address(address) {
        IpAddr::V4(address) => special_kind_v4(address),
        IpAddr::V6(address) => special_kind_v6(address),
    }
}

fn special_kind_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [0, ..] => Some("unspecified"),
        [127, ..] => Some("loopback"),
        [169, 254, ..] => Some("link-local"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Some("private"),
        [224..=239, ..] => Some("multicast"),
        [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [240..=255, ..] => Some("reserved"),
        _ => None,
    }
}

fn special_kind_v6(address: Ipv6Addr) -> Option<&'static str> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("loopback"),
        [0xfe80..=0xfebf, ..] => Some("link-local"),
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Some("private"),
        [0xff00..=0xffff, ..] => Some("multicast"),
        // Only 2000::/3 is allocated. Within 2000::/3, Teredo, documentation and benchmarking addresses are
        // not public.
        [0x2001, 0..=0x01ff | 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Some("reserved"),
        [0x2000..=0x3fff, ..] => None,
        _ => Some("reserved"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_classified_as_public_or_special() {
        for (kind_of, addresses) in [
            (
                "loopback",
                &["127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"]
                    [..],
            ),
            ("link-local", &["169.254.169.254", "fe80::1", "febf::1", "::ffff:169.254.1.1"]),
            ("unspecified", &["0.0.0.0", "0.1.2.3", "::"]),
            (
                "private",
                &[
                    "10.1.2.3",
                    "172.16.0.1",
                    "172.31.255.255",
                    "192.168.1.1",
                    "100.64.0.1",
                    "fd00::1",
                    "fc00::1",
                ],
            ),
            ("multicast", &["224.0.0.1", "239.1.1.1", "ff02::1"]),
            (
                "reserved",
                &[
                    "255.255.255.255",
                    "240.0.0.1",
                    "192.0.2.1",
                    "198.18.0.1",
                    "2001:db8::1",
                    "2001::1",
                    "4000::1",
                ],
            ),
        ] {
            for address in addresses {
                assert_eq!(special_kind(address.parse().unwrap()), Some(kind_of), "{address}");
            }
        }
        for public in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "192.0.1.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "2002:101:101::",
        ] {
            assert_eq!(special_kind(public.parse().unwrap()), None, "{public}");
        }
    }
}
