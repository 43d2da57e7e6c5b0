//! Every limit of the bus, with its unit. The limits of the language are in [`schemas::limits`].

use std::time::Duration;

/// How long a question to a NATS server may take.
pub const API: Duration = Duration::from_secs(5);
/// Messages that may wait in one subscription. More are dropped and counted.
pub const SUBSCRIPTION_QUEUE: usize = 65_536;
/// Longest subject or pattern, in bytes.
pub const SUBJECT_BYTES: usize = 512;
/// Commands that may wait inside a NATS connection.
pub const CLIENT_QUEUE: usize = 4_096;
/// Shortest and longest wait before a NATS connection is made again.
pub const RECONNECT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Subjects whose permission violations a NATS connection remembers.
pub const REMEMBERED_VIOLATIONS: usize = 64;
/// Connections to one Unix socket at once. One more is closed at once.
pub const SOCKET_CONNECTIONS: usize = 64;
/// Subscriptions of one connection over a Unix socket.
pub const SOCKET_SUBSCRIPTIONS: usize = 256;
/// Questions of one connection over a Unix socket that may wait for an answer at once.
pub const SOCKET_ASKS: usize = 1_024;
/// Frames that may wait to be written to a Unix socket.
pub const SOCKET_QUEUE: usize = 1_024;
/// Largest frame on a Unix socket, in bytes: a message and its subjects.
pub const FRAME_BYTES: usize = schemas::limits::MESSAGE_BYTES + 4 * SUBJECT_BYTES;
/// How long a new connection to a Unix socket may take to say who it is.
pub const SOCKET_HELLO: Duration = Duration::from_secs(5);

/// How long after a server refused a connection it is asked once more.
pub const REFUSED_AGAIN: Duration = Duration::from_millis(250);
