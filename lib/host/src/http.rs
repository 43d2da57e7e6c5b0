//! HTTP clients for addresses that the operator configured: trace collectors and metrics endpoints of
//! services.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Error};

/// Returns a builder of clients whose calls take at most `timeout`.
pub fn builder(timeout: Duration) -> ClientBuilder {
    outbound::builder().timeout(timeout)
}

/// Creates a client whose calls take at most `timeout`. It follows no redirects, so data is sent to the
/// configured address only.
///
/// # Errors
/// The certificates of the system cannot be used.
pub fn client(timeout: Duration) -> Result<Client, Error> {
    builder(timeout).redirect(Policy::none()).build()
}
