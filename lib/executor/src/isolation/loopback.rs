//! Loopback device of a new network namespace, which is down initially.

use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Index of the loopback device, which is the first device of every network namespace.
const DEVICE: i32 = 1;
/// `RTM_NEWLINK`: changes the attributes of a device.
const SET_LINK: u16 = 16;
const ASK: u16 = 1 | 4;
/// `NLMSG_ERROR`, which also reports success.
const OUTCOME: u16 = 2;
const UP: u32 = 1;

/// Brings the loopback device up.
pub(super) fn up() -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    // No protocol number selects the first protocol of the family, which handles devices and routes.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    sendto(&socket, &question(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0_u8; 1024];
    let (count, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    outcome(&answer[..count])
}

/// Returns the request: a header (length, kind, flags, number, sender) and a link (family, type, device,
/// flags, mask of flags).
fn question() -> Vec<u8> {
    let mut bytes = vec![];
    bytes.extend(32_u32.to_ne_bytes());
    bytes.extend(SET_LINK.to_ne_bytes());
    bytes.extend(ASK.to_ne_bytes());
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(DEVICE.to_ne_bytes());
    bytes.extend(UP.to_ne_bytes());
    bytes.extend(UP.to_ne_bytes());
    bytes
}

fn outcome(answer: &[u8]) -> io::Result<()> {
    let odd = || io::Error::other("the kernel answers in an unknown way");
    let kind: [u8; 2] = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).ok_or_else(odd)?;
    let number: [u8; 4] = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).ok_or_else(odd)?;
    match (u16::from_ne_bytes(kind), i32::from_ne_bytes(number)) {
        (OUTCOME, 0) => Ok(()),
        (OUTCOME, number) => Err(io::Error::from_raw_os_error(-number)),
        (_, _) => Err(odd()),
    }
}
