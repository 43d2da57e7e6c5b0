//! `muster schema`: the JSON Schemas of events and commands that the cluster publishes.

use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{self, Output};
use cli_base::table::{Cell, Table};
use schemas::published::{SchemaKind, SchemaRow};

use super::args::SchemaVerb;

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
