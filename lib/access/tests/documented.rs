//! Comparison of the table of roles in the documentation with the code.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::path::Path;

use access::{Rights, Role};

/// Every role, with the names that the documentation uses.
const ROLES: [&str; 11] = [
    "bbs-writer",
    "bbs",
    "auctioneer",
    "rep c1",
    "client d n",
    "operator n",
    "auditor n",
    "gateway n",
    "projector",
    "admin n",
    "system",
];

fn table_row(role: &str) -> String {
    let list =
        |patterns: &[String]| patterns.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ");
    match role.parse::<Role>().unwrap().rights() {
        Some(Rights { publishes, subscribes, answers }) => {
            let answers = if answers { "yes" } else { "no" };
            format!("| `{role}` | {} | {} | {answers} |", list(&publishes), list(&subscribes))
        }
        None => {
            format!("| `{role}` | everything of the account `SYS` | everything of the account `SYS` | no |")
        }
    }
}

#[test]
fn documented_table_of_roles_matches_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/permissions.md");
    let text = fs::read_to_string(path).unwrap();
    let head = "| role | publishes | subscribes | `allow_responses` |\n|---|---|---|---|\n";
    let table = format!("{head}{}\n", ROLES.map(table_row).join("\n"));
    assert!(
        text.contains(&table),
        "the table of roles in docs/reference/permissions.md differs from\n{table}"
    );
}
