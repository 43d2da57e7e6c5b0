//! Ports of the host. Several cells may share a host without knowing of each other, so a port is taken only if it can
//! be bound and no other rep reserves it; it is kept until its container is deleted.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, MutexGuard};

use schemas::container::PortMapping;
use schemas::names::CellId;

/// What the cells of this very program hold, with how many hold it: a container may not have bound its port yet when
/// the next cell looks. Two holders are the same container before and after its cell was opened again.
static HELD: Mutex<BTreeMap<u16, usize>> = Mutex::new(BTreeMap::new());

/// Not enough ports are free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no free host port in {}-{}", range.start(), range.end())]
pub(super) struct NoPort {
    range: RangeInclusive<u16>,
}

/// The ports of one cell.
#[derive(Debug)]
pub(super) struct Ports {
    range: RangeInclusive<u16>,
    /// The ports of its containers, each with its reservation; without one where another rep has that.
    own: BTreeMap<u16, Option<UnixDatagram>>,
    /// Where the next search begins: behind the last find, so that a port rests before it is used again.
    next: u16,
}

impl Ports {
    /// The ports of `range`, searched from a place that differs from cell to cell.
    pub(super) fn new(range: RangeInclusive<u16>, cell_id: &CellId) -> Self {
        let count = u64::from(range.end().saturating_sub(*range.start())) + 1;
        let offset = u16::try_from(fnv(cell_id.as_str()) % count).expect("a port is less than 2^16");
        let next = range.start().saturating_add(offset);
        Self { range, own: BTreeMap::new(), next }
    }

    /// Takes a port of the host for each port of a container, or none at all.
    pub(super) fn take(&mut self, container_ports: &[u16]) -> Result<Vec<PortMapping>, NoPort> {
        let mut held = held();
        let search = (self.next..=*self.range.end()).chain(*self.range.start()..self.next);
        let free = search.filter(|port| !held.contains_key(port) && can_be_bound(*port));
        let reserved = free.filter_map(|port| Some((port, reserve(port).ok()?)));
        let found: Vec<_> = container_ports.iter().copied().zip(reserved).collect();
        if found.len() < container_ports.len() {
            return Err(NoPort { range: self.range.clone() });
        }
        let mut mappings = Vec::with_capacity(found.len());
        for (container_port, (host_port, reservation)) in found {
            self.own.insert(host_port, reservation);
            *held.entry(host_port).or_default() += 1;
            mappings.push(PortMapping { container_port, host_port });
        }
        if let Some(last) = mappings.last() {
            let end = last.host_port == *self.range.end();
            self.next = if end { *self.range.start() } else { last.host_port + 1 };
        }
        Ok(mappings)
    }

    /// Takes what a container of an earlier run already has.
    pub(super) fn adopt(&mut self, mappings: &[PortMapping]) {
        let mut held = held();
        for mapping in mappings {
            if let Entry::Vacant(own) = self.own.entry(mapping.host_port) {
                let reservation = reserve(mapping.host_port).ok().flatten();
                own.insert(reservation);
                *held.entry(mapping.host_port).or_default() += 1;
            }
        }
    }

    /// Gives back the ports of a container that is gone.
    pub(super) fn give(&mut self, mappings: &[PortMapping]) {
        for mapping in mappings {
            if self.own.remove(&mapping.host_port).is_some() {
                release(mapping.host_port);
            }
        }
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        for port in std::mem::take(&mut self.own).into_keys() {
            release(port);
        }
    }
}

fn held() -> MutexGuard<'static, BTreeMap<u16, usize>> {
    HELD.lock().expect("nobody panics while holding the ports")
}

fn release(port: u16) {
    let mut held = held();
    if let Some(count) = held.get_mut(&port) {
        *count -= 1;
        if *count == 0 {
            held.remove(&port);
        }
    }
}

/// Another rep of this host reserves the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reserved;

/// Reserves a port against the other reps of this host: a container may not have bound it yet when they look. An abstract socket
/// is known in the same network namespace as the port, and goes with its holder. `None` where there can be none.
fn reserve(port: u16) -> Result<Option<UnixDatagram>, Reserved> {
    let bound = SocketAddr::from_abstract_name(format!("muster-port-{port}"))
        .and_then(|name| UnixDatagram::bind_addr(&name));
    match bound {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(Reserved),
        Err(_) => Ok(None),
    }
}

/// Whether a server could listen there, on IPv6 and IPv4; on IPv4 alone where the host has no IPv6.
fn can_be_bound(port: u16) -> bool {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::AddrInUse => false,
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok(),
    }
}

/// FNV-1a.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn cell(name: &str) -> CellId {
        CellId::new(name).unwrap()
    }

    #[test]
    fn port_reserved_by_another_rep_is_skipped() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let other = reserve(free).unwrap();
        let mut ports = Ports::new(free..=free, &cell("a"));
        assert!(ports.take(&[80]).is_err());
        drop(other);
        let taken = ports.take(&[80]).unwrap();
        assert!(reserve(free).is_err());
        ports.give(&taken);
        assert!(reserve(free).is_ok());
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_skipped_and_none_is_given_twice() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let busy = listener.local_addr().unwrap().port();
        let range = busy.saturating_sub(8)..=busy.saturating_add(8);
        let mut a = Ports::new(range.clone(), &cell("a"));
        let mut b = Ports::new(range, &cell("b"));
        let mut given = BTreeSet::new();
        let mut taken = vec![];
        while let Ok(mappings) = if taken.len() % 2 == 0 { a.take(&[80]) } else { b.take(&[80]) } {
            assert!(given.insert(mappings[0].host_port), "given twice");
            taken.push(mappings);
        }
        assert!(!given.contains(&busy) && !given.is_empty());
        assert!(a.take(&[1, 2]).is_err());
        a.give(&taken[0]);
        assert_eq!(a.take(&[81]).unwrap()[0].host_port, taken[0][0].host_port);
    }
}
