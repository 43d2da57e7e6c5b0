//! Each role as a user of its own, on a server configured by `muster auth` alone: mutual TLS, nkeys, and the
//! permissions of the table in `access`.
//!
//! | file | content |
//! |---|---|
//! | this file | cluster on which all parts run |
//! | `roles/table.rs` | permissions of each role, as the server enforces them |
//! | `roles/work.rs` | regular work of each role |
//! | `roles/attacks.rs` | attacks that no permission prevents: forged reply subjects, consumers of an insider, invalid ids |
//! | `roles/read_scope.rs` | read scope of environments |
//! | `roles/changes.rs` | added and revoked users, while other users stay connected |
//! | `roles/renewal.rs` | renewed certificates and rotated keys, while services run |

mod attacks;
mod changes;
mod read_scope;
mod renewal;
mod table;
mod work;

use crate::support::test_dir::ensure;
use crate::support::users::Users;
use crate::support::{Service, TestDir, eventually};

/// Services that run as users of a server.
struct Stage {
    users: Users,
    services: Vec<Service>,
    /// Database URL of the projector.
    tables: String,
    place: TestDir,
}

impl Stage {
    /// Starts one service of each role, and waits until the cluster is ready.
    fn start(users: Users, place: TestDir) -> Self {
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
            ensure(ready && row["durability"] == "synced", || row.to_string())
        });
        stage
    }

    /// Returns the log of a service so far.
    fn log(&self, user: &str) -> String {
        std::fs::read_to_string(self.place.path().join(format!("{user}.log"))).unwrap()
    }

    /// Checks that no service was refused anything, so the table grants each role all necessary permissions.
    fn assert_no_service_refused(&self) {
        for service in &self.services {
            let said = service.log();
            assert!(!said.to_lowercase().contains("permissions violation"), "{said}");
        }
    }
}

#[test]
fn each_role_can_do_its_work_and_nothing_else() {
    let place = TestDir::new();
    let users = Users::init(&place);
    table::add_all_roles(&users);
    place.print_event("every role has a user");
    table::assert_strangers_are_rejected(&users);
    table::assert_server_enforces_table(&users);
    place.print_event("the permissions of every role are tested");
    let mut stage = Stage::start(users, place);
    stage.place.print_event("the cluster is ready");
    work::assert_client_is_served(&stage);
    work::assert_readers_are_read_only(&stage);
    read_scope::assert_read_scope(&stage);
    stage.place.print_event("clients and readers are served");
    attacks::assert_forged_replies_are_not_logged(&stage);
    attacks::assert_no_impersonation(&stage);
    attacks::assert_consumer_messages_are_ignored(&stage);
    attacks::assert_invalid_ids_are_refused(&stage);
    stage.place.print_event("the attacks are tested");
    changes::assert_only_revoked_user_is_disconnected(&mut stage);
    stage.place.print_event("users were added and revoked");
    renewal::assert_services_follow_renewed_files(&mut stage);
    stage.place.print_event("certificates and keys are renewed");
    work::evacuate_cell(&stage);
    stage.assert_no_service_refused();
}
