//! Allocation of host ports. Several cells may share a host and do not know each other. A port is therefore
//! allocated only if it can be bound and no other rep has reserved it. The port stays allocated until its
//! container is deleted.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use parking_lot::{Mutex, MutexGuard};
use schemas::container::PortMapping;
use schemas::names::CellId;

/// Ports allocated by the cells of this process, with the number of holders. This map is needed because a
/// container may not have bound its port yet when another cell searches for a free port. A port has two
/// holders if a cell was reopened in this process: the same container counts before and after the reopening.
static ALLOCATED: Mutex<BTreeMap<u16, usize>> = Mutex::new(BTreeMap::new());

/// Error if fewer ports are free than the container needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no free host port in {}-{}", range.start(), range.end())]
pub(super) struct NoFreePort {
    range: RangeInclusive<u16>,
}

/// Port allocator of one cell.
#[derive(Debug)]
pub(super) struct Ports {
    range: RangeInclusive<u16>,
    /// Allocated ports with their reservations. The reservation is `None` if another rep holds it, or if
    /// reservations are not available.
    allocated: BTreeMap<u16, Option<UnixDatagram>>,
    /// Port at which the next search starts. It follows the last allocated port, so that a released port is
    /// not reused immediately.
    next_search: u16,
}

impl Ports {
    /// Creates an allocator for `range`. The start of the search differs from cell to cell.
    pub(super) fn new(range: RangeInclusive<u16>, cell_id: &CellId) -> Self {
        let count = u64::from(range.end().saturating_sub(*range.start())) + 1;
        let offset = u16::try_from(fnv1a(cell_id.as_str()) % count).expect("a port is less than 2^16");
        let next_search = range.start().saturating_add(offset);
        Self { range, allocated: BTreeMap::new(), next_search }
    }

    /// Allocates a host port for each port of a container. If too few ports are free, allocates none.
    pub(super) fn allocate(&mut self, container_ports: &[u16]) -> Result<Vec<PortMapping>, NoFreePort> {
        let mut held = allocated();
        let search = (self.next_search..=*self.range.end()).chain(*self.range.start()..self.next_search);
        let free = search.filter(|port| !held.contains_key(port) && is_bindable(*port));
        let reserved = free.filter_map(|port| Some((port, reserve(port).ok()?)));
        let found: Vec<_> = container_ports.iter().copied().zip(reserved).collect();
        if found.len() < container_ports.len() {
            return Err(NoFreePort { range: self.range.clone() });
        }
        let mut mappings = Vec::with_capacity(found.len());
        for (container_port, (host_port, reservation)) in found {
            self.allocated.insert(host_port, reservation);
            *held.entry(host_port).or_default() += 1;
            mappings.push(PortMapping { container_port, host_port });
        }
        if let Some(last) = mappings.last() {
            let end = last.host_port == *self.range.end();
            self.next_search = if end { *self.range.start() } else { last.host_port + 1 };
        }
        Ok(mappings)
    }

    /// Marks the ports of an adopted container as allocated.
    pub(super) fn adopt(&mut self, mappings: &[PortMapping]) {
        let mut held = allocated();
        for mapping in mappings {
            if let Entry::Vacant(own) = self.allocated.entry(mapping.host_port) {
                let reservation = reserve(mapping.host_port).ok().flatten();
                own.insert(reservation);
                *held.entry(mapping.host_port).or_default() += 1;
            }
        }
    }

    /// Releases the ports of a deleted container.
    pub(super) fn release(&mut self, mappings: &[PortMapping]) {
        for mapping in mappings {
            if self.allocated.remove(&mapping.host_port).is_some() {
                release_process_wide(mapping.host_port);
            }
        }
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        for port in std::mem::take(&mut self.allocated).into_keys() {
            release_process_wide(port);
        }
    }
}

fn allocated() -> MutexGuard<'static, BTreeMap<u16, usize>> {
    ALLOCATED.lock()
}

fn release_process_wide(port: u16) {
    let mut held = allocated();
    if let Some(count) = held.get_mut(&port) {
        *count -= 1;
        if *count == 0 {
            held.remove(&port);
        }
    }
}

/// Error if another rep of this host has reserved the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reserved;

/// Reserves a port against other reps of this host, since a container may not have bound the port when
/// another rep searches. The reservation is an abstract socket in the same network namespace as the port. The
/// reservation disappears when the process that holds the socket ends. `None` if abstract sockets are not
/// available.
fn reserve(port: u16) -> Result<Option<UnixDatagram>, Reserved> {
    let bound = SocketAddr::from_abstract_name(format!("muster-port-{port}"))
        .and_then(|name| UnixDatagram::bind_addr(&name));
    match bound {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(Reserved),
        Err(_) => Ok(None),
    }
}

/// Returns `true` if a server could listen on the port, both on IPv6 and on IPv4. If the host has no IPv6,
/// IPv4 is sufficient.
fn is_bindable(port: u16) -> bool {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::AddrInUse => false,
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok(),
    }
}

/// Returns the FNV-1a hash of a text.
pub(crate) fn fnv1a(text: &str) -> u64 {
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
        assert!(ports.allocate(&[80]).is_err());
        drop(other);
        let taken = ports.allocate(&[80]).unwrap();
        assert!(reserve(free).is_err());
        ports.release(&taken);
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
        while let Ok(mappings) = if taken.len() % 2 == 0 { a.allocate(&[80]) } else { b.allocate(&[80]) } {
            assert!(given.insert(mappings[0].host_port), "the port was allocated twice");
            taken.push(mappings);
        }
        assert!(!given.contains(&busy) && !given.is_empty());
        assert!(a.allocate(&[1, 2]).is_err());
        a.release(&taken[0]);
        assert_eq!(a.allocate(&[81]).unwrap()[0].host_port, taken[0][0].host_port);
    }
}
