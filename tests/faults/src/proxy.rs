//! The network between a rep and the server: a proxy that lets through, swallows, or tears down.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failed::{Failed, Result};

/// How much is carried at once, in bytes.
const PIECE: usize = 16 * 1024;

/// What becomes of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// It arrives.
    Whole,
    /// It stays on the way, and nobody is told. What was on the way arrives when the network is whole again.
    Silent,
    /// Connections are torn down, and new ones as soon as they are made.
    Refusing,
}

/// A proxy in front of a server. Dropped, it is gone with its connections.
#[derive(Debug)]
pub struct Proxy {
    /// Where it is reached.
    pub url: String,
    network: watch::Sender<Network>,
    tasks: JoinSet<()>,
}

impl Proxy {
    /// Puts one in front of a server at `nats://HOST:PORT`.
    ///
    /// # Errors
    /// No port is free.
    pub async fn before(url: &str) -> Result<Self> {
        let server = url.trim_start_matches("nats://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Failed::at("a proxy"))?;
        let address = listener.local_addr().map_err(Failed::at("a proxy"))?;
        let (network, seen) = watch::channel(Network::Whole);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server, seen));
        Ok(Self { url: format!("nats://{address}"), network, tasks })
    }

    /// Changes the network.
    pub fn set(&self, network: Network) {
        self.network.send_replace(network);
    }

    /// How many tasks it has.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }
}

async fn accept(listener: TcpListener, server: String, network: watch::Receiver<Network>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    connections.spawn(connect(client, server.clone(), network.clone()));
                }
                Err(error) => tracing::warn!("a proxy takes no connection: {error}"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries one connection until it ends, or is torn down.
async fn connect(client: TcpStream, server: String, mut network: watch::Receiver<Network>) {
    if *network.borrow_and_update() == Network::Refusing {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let torn = network.clone();
    tokio::select! {
        _ = carry(from_client, to_server, network.clone()) => {}
        _ = carry(from_server, to_client, network) => {}
        () = refusing(torn) => {}
    }
}

/// Waits until connections are torn down.
async fn refusing(mut network: watch::Receiver<Network>) {
    // The sender is gone only with the proxy, and so is this connection.
    network.wait_for(|network| *network == Network::Refusing).await.ok();
}

/// Carries what is sent in one direction, while the network is whole.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut network: watch::Receiver<Network>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 || network.wait_for(|network| *network == Network::Whole).await.is_err() {
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
    async fn a_silent_network_keeps_what_is_sent_until_it_is_whole() {
        let proxy = Proxy::before(&echo().await).await.unwrap();
        let mut stream = through(&proxy).await;
        let mut answer = [0; 3];
        stream.write_all(b"one").await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        proxy.set(Network::Silent);
        stream.write_all(b"two").await.unwrap();
        tokio::select! {
            biased;
            _ = stream.read_exact(&mut answer) => panic!("{answer:?} came through a silent network"),
            () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
        }
        proxy.set(Network::Whole);
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"two");
    }

    #[tokio::test]
    async fn a_refusing_network_tears_connections_down() {
        let proxy = Proxy::before(&echo().await).await.unwrap();
        let mut old = through(&proxy).await;
        old.write_all(b"one").await.unwrap();
        old.read_exact(&mut [0; 3]).await.unwrap();
        proxy.set(Network::Refusing);
        let ends = |read: io::Result<usize>| matches!(read, Ok(0) | Err(_));
        assert!(ends(old.read(&mut [0; 3]).await));
        assert!(ends(through(&proxy).await.read(&mut [0; 3]).await));
        proxy.set(Network::Whole);
        let mut new = through(&proxy).await;
        new.write_all(b"two").await.unwrap();
        new.read_exact(&mut [0; 3]).await.unwrap();
    }
}
