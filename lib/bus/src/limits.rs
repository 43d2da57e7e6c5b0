//! Limits of the bus. The limits of specs and messages are in [`schemas::limits`].

use std::time::Duration;

/// Timeout of a request to a NATS server.
pub const API_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of queued messages of a subscription. Further messages are dropped.
pub const SUBSCRIPTION_QUEUE: usize = 65_536;
/// Maximum length of a subject or pattern, in bytes.
pub const SUBJECT_BYTES: usize = 512;
/// Maximum number of queued commands inside a NATS connection.
pub const CLIENT_QUEUE: usize = 4_096;
/// Minimum and maximum delay between reconnects to a NATS server. The first reconnect has no delay.
pub const RECONNECT_DELAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Maximum number of subjects whose permission violations a NATS connection remembers.
pub const REMEMBERED_VIOLATIONS: usize = 64;
/// Maximum number of connections to one Unix socket. Further connections are closed immediately.
pub const SOCKET_CONNECTIONS: usize = 64;
/// Maximum number of subscriptions per Unix socket connection.
pub const SOCKET_SUBSCRIPTIONS: usize = 256;
/// Maximum number of pending requests per Unix socket connection.
pub const SOCKET_REQUESTS: usize = 1_024;
/// Maximum number of queued frames to be written to a Unix socket.
pub const SOCKET_QUEUE: usize = 1_024;
/// Maximum length of a frame on a Unix socket, in bytes: a message and its subjects.
pub const FRAME_BYTES: usize = schemas::limits::MESSAGE_BYTES + 4 * SUBJECT_BYTES;
/// Timeout for the greeting of a new Unix socket connection.
pub const SOCKET_HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Delay before the single retry of a connection that a server refused.
pub const REFUSED_RETRY_DELAY: Duration = Duration::from_millis(250);
