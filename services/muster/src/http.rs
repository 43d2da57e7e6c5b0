//! HTTP to where the operator said: who collects traces, where services serve their metrics.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Error};

/// What makes a client whose calls may take `timeout` in all.
pub(crate) fn builder(timeout: Duration) -> ClientBuilder {
    outbound::builder().timeout(timeout)
}

/// A client whose calls may take `timeout` in all. It follows no redirects: what is sent goes where somebody said, or nowhere.
///
/// # Errors
/// The certificates of the system can't be used.
pub(crate) fn client(timeout: Duration) -> Result<Client, Error> {
    builder(timeout).redirect(Policy::none()).build()
}
