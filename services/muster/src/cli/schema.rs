//! `muster schema`: the JSON Schemas of events and commands that the cluster publishes.

use schemas::published::{SchemaKind, SchemaRow};

use super::args::{Global, SchemaVerb};
use super::connect::connect;
use super::failure::Failure;
use super::output::{self, Output};
use super::table::{Cell, Table};

pub(crate) async fn run(verb: SchemaVerb, global: &Global) -> Result<(), Failure> {
    let client = connect(global).await?;
    match verb {
        SchemaVerb::List => Output::new(global).write_rows(&client.schemas().await?, |rows, _| table(rows)),
        // A schema is printed as JSON in every output format.
        SchemaVerb::Show { name } => output::write_line(&format!("{:#}", client.schema(&name).await?)),
    }
}

fn table(rows: &[SchemaRow]) -> Table {
    let mut table = Table::new(&["NAME", "DESCRIBES", "MEANING"]);
    for SchemaRow { name, kind: describes, description: meaning } in rows {
        let describes = match describes {
            SchemaKind::Entry => "entry",
            SchemaKind::Event => "event",
            SchemaKind::Command => "command",
        };
        table.row(vec![Cell::text(name), Cell::text(describes), Cell::text(meaning)]);
    }
    table
}
