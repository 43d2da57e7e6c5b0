//! The client: who asks, on what terms.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bus::Bus;
use schemas::Position;
use schemas::bus::{Inbox, QueryVerb};
use schemas::caller::Caller;
use schemas::message::Envelope;
use schemas::names::{ClientName, Domain, RequestId};
use schemas::query::AsOf;

use crate::ask::Line;
use crate::error::Error;
use crate::limits::PATIENCE;
use crate::target::Target;

/// A client of a domain. Clones share the connection, and what they have seen of the log.
///
/// A command is asked again, with the same request id, until it is answered or the patience ends. A query asks for at
/// least the highest position that any answer gave, so what was written is read.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) line: Arc<Line>,
    pub(crate) domain: Domain,
    pub(crate) name: ClientName,
    pub(crate) patience: Duration,
    /// The caller in the subjects of its queries.
    caller: Caller,
    /// As of which moment it asks; none: of now.
    past: Option<Arc<Mutex<AsOf>>>,
    terms: Terms,
}

/// What a client says with its commands.
#[derive(Clone, Debug, Default)]
struct Terms {
    request_id: Option<RequestId>,
    expect_version: Option<u64>,
    if_position: Option<Position>,
    reason: Option<String>,
    traceparent: Option<String>,
}

/// A client that is being connected: await it.
#[derive(Clone, Debug)]
pub struct Connect {
    target: Target,
    domain: Domain,
    name: ClientName,
    inbox: Option<Inbox>,
}

/// The domain of a client that wasn't given another: `default`.
#[must_use]
pub fn default_domain() -> Domain {
    Domain::new("default").expect("it is a name")
}

fn default_name() -> ClientName {
    ClientName::new("client").expect("it is a name")
}

impl Connect {
    /// The domain whose processes and tasks it is about; else `default`.
    #[must_use]
    pub fn domain(self, domain: Domain) -> Self {
        Self { domain, ..self }
    }

    /// Who asks, as the log shall know it; else `client`.
    #[must_use]
    pub fn name(self, name: ClientName) -> Self {
        Self { name, ..self }
    }

    /// Where answers come to, for who is no client of that domain and name: an operator, an auditor. A server with
    /// permissions lets each hear its own inbox alone.
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
            let caller = Caller::with_inbox(&inbox);
            let line = Line::new(bus, Some((target, inbox)))?;
            Ok(Client::new(line, domain, name).asking_as(caller))
        })
    }
}

impl Client {
    /// Connects: `Client::connect(target).domain(domain).name(name).await`.
    #[must_use]
    pub fn connect(target: Target) -> Connect {
        Connect { target, domain: default_domain(), name: default_name(), inbox: None }
    }

    /// A client over a bus that is there already. The answers go to that bus's inbox.
    ///
    /// # Errors
    /// The operating system gives no randomness for request ids.
    pub fn over(bus: Bus, domain: Domain, name: ClientName) -> Result<Self, Error> {
        Ok(Self::new(Line::new(bus, None)?, domain, name))
    }

    fn new(line: Arc<Line>, domain: Domain, name: ClientName) -> Self {
        let caller = Caller::Client(domain.clone(), name.clone());
        Self { line, domain, name, patience: PATIENCE, caller, past: None, terms: Terms::default() }
    }

    /// Returns the same client with another caller in the subjects of its queries. Default: a client of its domain
    /// and name. `None` changes nothing.
    #[must_use]
    pub fn asking_as(self, caller: Option<Caller>) -> Self {
        Self { caller: caller.unwrap_or(self.caller), ..self }
    }

    /// Returns the subject of a query.
    pub(crate) fn query(&self, verb: QueryVerb) -> String {
        self.caller.query(verb)
    }

    /// The same client for another domain.
    #[must_use]
    pub fn in_domain(&self, domain: Domain) -> Self {
        Self { domain, ..self.clone() }
    }

    /// The same client, which keeps asking for this long before it gives up; else 10 s.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same client, which gives this reason with its commands: it is kept in the log.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.terms.reason = Some(reason.into());
        self
    }

    /// The same client for one command with this request id: the same command asked twice with it happens once.
    /// Without it every command gets a new one.
    #[must_use]
    pub fn request(mut self, id: RequestId) -> Self {
        self.terms.request_id = Some(id);
        self
    }

    /// The same client for one command that is refused unless its object has this version.
    #[must_use]
    pub fn expecting(mut self, version: u64) -> Self {
        self.terms.expect_version = Some(version);
        self
    }

    /// The same client, whose commands are refused if anything was decided about their object after this position.
    #[must_use]
    pub fn if_position(mut self, position: Position) -> Self {
        self.terms.if_position = Some(position);
        self
    }

    /// The same client, whose queries are about the past: all of them about the same position, the one at which the first
    /// answer stands.
    #[must_use]
    pub fn at_moment(self, as_of: AsOf) -> Self {
        Self { past: Some(Arc::new(Mutex::new(as_of))), ..self }
    }

    /// As of which moment its next query is; none: of now.
    #[must_use]
    pub fn asks_as_of(&self) -> Option<AsOf> {
        self.past.as_ref().map(|past| *past.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes note of the position of an answer.
    pub(crate) fn note(&self, position: Position) {
        match &self.past {
            Some(past) => *past.lock().unwrap_or_else(PoisonError::into_inner) = AsOf::Position(position),
            None => self.line.note(position),
        }
    }

    /// The position that answers must have seen: of the past none.
    pub(crate) fn at_least(&self) -> Option<Position> {
        if self.past.is_some() { None } else { self.line.seen() }
    }

    /// The same client, whose commands belong to this W3C trace.
    #[must_use]
    pub fn traced(mut self, traceparent: impl Into<String>) -> Self {
        self.terms.traceparent = Some(traceparent.into());
        self
    }

    /// Its domain.
    #[must_use]
    pub const fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The highest position that any answer gave, which every query asks for at least; none before the first answer.
    #[must_use]
    pub fn seen(&self) -> Option<Position> {
        self.line.seen()
    }

    /// Envelope of a new command. Each try adds the patience that is left.
    pub(crate) fn envelope(&self) -> Envelope {
        let Terms { request_id, expect_version, if_position, reason, traceparent } = self.terms.clone();
        Envelope {
            request_id: Some(request_id.unwrap_or_else(|| self.line.request_id())),
            patience_ms: None,
            expect_version,
            if_position,
            reason,
            traceparent,
        }
    }
}
