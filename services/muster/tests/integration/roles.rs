//! Each role as a user of its own, on a server with exactly what `muster auth` wrote: mutual TLS, nkeys, and the permissions of
//! the table in `access`.
//!
//! | the file | holds |
//! |---|---|
//! | this one | one cluster, on which all of it is tried |
//! | `roles/table.rs` | what each role may and must not do, as the server says it |
//! | `roles/work.rs` | what the roles are there for, done |
//! | `roles/holes.rs` | what no permission prevents: forged reply subjects, consumers of somebody else, ids that are none |
//! | `roles/sight.rs` | whose environment each may read |
//! | `roles/changes.rs` | users that come and go while everybody else stays connected |
//! | `roles/renewal.rs` | certificates that are renewed and keys that are rotated while services run |

mod changes;
mod holes;
mod renewal;
mod sight;
mod table;
mod work;

use crate::support::place::so;
use crate::support::users::Users;
use crate::support::{Place, Service, eventually};

/// Services that run as the users of a server.
struct Stage {
    users: Users,
    services: Vec<Service>,
    /// Where the projector writes.
    tables: String,
    place: Place,
}

impl Stage {
    /// Starts one service of each role, and waits until the cluster has its cell.
    fn start(users: Users, place: Place) -> Self {
        let data = place.path().join("c1").display().to_string();
        let tables = format!("sqlite:{}", place.path().join("tables.db").display());
        let monitoring = users.server.monitoring();
        let rep = ["rep", "--zone", "z1", "--memory-mb", "512", "--disk-mb", "512", "--data", &data];
        users.muster("bbs-writer").ok("cluster found");
        let services = vec![
            users.start(&place, "auctioneer", &["auctioneer"]),
            users.start(&place, "projector", &["projector", "--database", &tables]),
            users.start(&place, "bbs", &["bbs", "--monitoring", &monitoring]),
            users.start(&place, "rep-c1", &rep),
        ];
        let stage = Self { users, services, tables, place };
        eventually("the cluster is ready", || {
            let row = stage.users.muster("operator-o").try_json("cluster show")?;
            let ready = !row["auctioneer"].is_null() && row["cells"]["PRESENT"] == 1;
            so(ready && row["durability"] == "synced", || row.to_string())
        });
        stage
    }

    /// What a service said so far.
    fn said(&self, user: &str) -> String {
        std::fs::read_to_string(self.place.path().join(format!("{user}.log"))).unwrap()
    }

    /// No service was refused anything: the table gives each what it needs.
    fn nobody_was_refused(&self) {
        for service in &self.services {
            let said = service.said();
            assert!(!said.to_lowercase().contains("permissions violation"), "{said}");
        }
    }
}

#[test]
fn each_role_does_what_it_must_and_nothing_that_is_others() {
    let place = Place::new();
    let users = Users::init(&place);
    table::everybody_is_added(&users);
    place.tell("every role is added");
    table::strangers_are_not_let_in(&users);
    table::the_server_holds_to_the_table(&users);
    place.tell("the table is tried");
    let mut stage = Stage::start(users, place);
    stage.place.tell("the cluster is ready");
    work::a_client_is_served(&stage);
    work::readers_read_and_change_nothing(&stage);
    sight::environment_is_its_domains(&stage);
    stage.place.tell("clients and readers are served");
    holes::no_answer_goes_into_the_log(&stage);
    holes::nobody_asks_in_the_name_of_another(&stage);
    holes::nobody_believes_what_a_consumer_delivers(&stage);
    holes::ids_that_are_none_are_refused(&stage);
    stage.place.tell("the holes are tried");
    changes::who_is_revoked_is_gone_and_nobody_else(&mut stage);
    stage.place.tell("users came and went");
    renewal::services_follow_renewed_certificates_and_keys(&mut stage);
    stage.place.tell("certificates and keys are renewed");
    work::an_operator_empties_a_cell(&stage);
    stage.nobody_was_refused();
}
