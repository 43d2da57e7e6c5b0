//! SQL statements that create the tables and write to them.
//!
//! Each table consists of a history and a view. The history (`NAME_history`) contains the positions between
//! which each row is valid. The view (`NAME`) uses an index to show the current rows. The name of each stored
//! table contains the number of a generation, so that the tables of another generation can be built beside
//! it. The views have the names that readers use, and show one generation.

use super::{ColumnSpec, Dialect, Kind, Table, events, views};

/// Columns that each history table has after the columns of its rows.
pub const INTERVAL_COLUMNS: [ColumnSpec; 4] = [
    ColumnSpec {
        name: "from_position",
        kind: Kind::Integer,
        comment: "First position at which the row is valid.",
    },
    ColumnSpec { name: "from_time", kind: Kind::Time, comment: "Time of the decision at from_position." },
    ColumnSpec {
        name: "to_position",
        kind: Kind::Integer,
        comment: "Position from which on the row is no longer valid; null if it is current.",
    },
    ColumnSpec { name: "to_time", kind: Kind::Time, comment: "Time of the decision at to_position." },
];

/// Columns of the table of messages that are not valid entries.
pub const QUARANTINED_COLUMNS: [ColumnSpec; 3] = [
    ColumnSpec { name: "position", kind: Kind::Integer, comment: "Position of the message in the journal." },
    ColumnSpec { name: "subject", kind: Kind::Text, comment: "Subject of the message." },
    ColumnSpec { name: "reason", kind: Kind::Text, comment: "Reason why it is not a valid entry." },
];

/// Columns of the table that describes the generations.
pub const PROJECTION_COLUMNS: [ColumnSpec; 9] = [
    ColumnSpec { name: "generation", kind: Kind::Integer, comment: "Number of the generation of tables." },
    ColumnSpec {
        name: "live",
        kind: Kind::Boolean,
        comment: "True if readers see it; false while it is being built.",
    },
    ColumnSpec {
        name: "indexed",
        kind: Kind::Boolean,
        comment: "True if it has the indexes for readers, which are created when it is first up to date.",
    },
    ColumnSpec { name: "shape", kind: Kind::Text, comment: "Fingerprint of the shape of its tables." },
    ColumnSpec { name: "cluster_id", kind: Kind::Text, comment: "Cluster of the tables." },
    ColumnSpec { name: "position", kind: Kind::Integer, comment: "Last position of the log in the tables." },
    ColumnSpec {
        name: "at",
        kind: Kind::Integer,
        comment: "Time of the decision at that position, in nanoseconds since 1970.",
    },
    ColumnSpec {
        name: "checksum",
        kind: Kind::Text,
        comment: "Checksum of the entry at that position, which distinguishes histories of a log.",
    },
    ColumnSpec {
        name: "retry_requests",
        kind: Kind::Integer,
        comment: "Number of requests that the projector retry the entry that it cannot process.",
    },
];

/// Columns of the table that documents tables and columns.
pub const DOCUMENTATION_COLUMNS: [ColumnSpec; 3] = [
    ColumnSpec { name: "table_name", kind: Kind::Text, comment: "Table or view." },
    ColumnSpec {
        name: "column_name",
        kind: Kind::Text,
        comment: "Column; null for the table or view itself.",
    },
    ColumnSpec { name: "comment", kind: Kind::Text, comment: "Description of the table or column." },
];

/// Returns the name of a table's history in a generation.
#[must_use]
pub fn history_table(table: Table, generation: i64) -> String {
    format!("{}_history_g{generation}", table.name())
}

/// Returns the name of the table of events.
#[must_use]
pub fn events_table(generation: i64) -> String {
    format!("events_g{generation}")
}

/// Returns the name of the table of messages that are not valid entries.
#[must_use]
pub fn quarantined_table(generation: i64) -> String {
    format!("quarantined_entries_g{generation}")
}

/// Returns the columns of a history table.
#[must_use]
pub fn history_columns(table: Table) -> Vec<ColumnSpec> {
    table.columns().into_iter().chain(INTERVAL_COLUMNS).collect()
}

/// Quotes a name, because some names, such as `index`, are SQL keywords.
fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

fn names(columns: &[ColumnSpec]) -> String {
    columns.iter().map(|column| quoted(column.name)).collect::<Vec<_>>().join(", ")
}

fn create_table(dialect: Dialect, name: &str, columns: &[ColumnSpec], key: usize) -> String {
    let columns: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(nth, column)| {
            let required = if nth < key { " NOT NULL" } else { "" };
            format!("{} {}{required}", quoted(column.name), dialect.column_type(column.kind))
        })
        .collect();
    format!("CREATE TABLE {name} ({}){}", columns.join(", "), dialect.table_options())
}

/// Returns the statements that create the tables which describe the database.
#[must_use]
pub fn create_metadata(dialect: Dialect) -> Vec<String> {
    let mut made = vec![
        create_table(dialect, "projection", &PROJECTION_COLUMNS, 4),
        "CREATE UNIQUE INDEX projection_by_generation ON projection (generation)".to_owned(),
        create_table(dialect, "documentation", &DOCUMENTATION_COLUMNS, 1),
    ];
    if dialect == Dialect::Postgres {
        made.extend(comments(
            "TABLE",
            "projection",
            "State of each generation of the tables.",
            &PROJECTION_COLUMNS,
        ));
        made.extend(comments(
            "TABLE",
            "documentation",
            "Descriptions of tables and columns.",
            &DOCUMENTATION_COLUMNS,
        ));
    }
    made
}

/// Returns the statements that create the tables of a generation, and the indexes that writes need.
#[must_use]
pub fn create(dialect: Dialect, generation: i64) -> Vec<String> {
    let mut made = vec![];
    for table in Table::ALL {
        let (name, columns) = (history_table(table, generation), history_columns(table));
        let key = names(&columns[..table.key_columns()]);
        made.push(create_table(dialect, &name, &columns, table.key_columns()));
        made.push(format!("CREATE UNIQUE INDEX {name}_open ON {name} ({key}) WHERE to_position IS NULL"));
    }
    made.push(create_table(dialect, &events_table(generation), &events::column_specs(), 2));
    made.push(create_table(dialect, &quarantined_table(generation), &QUARANTINED_COLUMNS, 1));
    made
}

/// Returns the statements that create the indexes for readers. Creating the indexes after the tables are up
/// to date costs a fraction of maintaining them during the build.
#[must_use]
pub fn create_indexes(dialect: Dialect, generation: i64) -> Vec<String> {
    let mut made = vec![];
    for table in Table::ALL {
        let name = history_table(table, generation);
        let key = names(&table.columns()[..table.key_columns()]);
        made.push(format!("CREATE INDEX {name}_by_key ON {name} ({key}, from_position)"));
        made.push(format!("CREATE INDEX {name}_by_end ON {name} (to_position)"));
    }
    let name = events_table(generation);
    made.push(format!("CREATE UNIQUE INDEX {name}_by_position ON {name} (position, nth)"));
    made.push(format!("CREATE INDEX {name}_by_target ON {name} (target, position)"));
    made.push(format!("CREATE INDEX {name}_by_correlation ON {name} (correlation, position)"));
    made.push(format!("CREATE INDEX {name}_by_time ON {name} (at)"));
    if dialect == Dialect::Postgres {
        made.extend(table_names(generation).iter().map(|name| format!("ANALYZE {name}")));
    }
    made
}

/// Returns the names of a generation's tables.
fn table_names(generation: i64) -> Vec<String> {
    let histories = Table::ALL.into_iter().map(|table| history_table(table, generation));
    histories.chain([events_table(generation), quarantined_table(generation)]).collect()
}

/// Returns the statements that show a generation to readers under the public names. The new generation
/// replaces another generation of the same shape.
///
/// The view `events` comes first to avoid a deadlock. A reader that needs a consistent state of several views
/// locks `events`. The statements wait for the reader's lock, and hold no lock on any other view during the
/// wait.
#[must_use]
pub fn create_views(dialect: Dialect, generation: i64) -> Vec<String> {
    let mut shown = vec![];
    let mut view = |name: &str, query: &str| match dialect {
        Dialect::Sqlite => {
            shown.push(format!("DROP VIEW IF EXISTS {name}"));
            shown.push(format!("CREATE VIEW {name} AS {query}"));
        }
        // A replaced view keeps its grants. Views of users that depend on the replaced view remain, too.
        Dialect::Postgres => shown.push(format!("CREATE OR REPLACE VIEW {name} AS {query}")),
    };
    view("events", &format!("SELECT * FROM {}", events_table(generation)));
    for table in Table::ALL {
        let (name, from) = (table.name(), history_table(table, generation));
        view(&format!("{name}_history"), &format!("SELECT * FROM {from}"));
        view(name, &select_current(&from, &names(&table.columns())));
    }
    view("quarantined_entries", &format!("SELECT * FROM {}", quarantined_table(generation)));
    views::all(dialect).iter().for_each(|one| view(one.name, &one.query));
    shown.extend(
        Table::ALL.into_iter().filter_map(|table| dialect.as_of_function(table, &names(&table.columns()))),
    );
    shown
}

/// Returns the statements that drop the views of another program version. `events` comes first for the same
/// reason as in [`create_views`]. If another view depends on one of these views, the statements fail and the
/// views stay.
#[must_use]
pub fn drop_views(dialect: Dialect, views: &[String]) -> Vec<String> {
    match dialect {
        _ if views.is_empty() => vec![],
        Dialect::Sqlite => views.iter().map(|name| format!("DROP VIEW IF EXISTS {name}")).collect(),
        Dialect::Postgres => {
            let (events, others): (Vec<&str>, Vec<&str>) =
                views.iter().map(String::as_str).partition(|name| *name == "events");
            let views = [events, others].concat();
            let functions = views.iter().map(|name| format!("DROP FUNCTION IF EXISTS {name}_at(bigint)"));
            functions.chain([format!("DROP VIEW IF EXISTS {}", views.join(", "))]).collect()
        }
    }
}

/// Returns the query for the existing views that the documentation table names.
#[must_use]
pub const fn select_views(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => {
            "SELECT DISTINCT table_name FROM documentation \
             WHERE table_name IN (SELECT name FROM sqlite_schema WHERE type = 'view')"
        }
        Dialect::Postgres => {
            "SELECT DISTINCT table_name FROM documentation \
             WHERE table_name IN (SELECT viewname FROM pg_views WHERE schemaname = current_schema())"
        }
    }
}

/// Returns the query for the existing tables of a generation. The tables may have been created by any program
/// version.
#[must_use]
pub fn select_tables(dialect: Dialect, generation: i64) -> String {
    let (name, from) = match dialect {
        Dialect::Sqlite => ("name", "sqlite_schema WHERE type = 'table'"),
        Dialect::Postgres => ("tablename", "pg_tables WHERE schemaname = current_schema()"),
    };
    let (events, quarantined) = (events_table(generation), quarantined_table(generation));
    format!(
        "SELECT {name} FROM {from} AND ({name} IN ('{events}', '{quarantined}') OR {name} LIKE \
         '%!_history!_g{generation}' ESCAPE '!')"
    )
}

/// Returns the statements that show the tables as of a position to one connection. Temporary views hide the
/// views with the public names, and the analytical views read from the temporary views. `place` is the schema
/// of the public views.
#[must_use]
pub fn create_temp_views(dialect: Dialect, place: &str, position: schemas::Position) -> Vec<String> {
    let temporary = |name: &str, query: &str| format!("CREATE TEMP VIEW {name} AS {query}");
    let own = match dialect {
        Dialect::Sqlite => "temp",
        Dialect::Postgres => "pg_temp",
    };
    let mut shown = vec![];
    for table in Table::ALL {
        let (name, columns) = (table.name(), names(&table.columns()));
        let later =
            |column: &str| format!("CASE WHEN to_position <= {position} THEN {column} END AS {column}");
        let past = format!(
            "SELECT {columns}, from_position, from_time, {}, {} FROM {place}.{name}_history \
             WHERE from_position <= {position}",
            later("to_position"),
            later("to_time")
        );
        shown.push(temporary(&format!("{name}_history"), &past));
        shown.push(temporary(name, &select_current(&format!("{own}.{name}_history"), &columns)));
    }
    for name in ["events", "quarantined_entries"] {
        shown.push(temporary(name, &format!("SELECT * FROM {place}.{name} WHERE position <= {position}")));
    }
    shown.extend(views::all(dialect).iter().map(|one| temporary(one.name, &one.query)));
    shown
}

/// Returns the query for the current rows of a history.
fn select_current(history: &str, columns: &str) -> String {
    format!("SELECT {columns}, from_position, from_time FROM {history} WHERE to_position IS NULL")
}

/// Returns the statement that copies rows in CSV format into PostgreSQL.
#[must_use]
pub fn copy(name: &str) -> String {
    format!("COPY {name} FROM STDIN (FORMAT csv)")
}

/// Returns the statement that inserts any number of rows into PostgreSQL. Each parameter is a text array with
/// the values of one column.
#[must_use]
pub fn insert_all(name: &str, columns: &[ColumnSpec]) -> String {
    let values: Vec<String> = (0..columns.len()).map(|nth| cast_column(nth, columns[nth].kind)).collect();
    format!("INSERT INTO {name} SELECT {} FROM {}", values.join(", "), unnested("added", columns.len()))
}

/// Returns the statement that ends any number of open rows in PostgreSQL. The parameters are text arrays: one
/// for each key column, one for the positions of the ends, and one for their times.
///
/// Each row is looked up by its key and then updated by its location. With a plain join, a server without
/// statistics expects few open rows and scans all open rows for each key.
#[must_use]
pub fn end_all(table: Table, generation: i64) -> String {
    let (name, key, columns) = (history_table(table, generation), table.key_columns(), table.columns());
    let same: Vec<String> = columns[..key]
        .iter()
        .enumerate()
        .map(|(nth, of)| format!("open.{} = ended.{}", quoted(of.name), cast_column(nth, of.kind)))
        .collect();
    format!(
        "UPDATE {name} AS old SET to_position = found.position, to_time = found.at FROM (SELECT place, {} AS \
         position, {} AS at FROM {}, LATERAL (SELECT ctid AS place FROM {name} AS open WHERE {} AND \
         open.to_position IS NULL LIMIT 1) AS one OFFSET 0) AS found WHERE old.ctid = found.place",
        cast_column(key, Kind::Integer),
        cast_column(key + 1, Kind::Time),
        unnested("ended", key + 2),
        same.join(" AND ")
    )
}

/// Returns a `FROM` item that turns text arrays into rows. Each array becomes one column: `c0`, `c1` and so
/// on.
fn unnested(name: &str, columns: usize) -> String {
    let arrays: Vec<String> = (1..=columns).map(|nth| format!("${nth}::text[]")).collect();
    let named: Vec<String> = (0..columns).map(|nth| format!("c{nth}")).collect();
    format!("unnest({}) AS {name} ({})", arrays.join(", "), named.join(", "))
}

/// Returns one of the columns of `unnested`, cast to its type.
fn cast_column(nth: usize, kind: Kind) -> String {
    format!("c{nth}::{}", Dialect::Postgres.column_type(kind))
}

/// Returns the statement that inserts `rows` rows into `SQLite`.
#[must_use]
pub fn insert(name: &str, columns: usize, rows: usize) -> String {
    format!("INSERT INTO {name} VALUES {}", values(columns, rows))
}

/// Returns the statement that ends a number of open rows in `SQLite`. The parameters of each row are its key,
/// and the position and time of its end.
#[must_use]
pub fn end_rows(table: Table, generation: i64, rows: usize) -> String {
    let (name, key) = (history_table(table, generation), table.key_columns());
    let same: Vec<String> = table.columns()[..key]
        .iter()
        .enumerate()
        .map(|(nth, column)| format!("{name}.{} = ended.column{}", quoted(column.name), nth + 1))
        .collect();
    format!(
        "UPDATE {name} SET to_position = ended.column{}, to_time = ended.column{} \
         FROM (VALUES {}) AS ended WHERE {} AND {name}.to_position IS NULL",
        key + 1,
        key + 2,
        values(key + 2, rows),
        same.join(" AND ")
    )
}

fn values(columns: usize, rows: usize) -> String {
    let row = format!("({})", vec!["?"; columns].join(", "));
    vec![row; rows].join(", ")
}

/// Returns the documentation of tables and columns. Each item contains the table, the column (`None` for the
/// table itself), and the comment.
#[must_use]
pub fn documentation() -> Vec<(String, Option<&'static str>, String)> {
    let mut said = vec![];
    let mut say = |table: &str, comment: &str, columns: &[ColumnSpec]| {
        said.push((table.to_owned(), None, comment.to_owned()));
        said.extend(columns.iter().map(|of| (table.to_owned(), Some(of.name), of.comment.to_owned())));
    };
    for table in Table::ALL {
        let mut columns = table.columns();
        columns.extend_from_slice(&INTERVAL_COLUMNS[..2]);
        say(table.name(), table.comment(), &columns);
        say(&format!("{}_history", table.name()), &history_comment(table), &history_columns(table));
    }
    say("events", EVENTS_COMMENT, &events::column_specs());
    say("quarantined_entries", QUARANTINED_COMMENT, &QUARANTINED_COLUMNS);
    for view in views::all(Dialect::Sqlite) {
        said.push((view.name.to_owned(), None, view.comment.to_owned()));
        let columns = view.columns.iter();
        said.extend(
            columns.map(|(name, comment)| (view.name.to_owned(), Some(*name), (*comment).to_owned())),
        );
    }
    said
}

const EVENTS_COMMENT: &str = "Events of the log.";
const QUARANTINED_COMMENT: &str = "Messages of the journal that are not valid entries.";

fn history_comment(table: Table) -> String {
    format!("{} With the positions between which each row is valid.", table.comment())
}

/// Returns the statements that store the documentation as rows. For PostgreSQL, the statements also store it
/// as comments.
#[must_use]
pub fn document(dialect: Dialect, generation: i64) -> Vec<String> {
    let said = documentation();
    let mut written = vec!["DELETE FROM documentation".to_owned()];
    written.extend(said.iter().map(|(table, column, comment)| {
        let column = column.map_or("NULL".to_owned(), literal);
        format!("INSERT INTO documentation VALUES ({}, {column}, {})", literal(table), literal(comment))
    }));
    if dialect == Dialect::Postgres {
        written.extend(said.iter().map(|(table, column, comment)| match column {
            None => format!("COMMENT ON VIEW {table} IS {}", literal(comment)),
            Some(column) => format!("COMMENT ON COLUMN {table}.{} IS {}", quoted(column), literal(comment)),
        }));
        for table in Table::ALL {
            let name = history_table(table, generation);
            written.extend(comments("TABLE", &name, &history_comment(table), &history_columns(table)));
        }
        written.extend(comments("TABLE", &events_table(generation), EVENTS_COMMENT, &events::column_specs()));
        written.extend(comments(
            "TABLE",
            &quarantined_table(generation),
            QUARANTINED_COMMENT,
            &QUARANTINED_COLUMNS,
        ));
    }
    written
}

fn comments(what: &str, name: &str, comment: &str, columns: &[ColumnSpec]) -> Vec<String> {
    let own = format!("COMMENT ON {what} {name} IS {}", literal(comment));
    let of_columns = columns.iter().map(|column| {
        format!("COMMENT ON COLUMN {name}.{} IS {}", quoted(column.name), literal(column.comment))
    });
    std::iter::once(own).chain(of_columns).collect()
}

/// Returns text as an SQL literal.
#[must_use]
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns a fingerprint of the tables' shape. Tables with different shapes have different fingerprints.
#[must_use]
pub fn fingerprint(dialect: Dialect) -> String {
    let made =
        [create_metadata(dialect), create(dialect, 0), create_indexes(dialect, 0), create_views(dialect, 0)]
            .concat();
    format!("{:016x}", schemas::checksum::crc64(&[made.join("\n").as_bytes()]))
}
