//! Messages between a shim and its executor: lines of JSON, optionally with open files.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Maximum length of a message in bytes. It exceeds the length of the largest request with all bytes escaped.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// Maximum number of files in a message.
const MAX_FILES: usize = 3;

/// Opens a socket in a container's folder. Every process that has access to the folder may connect.
pub(crate) fn listen(folder: &Path, name: &str) -> io::Result<UnixListener> {
    let (_folder, path) = socket_path(folder, name)?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    // The container's root user must be able to connect. Users of the host have no access to the folder.
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Connects to a socket in a container's folder.
pub(crate) async fn connect(folder: &Path, name: &str) -> io::Result<UnixStream> {
    let (_folder, path) = socket_path(folder, name)?;
    UnixStream::connect(path).await
}

/// Returns a short path to a socket, because the operating system limits the length of socket paths. The path
/// is valid while the returned descriptor is open.
fn socket_path(folder: &Path, name: &str) -> io::Result<(OwnedFd, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
    Ok((folder, path.into()))
}

/// Sends a message with files.
pub(crate) async fn send(
    to: &UnixStream,
    message: &impl Serialize,
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(message)?;
    bytes.push(b'\n');
    let (mut sent, mut files) = (0, files);
    while sent < bytes.len() {
        to.writable().await?;
        match to.try_io(Interest::WRITABLE, || send_some(to, &bytes[sent..], files)) {
            Ok(count) => (sent, files) = (sent + count, &[]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives a message with its files. Returns `UnexpectedEof` if the other end was closed.
pub(crate) async fn receive<T: DeserializeOwned>(from: &UnixStream) -> io::Result<(T, Vec<OwnedFd>)> {
    let (mut bytes, mut files) = (vec![], vec![]);
    while !bytes.ends_with(b"\n") {
        from.readable().await?;
        match from.try_io(Interest::READABLE, || receive_some(from, &mut bytes)) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, came)) => files.extend(came),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(io::Error::other("the message is too long"));
        }
    }
    Ok((serde_json::from_slice(&bytes)?, files))
}

/// Waits until the other end is closed.
pub(crate) async fn wait_until_closed(other: &UnixStream) {
    loop {
        // A socket that cannot be polled counts as closed.
        if other.readable().await.is_err() {
            return;
        }
        let mut bytes = vec![];
        match other.try_io(Interest::READABLE, || receive_some(other, &mut bytes)) {
            Ok((0, _)) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Sends as many bytes as possible, and returns their number.
pub(crate) fn send_some(to: impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many files for one message"));
    }
    // If the receiver has closed the connection, return an error instead of a signal to this process.
    let send = || sendmsg(to.as_fd(), &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL);
    Ok(retry_on_intr(send)?)
}

/// Receives some bytes and the files attached to them. Returns the number of bytes and the files.
pub(crate) fn receive_some(from: impl AsFd, bytes: &mut Vec<u8>) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut piece = [0; 4096];
    let receive = || {
        let mut into = [IoSliceMut::new(&mut piece)];
        recvmsg(from.as_fd(), &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC)
    };
    let count = retry_on_intr(receive)?.bytes;
    bytes.extend(&piece[..count]);
    let mut files = vec![];
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            files.extend(came);
        }
    }
    Ok((count, files))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;
    use crate::transfer::{TransferReply, TransferRequest};

    #[tokio::test]
    async fn messages_carry_files_and_closing_is_detected() {
        let (one, other) = UnixStream::pair().unwrap();
        let mut text = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut text, b"hello").unwrap();
        io::Seek::rewind(&mut text).unwrap();
        send(&one, &TransferRequest { number: 7 }, &[text.as_fd()]).await.unwrap();
        let (question, mut files): (TransferRequest, _) = receive(&other).await.unwrap();
        let mut read = String::new();
        File::from(files.pop().unwrap()).read_to_string(&mut read).unwrap();
        assert_eq!((question.number, read.as_str()), (7, "hello"));

        let long = TransferReply::Failed("x".repeat(10_000));
        send(&other, &long, &[]).await.unwrap();
        let (answer, files): (TransferReply, _) = receive(&one).await.unwrap();
        assert_eq!(answer, long);
        assert!(files.is_empty());

        drop(other);
        wait_until_closed(&one).await;
        assert_eq!(receive::<TransferReply>(&one).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn socket_in_deep_folder_can_be_opened() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        for _again in 0..2 {
            listen(&deep, "rep").unwrap();
            assert!(deep.join("rep").exists());
        }
    }
}
