//! Network between a rep and the server: a proxy that forwards data, holds it back, or closes connections.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::{Failed, Result};

/// Maximum number of bytes that are forwarded at once.
const CHUNK_BYTES: usize = 16 * 1024;

/// State of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkState {
    /// Data is forwarded.
    Whole,
    /// Data is held back without an error, and arrives when the network is whole again.
    Silent,
    /// Connections are closed. New connections are closed as soon as they are accepted.
    Refusing,
}

/// Proxy in front of a server. All its connections are closed on drop.
#[derive(Debug)]
pub struct Proxy {
    /// URL of the proxy.
    pub url: String,
    network: watch::Sender<NetworkState>,
    tasks: JoinSet<()>,
}

impl Proxy {
    /// Starts a proxy in front of a server at `nats://HOST:PORT`.
    ///
    /// # Errors
    /// Returns an error if no port is free.
    pub async fn in_front_of(url: &str) -> Result<Self> {
        let server = url.trim_start_matches("nats://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Failed::context("proxy"))?;
        let address = listener.local_addr().map_err(Failed::context("proxy"))?;
        let (network, seen) = watch::channel(NetworkState::Whole);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server, seen));
        Ok(Self { url: format!("nats://{address}"), network, tasks })
    }

    /// Sets the state of the network.
    pub fn set(&self, network: NetworkState) {
        self.network.send_replace(network);
    }

    /// Returns the number of running tasks.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }
}

async fn accept(listener: TcpListener, server: String, network: watch::Receiver<NetworkState>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    connections.spawn(connect(client, server.clone(), network.clone()));
                }
                Err(error) => tracing::warn!("the proxy can't accept a connection: {error}"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Forwards one connection until it ends or is closed.
async fn connect(client: TcpStream, server: String, mut network: watch::Receiver<NetworkState>) {
    if *network.borrow_and_update() == NetworkState::Refusing {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let torn = network.clone();
    tokio::select! {
        _ = forward(from_client, to_server, network.clone()) => {}
        _ = forward(from_server, to_client, network) => {}
        () = wait_until_refusing(torn) => {}
    }
}

/// Waits until the network refuses connections.
async fn wait_until_refusing(mut network: watch::Receiver<NetworkState>) {
    // The sender is dropped only together with the proxy. The drop of the proxy ends this connection, too.
    network.wait_for(|network| *network == NetworkState::Refusing).await.ok();
}

/// Forwards data in one direction while the network is whole.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut network: watch::Receiver<NetworkState>,
) -> io::Result<()> {
    let mut piece = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 || network.wait_for(|network| *network == NetworkState::Whole).await.is_err() {
            return Ok(());
        }
        to.write_all(&piece[..read]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    tokio::io::copy(&mut from, &mut to).await.ok();
                });
            }
        });
        format!("nats://{address}")
    }

    async fn through(proxy: &Proxy) -> TcpStream {
        TcpStream::connect(proxy.url.trim_start_matches("nats://")).await.unwrap()
    }

    #[tokio::test]
    async fn silent_network_holds_data_until_whole() {
        let proxy = Proxy::in_front_of(&echo().await).await.unwrap();
        let mut stream = through(&proxy).await;
        let mut answer = [0; 3];
        stream.write_all(b"one").await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        proxy.set(NetworkState::Silent);
        stream.write_all(b"two").await.unwrap();
        tokio::select! {
            biased;
            _ = stream.read_exact(&mut answer) => panic!("{answer:?} passed a silent network"),
            () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
        }
        proxy.set(NetworkState::Whole);
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"two");
    }

    #[tokio::test]
    async fn refusing_network_closes_connections() {
        let proxy = Proxy::in_front_of(&echo().await).await.unwrap();
        let mut old = through(&proxy).await;
        old.write_all(b"one").await.unwrap();
        old.read_exact(&mut [0; 3]).await.unwrap();
        proxy.set(NetworkState::Refusing);
        let ends = |read: io::Result<usize>| matches!(read, Ok(0) | Err(_));
        assert!(ends(old.read(&mut [0; 3]).await));
        assert!(ends(through(&proxy).await.read(&mut [0; 3]).await));
        proxy.set(NetworkState::Whole);
        let mut new = through(&proxy).await;
        new.write_all(b"two").await.unwrap();
        new.read_exact(&mut [0; 3]).await.unwrap();
    }
}
