//! Limits of in-flight requests per client. A request is in flight until the BBS has answered it. A request
//! above the limit is refused at once and does not delay other clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use schemas::bus::BusSubject;
use schemas::caller::Caller;
use schemas::limits::{
    COMMANDS_IN_FLIGHT, COMMANDS_WAITING, LONG_POLLS, LONG_POLLS_WAITING, QUERIES_IN_FLIGHT, QUERIES_WAITING,
    SERVICE_MESSAGES_IN_FLIGHT, SERVICE_MESSAGES_WAITING, SERVICE_QUERIES_IN_FLIGHT, SERVICE_QUERIES_WAITING,
};
use schemas::{Code, Refusal};

/// Separate budgets for each kind of request.
#[derive(Debug)]
pub(super) struct Budgets {
    commands: Arc<Budget>,
    queries: Arc<Budget>,
    polls: Arc<Budget>,
    /// Budget for reports of reps and outcomes of auctioneers. Queries do not count against this budget.
    reports: Arc<Budget>,
    /// Budget for queries of reps and other services. Clients cannot exhaust this budget.
    service_queries: Arc<Budget>,
}

impl Budgets {
    pub(super) fn new() -> Self {
        let budget = |each, all, what| Arc::new(Budget::new(each, all, what));
        Self {
            commands: budget(COMMANDS_IN_FLIGHT, COMMANDS_WAITING, "commands"),
            queries: budget(QUERIES_IN_FLIGHT, QUERIES_WAITING, "queries"),
            polls: budget(LONG_POLLS, LONG_POLLS_WAITING, "reads of events and logs"),
            reports: budget(SERVICE_MESSAGES_IN_FLIGHT, SERVICE_MESSAGES_WAITING, "messages"),
            service_queries: budget(SERVICE_QUERIES_IN_FLIGHT, SERVICE_QUERIES_WAITING, "queries"),
        }
    }

    /// Admits a command, or a message to a running program. The subject of the request proves the client's
    /// name.
    pub(super) fn admit_command(&self, subject: &BusSubject) -> Result<Ticket, Refusal> {
        let (budget, name) = match subject {
            BusSubject::Client(domain, client, _) | BusSubject::Seal(domain, client) => {
                (&self.commands, format!("client.{domain}.{client}"))
            }
            BusSubject::ExecIo(domain, client) => (&self.polls, format!("client.{domain}.{client}")),
            BusSubject::Operator(operator, _) => (&self.commands, format!("operator.{operator}")),
            BusSubject::Report(cell) | BusSubject::Attach(cell) | BusSubject::Leave(cell) => {
                (&self.reports, format!("rep.{cell}"))
            }
            other @ (BusSubject::Auctioneer(_)
            | BusSubject::Heartbeat(_)
            | BusSubject::Rep(..)
            | BusSubject::LeaderHeartbeat(_)
            | BusSubject::Elected(_)
            | BusSubject::Alive(_)
            | BusSubject::FoundingQuery
            | BusSubject::FoundingReply
            | BusSubject::Query(..)
            | BusSubject::ForwardedQuery(..)) => (&self.reports, other.to_string()),
        };
        budget.admit(name)
    }

    /// Admits a query of rows or records. The subject of the request proves the caller's name.
    pub(super) fn admit_query(&self, caller: &Caller) -> Result<Ticket, Refusal> {
        let budget = if caller.is_service() { &self.service_queries } else { &self.queries };
        budget.admit(caller.to_string())
    }

    /// Admits a read of events or logs. Such a read may wait for a long time.
    pub(super) fn admit_poll(&self, caller: &Caller) -> Result<Ticket, Refusal> {
        self.polls.admit(caller.to_string())
    }
}

/// Limits of in-flight requests of one kind: per client, and for all clients.
#[derive(Debug)]
struct Budget {
    each: usize,
    all: usize,
    what: &'static str,
    used: Mutex<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    by_name: BTreeMap<String, usize>,
    all: usize,
}

/// Slot of an admitted request in a budget. Released when dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    budget: Arc<Budget>,
    name: String,
}

impl Ticket {
    /// Returns the name of the client.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Budget {
    fn new(each: usize, all: usize, what: &'static str) -> Self {
        Self { each, all, what, used: Mutex::default() }
    }

    fn admit(self: &Arc<Self>, name: String) -> Result<Ticket, Refusal> {
        let mut used = self.used.lock();
        let of_name = used.by_name.get(&name).copied().unwrap_or(0);
        let (whose, limit) = if of_name >= self.each {
            (name.as_str(), self.each)
        } else if used.all >= self.all {
            ("all clients", self.all)
        } else {
            used.by_name.insert(name.clone(), of_name + 1);
            used.all += 1;
            drop(used);
            return Ok(Ticket { budget: Arc::clone(self), name });
        };
        let why = format!(
            "limit of {limit} {} in flight reached for {whose}: try again when one of them is answered",
            self.what
        );
        Err(Refusal::new(Code::Overloaded, why))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut used = self.budget.used.lock();
        used.all -= 1;
        if let Some(count) = used.by_name.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                used.by_name.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::names::{CellId, ClientName, Domain};
    use schemas::verb::{ClientVerb, OperatorVerb};

    use super::*;

    #[test]
    fn client_over_budget_is_refused_without_affecting_others() {
        let budget = Arc::new(Budget::new(2, 3, "queries"));
        let admit = |client: &str| budget.admit(client.to_owned());
        let first = [admit("a").unwrap(), admit("a").unwrap()];
        let refused = admit("a").unwrap_err();
        assert_eq!(refused.code, Code::Overloaded);
        assert!(
            refused.message.starts_with("limit of 2 queries in flight reached for a")
                && refused.message.contains("try again")
        );
        let other = admit("b").unwrap();
        assert_eq!(admit("c").unwrap_err().code, Code::Overloaded, "the limit for all clients applies");
        drop(first);
        assert!(admit("a").is_ok() && admit("c").is_ok());
        drop(other);
        assert!(
            budget.used.lock().by_name.is_empty() && budget.used.lock().all == 0,
            "all tickets were released"
        );
    }

    #[test]
    fn commands_are_counted_per_caller() {
        let (domain, name) = (Domain::new("shop").unwrap(), ClientName::new("me").unwrap());
        let loud = BusSubject::Client(domain.clone(), name.clone(), ClientVerb::LrpDesire);
        let budgets = Budgets::new();
        let all = |subject: &BusSubject, most: usize| {
            let tickets: Vec<Ticket> = (0..most).map(|_| budgets.admit_command(subject).unwrap()).collect();
            assert_eq!(budgets.admit_command(subject).unwrap_err().code, Code::Overloaded, "{subject}");
            tickets
        };
        let held = [
            all(&loud, COMMANDS_IN_FLIGHT),
            all(&BusSubject::Operator(name, OperatorVerb::CellEvacuate), COMMANDS_IN_FLIGHT),
            all(&BusSubject::Report(CellId::new("c1").unwrap()), SERVICE_MESSAGES_IN_FLIGHT),
        ];
        assert!(
            budgets
                .admit_command(&BusSubject::Client(
                    domain,
                    ClientName::new("you").unwrap(),
                    ClientVerb::LrpDesire
                ))
                .is_ok()
        );
        drop(held);
        assert!(budgets.admit_command(&loud).is_ok());
    }

    #[test]
    fn query_budget_does_not_affect_other_callers_and_reports() {
        let rep = |cell: &str| Caller::Rep(CellId::new(cell).unwrap());
        let client = |name: &str| Caller::Client(Domain::new("a").unwrap(), ClientName::new(name).unwrap());
        let budgets = Budgets::new();
        let mut held = vec![];
        for number in 0..QUERIES_WAITING {
            held.push(budgets.admit_query(&client(&format!("n{number}"))).unwrap());
        }
        assert!(budgets.admit_query(&client("another")).is_err());
        for _ in 0..SERVICE_QUERIES_IN_FLIGHT {
            held.push(budgets.admit_query(&rep("c1")).unwrap());
        }
        assert_eq!(budgets.admit_query(&rep("c1")).unwrap_err().code, Code::Overloaded);
        assert!(budgets.admit_query(&rep("c2")).is_ok());
        assert!(budgets.admit_command(&BusSubject::Report(CellId::new("c1").unwrap())).is_ok());
    }
}
