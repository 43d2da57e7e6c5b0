//! `muster schema`: the JSON Schemas of this program's messages. No cluster is needed.

use clap::Subcommand;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{self, Output};
use cli_base::table::{Cell, Table};
use schemas::published::{PublishedSchemas, SchemaRow};

/// Subcommands of `muster schema`.
#[derive(Clone, Debug, Subcommand)]
pub enum SchemaVerb {
    /// List the schemas
    #[command(alias = "ls")]
    List,
    /// Print a schema
    Show {
        /// Event type such as actual.claimed.v1, command such as lrp.desire, query such as lrp.list, row such as `LrpRow`, or entry
        name: String,
    },
}

pub(crate) fn run(verb: SchemaVerb, global: &Global) -> Result<(), Failure> {
    let schemas = PublishedSchemas::new();
    match verb {
        SchemaVerb::List => Output::new(global).write_rows(&schemas.list(), |rows, _| table(rows)),
        // A schema is printed as JSON in every output format.
        SchemaVerb::Show { name } => output::write_line(&format!("{:#}", schemas.show(&name)?)),
    }
}

fn table(rows: &[SchemaRow]) -> Table {
    let headers = ["NAME", "DESCRIBES", "MEANING"];
    Table::with_rows(headers, rows, |SchemaRow { name, kind: describes, description: meaning }| {
        [Cell::text(name), Cell::text(describes.as_str()), Cell::text(meaning)]
    })
}
