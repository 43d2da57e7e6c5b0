//! The subjects on which a client asks.

pub use schemas::bus::QueryVerb as Query;
use schemas::bus::{BusSubject, Inbox, OperatorVerb};
use schemas::names::{ClientName, Domain};
use schemas::spec::ClientCommand;

/// The subject on which a client of a domain asks for a command.
#[must_use]
pub fn command(domain: &Domain, name: &ClientName, command: &ClientCommand) -> String {
    BusSubject::Client(domain.clone(), name.clone(), command.verb()).to_string()
}

/// The subject on which a client of a domain asks to have secrets sealed.
#[must_use]
pub fn seal(domain: &Domain, name: &ClientName) -> String {
    BusSubject::Seal(domain.clone(), name.clone()).to_string()
}

/// The subject on which a client of a domain talks to a program that it has run.
#[must_use]
pub fn talk(domain: &Domain, name: &ClientName) -> String {
    BusSubject::Talk(domain.clone(), name.clone()).to_string()
}

/// Returns the subject of an operator's command.
#[must_use]
pub fn operator(name: &ClientName, verb: OperatorVerb) -> String {
    BusSubject::Operator(name.clone(), verb).to_string()
}

/// What stands before the subjects of answers to a client, so that its permission is one line.
#[must_use]
pub fn inbox(domain: &Domain, name: &ClientName) -> String {
    Inbox::Client(domain.clone(), name.clone()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_says_who_asks_for_what() {
        let (domain, name) = (Domain::new("shop").unwrap(), ClientName::new("ci").unwrap());
        let refresh = ClientCommand::DomainUpsert { domain: domain.clone(), ttl_ms: None };
        assert_eq!(command(&domain, &name, &refresh), "muster.client.shop.ci.domain.upsert");
        assert_eq!(seal(&domain, &name), "muster.client.shop.ci.secret.seal");
        assert_eq!(talk(&domain, &name), "muster.client.shop.ci.instance.talk");
        assert_eq!(operator(&name, OperatorVerb::CellEvacuate), "muster.operator.ci.cell.evacuate");
        assert_eq!(inbox(&domain, &name), "muster.inbox.client.shop.ci");
    }
}
