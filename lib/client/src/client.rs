//! The client, and the options of its requests.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use parking_lot::Mutex;
use schemas::Position;
use schemas::bus::Inbox;
use schemas::caller::Caller;
use schemas::message::Envelope;
use schemas::names::{ClientName, Domain, RequestId};
use schemas::query::AsOf;
use schemas::verb::QueryVerb;

use crate::error::Error;
use crate::limits::DEFAULT_PATIENCE;
use crate::session::Session;
use crate::target::Target;

/// A client of a domain. Clones share the connection and the highest position in any answer.
///
/// A command is repeated with the same request id until it is answered or the total timeout (`patience`) has
/// passed. Each answer contains a position of the log. A query requires an answer at or after the highest
/// position of all earlier answers. A client therefore reads its own writes.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) line: Arc<Session>,
    pub(crate) domain: Domain,
    pub(crate) name: ClientName,
    pub(crate) patience: Duration,
    /// Caller that the subjects of queries name.
    caller: Caller,
    /// Moment that queries read. `None` reads the current state.
    as_of: Option<Arc<Mutex<AsOf>>>,
    options: CommandOptions,
}

/// Options of commands, sent in their envelope.
#[derive(Clone, Debug, Default)]
struct CommandOptions {
    request_id: Option<RequestId>,
    expect_version: Option<u64>,
    if_position: Option<Position>,
    reason: Option<String>,
    traceparent: Option<String>,
}

/// Builder of a client. Await it to connect.
#[derive(Clone, Debug)]
pub struct Connect {
    target: Target,
    domain: Domain,
    name: ClientName,
    inbox: Option<Inbox>,
}

/// Returns the default domain of a client: `default`.
#[must_use]
pub fn default_domain() -> Domain {
    Domain::new("default").expect("valid name")
}

fn default_name() -> ClientName {
    ClientName::new("client").expect("valid name")
}

impl Connect {
    /// Sets the domain of the processes and tasks. Default: `default`.
    #[must_use]
    pub fn domain(self, domain: Domain) -> Self {
        Self { domain, ..self }
    }

    /// Sets the name of the client, which is recorded in the log. Default: `client`.
    #[must_use]
    pub fn name(self, name: ClientName) -> Self {
        Self { name, ..self }
    }

    /// Sets the inbox for answers. Default: the inbox of a client with this domain and name. Operators and
    /// auditors have inboxes of their own. A server with permissions lets each user subscribe only to its own
    /// inbox.
    #[must_use]
    pub fn inbox(self, inbox: Inbox) -> Self {
        Self { inbox: Some(inbox), ..self }
    }
}

impl IntoFuture for Connect {
    type Output = Result<Client, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { target, domain, name, inbox } = self;
            let inbox = inbox.unwrap_or_else(|| Inbox::Client(domain.clone(), name.clone()));
            let bus = target.connect(&inbox).await?;
            let caller = Caller::from_inbox(&inbox);
            let line = Session::new(bus, Some((target, inbox)))?;
            Ok(Client::new(line, domain, name).with_caller(caller))
        })
    }
}

impl Client {
    /// Returns a builder: `Client::connect(target).domain(domain).name(name).await`.
    #[must_use]
    pub fn connect(target: Target) -> Connect {
        Connect { target, domain: default_domain(), name: default_name(), inbox: None }
    }

    /// Creates a client over an existing bus. Answers go to the inbox of that bus.
    ///
    /// # Errors
    /// Returns an error if the operating system does not provide randomness for request ids.
    pub fn with_bus(bus: Bus, domain: Domain, name: ClientName) -> Result<Self, Error> {
        Ok(Self::new(Session::new(bus, None)?, domain, name))
    }

    fn new(line: Arc<Session>, domain: Domain, name: ClientName) -> Self {
        let caller = Caller::Client(domain.clone(), name.clone());
        Self {
            line,
            domain,
            name,
            patience: DEFAULT_PATIENCE,
            caller,
            as_of: None,
            options: CommandOptions::default(),
        }
    }

    /// Returns the same client with another caller: the subjects of its queries name this caller. By default
    /// they name the client's domain and name. `None` keeps the caller.
    #[must_use]
    pub fn with_caller(self, caller: Option<Caller>) -> Self {
        Self { caller: caller.unwrap_or(self.caller), ..self }
    }

    /// Returns the subject of a query.
    pub(crate) fn query_subject(&self, verb: QueryVerb) -> String {
        self.caller.query(verb)
    }

    /// Returns the same client for another domain.
    #[must_use]
    pub fn in_domain(&self, domain: Domain) -> Self {
        Self { domain, ..self.clone() }
    }

    /// Returns the same client with this total timeout for each request. Default: 10 s.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Returns the same client with a reason for its commands, which is recorded in the log.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.options.reason = Some(reason.into());
        self
    }

    /// Returns the same client with a request id for one command. A command that is sent twice with the same
    /// id is carried out once. By default, every command gets a new id.
    #[must_use]
    pub fn with_request_id(mut self, id: RequestId) -> Self {
        self.options.request_id = Some(id);
        self
    }

    /// Returns the same client for one command. The command is refused unless its target (such as a process
    /// or a task) has this version.
    #[must_use]
    pub fn expecting_version(mut self, version: u64) -> Self {
        self.options.expect_version = Some(version);
        self
    }

    /// Returns the same client. Its commands are refused if the log contains a decision (one recorded change)
    /// about their target after this position.
    #[must_use]
    pub fn if_position(mut self, position: Position) -> Self {
        self.options.if_position = Some(position);
        self
    }

    /// Returns the same client. Its queries read the past, all at the same position. The first answer
    /// determines this position.
    #[must_use]
    pub fn at_moment(self, as_of: AsOf) -> Self {
        Self { as_of: Some(Arc::new(Mutex::new(as_of))), ..self }
    }

    /// Returns the moment that the next query reads. `None` for the current state.
    #[must_use]
    pub fn query_moment(&self) -> Option<AsOf> {
        self.as_of.as_ref().map(|past| *past.lock())
    }

    /// Records the position of an answer.
    pub(crate) fn record_position(&self, position: Position) {
        match &self.as_of {
            Some(past) => *past.lock() = AsOf::Position(position),
            None => self.line.record_position(position),
        }
    }

    /// Returns the lowest position that queries accept for their answers. `None` for queries of the past, and
    /// before the first answer.
    pub(crate) fn at_least(&self) -> Option<Position> {
        if self.as_of.is_some() { None } else { self.line.seen_position() }
    }

    /// Returns the same client. Its commands belong to this W3C trace.
    #[must_use]
    pub fn with_traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.options.traceparent = Some(traceparent.into());
        self
    }

    /// Returns the domain of the client.
    #[must_use]
    pub const fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Returns the highest position in any answer. Every query requires an answer at or after this position.
    /// `None` before the first answer.
    #[must_use]
    pub fn seen_position(&self) -> Option<Position> {
        self.line.seen_position()
    }

    /// Returns the envelope of a new command. Each attempt adds the remaining patience.
    pub(crate) fn envelope(&self) -> Envelope {
        let CommandOptions { request_id, expect_version, if_position, reason, traceparent } =
            self.options.clone();
        Envelope {
            request_id: Some(request_id.unwrap_or_else(|| self.line.request_id())),
            timeout_ms: None,
            expect_version,
            if_position,
            reason,
            traceparent,
        }
    }
}
