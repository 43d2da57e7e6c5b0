//! Messages between a shim and its executor, each a line of JSON with files or without.

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

/// Longest message, in bytes: what is to be run, with every byte of it escaped, is shorter.
const MESSAGE_BYTES: usize = 64 * 1024;
/// Most files that come with a message.
const FILES: usize = 3;

/// Opens a socket of a container's folder to whoever reaches that folder.
pub(crate) fn listen(folder: &Path, name: &str) -> io::Result<UnixListener> {
    let (_folder, path) = place(folder, name)?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    // Who is root in the container owns the folder, and nobody else comes so far.
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Connects to a socket of a container's folder.
pub(crate) async fn connect(folder: &Path, name: &str) -> io::Result<UnixStream> {
    let (_folder, path) = place(folder, name)?;
    UnixStream::connect(path).await
}

/// Where a socket of a container's folder is, by a path that is short enough for a socket however deep the folder lies: it
/// leads there for as long as the descriptor is open.
fn place(folder: &Path, name: &str) -> io::Result<(OwnedFd, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
    Ok((folder, path.into()))
}

/// Sends a message, and files with it if there are any.
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
        match to.try_io(Interest::WRITABLE, || send_piece(to, &bytes[sent..], files)) {
            Ok(count) => (sent, files) = (sent + count, &[]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives a message, and the files that came with it. That the other end is gone is `UnexpectedEof`.
pub(crate) async fn receive<T: DeserializeOwned>(from: &UnixStream) -> io::Result<(T, Vec<OwnedFd>)> {
    let (mut bytes, mut files) = (vec![], vec![]);
    while !bytes.ends_with(b"\n") {
        from.readable().await?;
        match from.try_io(Interest::READABLE, || receive_piece(from, &mut bytes)) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, came)) => files.extend(came),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if bytes.len() > MESSAGE_BYTES {
            return Err(io::Error::other("a message is too long"));
        }
    }
    Ok((serde_json::from_slice(&bytes)?, files))
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
pub(crate) fn send_piece(to: impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("there is no room for so many files"));
    }
    // A program of the container that ends meanwhile tells so by a signal.
    let send = || sendmsg(to.as_fd(), &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL);
    Ok(retry_on_intr(send)?)
}

/// Receives some bytes, and the files that came with them; says how many bytes.
pub(crate) fn receive_piece(from: impl AsFd, bytes: &mut Vec<u8>) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
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
    use crate::transfer::{Answer, Question};

    #[tokio::test]
    async fn a_message_comes_whole_with_its_file_and_an_end_is_told() {
        let (one, other) = UnixStream::pair().unwrap();
        let mut text = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut text, b"hello").unwrap();
        io::Seek::rewind(&mut text).unwrap();
        send(&one, &Question { number: 7 }, &[text.as_fd()]).await.unwrap();
        let (question, mut files): (Question, _) = receive(&other).await.unwrap();
        let mut read = String::new();
        File::from(files.pop().unwrap()).read_to_string(&mut read).unwrap();
        assert_eq!((question.number, read.as_str()), (7, "hello"));

        let long = Answer::Failed("x".repeat(10_000));
        send(&other, &long, &[]).await.unwrap();
        let (answer, files): (Answer, _) = receive(&one).await.unwrap();
        assert_eq!(answer, long);
        assert!(files.is_empty());

        drop(other);
        gone(&one).await;
        assert_eq!(receive::<Answer>(&one).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_folder_may_lie_deep() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        for _again in 0..2 {
            listen(&deep, "rep").unwrap();
            assert!(deep.join("rep").exists());
        }
    }
}
