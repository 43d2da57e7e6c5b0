//! Subjects of the requests of a client.

use schemas::bus::{BusSubject, Inbox};
use schemas::names::{ClientName, Domain};
use schemas::spec::ClientCommand;
use schemas::verb::OperatorVerb;
pub use schemas::verb::QueryVerb as Query;

/// Returns the subject of a command of a client.
#[must_use]
pub fn command(domain: &Domain, name: &ClientName, command: &ClientCommand) -> String {
    BusSubject::Client(domain.clone(), name.clone(), command.verb()).to_string()
}

/// Returns the subject of a client's request to seal secrets.
#[must_use]
pub fn seal(domain: &Domain, name: &ClientName) -> String {
    BusSubject::Seal(domain.clone(), name.clone()).to_string()
}

/// Returns the subject of a client's requests to a program that it runs in a container.
#[must_use]
pub fn talk(domain: &Domain, name: &ClientName) -> String {
    BusSubject::ExecIo(domain.clone(), name.clone()).to_string()
}

/// Returns the subject of an operator's command.
#[must_use]
pub fn operator(name: &ClientName, verb: OperatorVerb) -> String {
    BusSubject::Operator(name.clone(), verb).to_string()
}

/// Returns the prefix of the reply subjects of a client. One permission covers all of them.
#[must_use]
pub fn inbox(domain: &Domain, name: &ClientName) -> String {
    Inbox::Client(domain.clone(), name.clone()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_contain_domain_client_and_verb() {
        let (domain, name) = (Domain::new("shop").unwrap(), ClientName::new("ci").unwrap());
        let refresh = ClientCommand::DomainUpsert { domain: domain.clone(), ttl_ms: None };
        assert_eq!(command(&domain, &name, &refresh), "muster.client.shop.ci.domain.upsert");
        assert_eq!(seal(&domain, &name), "muster.client.shop.ci.secret.seal");
        assert_eq!(talk(&domain, &name), "muster.client.shop.ci.instance.exec-io");
        assert_eq!(operator(&name, OperatorVerb::CellEvacuate), "muster.operator.ci.cell.evacuate");
        assert_eq!(inbox(&domain, &name), "muster.inbox.client.shop.ci");
    }
}
