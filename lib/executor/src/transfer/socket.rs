//! Messages between a shim and its executor, each a line of JSON with a file or without.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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

use super::SOCKET;

/// Longest message, in bytes: a reason is far shorter.
const MESSAGE_BYTES: usize = 16 * 1024;

/// Where the socket of a container's folder is, by a path that is short enough for a socket however deep the folder lies: it
/// leads there for as long as the descriptor is open.
pub(crate) fn place(folder: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", std::os::fd::AsRawFd::as_raw_fd(&folder));
    Ok((folder, path.into()))
}

/// Sends a message, and a file with it if there is one.
pub(crate) async fn send(
    to: &UnixStream,
    message: &impl Serialize,
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(message)?;
    bytes.push(b'\n');
    let (mut sent, mut file) = (0, file);
    while sent < bytes.len() {
        to.writable().await?;
        match to.try_io(Interest::WRITABLE, || send_piece(to, &bytes[sent..], file)) {
            Ok(count) => (sent, file) = (sent + count, None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives a message, and the file that came with it. That the other end is gone is `UnexpectedEof`.
pub(crate) async fn receive<T: DeserializeOwned>(from: &UnixStream) -> io::Result<(T, Option<OwnedFd>)> {
    let (mut bytes, mut file) = (vec![], None);
    while !bytes.ends_with(b"\n") {
        from.readable().await?;
        match from.try_io(Interest::READABLE, || receive_piece(from, &mut bytes)) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, came)) => file = came.or(file),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if bytes.len() > MESSAGE_BYTES {
            return Err(io::Error::other("a message is too long"));
        }
    }
    Ok((serde_json::from_slice(&bytes)?, file))
}

/// Waits until the other end is gone.
pub(crate) async fn gone(other: &UnixStream) {
    loop {
        // What can't be waited for is gone, too.
        if other.readable().await.is_err() {
            return;
        }
        let mut bytes = vec![];
        match other.try_io(Interest::READABLE, || receive_piece(other, &mut bytes)) {
            Ok((0, _)) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Sends so many of the bytes as there is room for, and says how many.
pub(crate) fn send_piece(to: impl AsFd, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("there is no room for a file"));
    }
    // A program of the container that ends meanwhile tells so by a signal.
    let send = || sendmsg(to.as_fd(), &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL);
    Ok(retry_on_intr(send)?)
}

/// Receives some bytes, and a file if one came with them; says how many.
pub(crate) fn receive_piece(from: impl AsFd, bytes: &mut Vec<u8>) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut piece = [0; 4096];
    let receive = || {
        let mut into = [IoSliceMut::new(&mut piece)];
        recvmsg(from.as_fd(), &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC)
    };
    let count = retry_on_intr(receive)?.bytes;
    bytes.extend(&piece[..count]);
    let mut file = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last();
        }
    }
    Ok((count, file))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;
    use crate::transfer::{Answer, Question};

    #[tokio::test]
    async fn a_message_comes_whole_with_its_file_and_an_end_is_told() {
        let (one, other) = UnixStream::pair().unwrap();
        let mut text = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut text, b"hello").unwrap();
        io::Seek::rewind(&mut text).unwrap();
        send(&one, &Question { number: 7 }, Some(text.as_fd())).await.unwrap();
        let (question, file): (Question, _) = receive(&other).await.unwrap();
        let mut read = String::new();
        File::from(file.unwrap()).read_to_string(&mut read).unwrap();
        assert_eq!((question.number, read.as_str()), (7, "hello"));

        let long = Answer::Failed("x".repeat(10_000));
        send(&other, &long, None).await.unwrap();
        let (answer, file): (Answer, _) = receive(&one).await.unwrap();
        assert_eq!(answer, long);
        assert!(file.is_none());

        drop(other);
        gone(&one).await;
        assert_eq!(receive::<Answer>(&one).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_folder_may_lie_deep() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let (_folder, path) = place(&deep).unwrap();
        std::os::unix::net::UnixListener::bind(path).unwrap();
        assert!(deep.join(SOCKET).exists());
    }
}
