//! Loopback device of a new network namespace. The device is down until this program brings it up.

use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Index of the loopback device, which is the first device of every network namespace.
const DEVICE_INDEX: i32 = 1;
/// `RTM_NEWLINK`: changes the attributes of a device.
const RTM_NEWLINK: u16 = 16;
const REQUEST_WITH_ACK: u16 = 1 | 4;
/// `NLMSG_ERROR`: the kernel uses this type to report failures and successes.
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;

/// Brings the loopback device up.
pub(super) fn bring_up() -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    // The call passes no protocol number. This selects the first protocol of the family, which handles
    // devices and routes.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    sendto(&socket, &request(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0_u8; 1024];
    let (count, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    parse_ack(&answer[..count])
}

/// Returns the request. It consists of a header (length, kind, flags, number, sender) and a link (family,
/// type, device, flags, mask of flags).
fn request() -> Vec<u8> {
    let mut bytes = vec![];
    bytes.extend(32_u32.to_ne_bytes());
    bytes.extend(RTM_NEWLINK.to_ne_bytes());
    bytes.extend(REQUEST_WITH_ACK.to_ne_bytes());
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(DEVICE_INDEX.to_ne_bytes());
    bytes.extend(IFF_UP.to_ne_bytes());
    bytes.extend(IFF_UP.to_ne_bytes());
    bytes
}

fn parse_ack(answer: &[u8]) -> io::Result<()> {
    let odd = || io::Error::other("unexpected reply from the kernel");
    let kind: [u8; 2] = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).ok_or_else(odd)?;
    let number: [u8; 4] = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).ok_or_else(odd)?;
    match (u16::from_ne_bytes(kind), i32::from_ne_bytes(number)) {
        (NLMSG_ERROR, 0) => Ok(()),
        (NLMSG_ERROR, number) => Err(io::Error::from_raw_os_error(-number)),
        (_, _) => Err(odd()),
    }
}
