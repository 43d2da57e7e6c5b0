//! Allocation of host ports. Several cells may share a host without knowing of each other. A port is
//! therefore allocated only if it can be bound and no other rep reserves it. It is kept until its container
//! is deleted.

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

/// Ports allocated by the cells of this process, with the number of holders. A container may not have bound
/// its port when another cell searches. Two holders are the same container before and after its cell was
/// reopened.
static HELD: Mutex<BTreeMap<u16, usize>> = Mutex::new(BTreeMap::new());

/// Error if too few ports are free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no free host port in {}-{}", range.start(), range.end())]
pub(super) struct NoPort {
    range: RangeInclusive<u16>,
}

/// Port allocator of one cell.
#[derive(Debug)]
pub(super) struct Ports {
    range: RangeInclusive<u16>,
    /// Allocated ports with their reservations. `None` if another rep holds the reservation, or reservations
    /// are not available.
    own: BTreeMap<u16, Option<UnixDatagram>>,
    /// Start of the next search, after the last allocated port, so that a released port is not reused at
    /// once.
    next: u16,
}

impl Ports {
    /// Creates an allocator for `range`. The start of the search differs from cell to cell.
    pub(super) fn new(range: RangeInclusive<u16>, cell_id: &CellId) -> Self {
        let count = u64::from(range.end().saturating_sub(*range.start())) + 1;
        let offset = u16::try_from(fnv(cell_id.as_str()) % count).expect("a port is less than 2^16");
        let next = range.start().saturating_add(offset);
        Self { range, own: BTreeMap::new(), next }
    }

    /// Allocates a host port for each port of a container, or none at all.
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

    /// Marks the ports of an adopted container as allocated.
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

    /// Releases the ports of a deleted container.
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

/// Error if another rep of this host reserves the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reserved;

/// Reserves a port against other reps of this host, since a container may not have bound it when they search.
/// The reservation is an abstract socket. It exists in the same network namespace as the port and disappears
/// with its holder. `None` if abstract sockets are not available.
fn reserve(port: u16) -> Result<Option<UnixDatagram>, Reserved> {
    let bound = SocketAddr::from_abstract_name(format!("muster-port-{port}"))
        .and_then(|name| UnixDatagram::bind_addr(&name));
    match bound {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(Reserved),
        Err(_) => Ok(None),
    }
}

/// Returns `true` if a server could listen on the port, on IPv6 and IPv4, or on IPv4 alone if the host has no
/// IPv6.
fn can_be_bound(port: u16) -> bool {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::AddrInUse => false,
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok(),
    }
}

/// Returns the FNV-1a hash of a text.
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
    fn used_port_is_skipped_and_no_port_is_allocated_twice() {
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
