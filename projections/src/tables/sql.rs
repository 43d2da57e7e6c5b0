//! The tables as SQL: what makes them, and what writes to them.
//!
//! Of each table there is what it holds with the positions between which it held (`NAME_history`), and what holds now
//! (`NAME`), which is a view of it through an index. Tables carry the number of their generation, so that another can be
//! built beside them; the views, which have the names that readers use, show one of them.

use super::{Dialect, Kind, Shape, Table, events, views};

/// The columns of each history behind those of its rows.
pub const INTERVAL: [Shape; 4] = [
    Shape { name: "from_position", kind: Kind::Integer, comment: "The position from which on the row held." },
    Shape { name: "from_time", kind: Kind::Time, comment: "When that was decided." },
    Shape {
        name: "to_position",
        kind: Kind::Integer,
        comment: "The position at which it held no more; null: it holds still.",
    },
    Shape { name: "to_time", kind: Kind::Time, comment: "When that was decided." },
];

/// The columns of what is no entry.
pub const SET_ASIDE: [Shape; 3] = [
    Shape { name: "position", kind: Kind::Integer, comment: "Where it stands in the journal." },
    Shape { name: "subject", kind: Kind::Text, comment: "On which subject." },
    Shape { name: "why", kind: Kind::Text, comment: "Why it is no entry." },
];

/// What a database says of each generation of its tables.
pub const PROJECTION: [Shape; 9] = [
    Shape { name: "generation", kind: Kind::Integer, comment: "Which generation of tables it is." },
    Shape { name: "live", kind: Kind::Boolean, comment: "Whether readers see it; else it is being built." },
    Shape {
        name: "indexed",
        kind: Kind::Boolean,
        comment: "Whether it has the indexes that readers want: it gets them when it first is up to date.",
    },
    Shape { name: "shape", kind: Kind::Text, comment: "Names the shape of its tables." },
    Shape { name: "cluster_id", kind: Kind::Text, comment: "Of which cluster it is." },
    Shape { name: "position", kind: Kind::Integer, comment: "The last position that is in it." },
    Shape { name: "at", kind: Kind::Integer, comment: "When that was decided, in nanoseconds since 1970." },
    Shape {
        name: "checksum",
        kind: Kind::Text,
        comment: "A checksum of the entry at that position: it tells one history of a log from another.",
    },
    Shape {
        name: "asked",
        kind: Kind::Integer,
        comment: "How often somebody asked the projector to read again what it can't get past.",
    },
];

/// What tables and columns say of themselves.
pub const DOCUMENTATION: [Shape; 3] = [
    Shape { name: "table_name", kind: Kind::Text, comment: "The table or view." },
    Shape { name: "column_name", kind: Kind::Text, comment: "The column; null: the table itself." },
    Shape { name: "comment", kind: Kind::Text, comment: "What it says." },
];

/// The name of a table, of a generation.
#[must_use]
pub fn history(table: Table, generation: i64) -> String {
    format!("{}_history_g{generation}", table.name())
}

/// The name of the table of events.
#[must_use]
pub fn events_table(generation: i64) -> String {
    format!("events_g{generation}")
}

/// The name of the table of what is no entry.
#[must_use]
pub fn set_aside_table(generation: i64) -> String {
    format!("set_aside_g{generation}")
}

/// The columns of a history.
#[must_use]
pub fn history_columns(table: Table) -> Vec<Shape> {
    table.columns().into_iter().chain(INTERVAL).collect()
}

/// A name that is a word of SQL, too, as `index`.
fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

fn names(columns: &[Shape]) -> String {
    columns.iter().map(|column| quoted(column.name)).collect::<Vec<_>>().join(", ")
}

fn create_table(dialect: Dialect, name: &str, columns: &[Shape], key: usize) -> String {
    let columns: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(nth, column)| {
            let required = if nth < key { " NOT NULL" } else { "" };
            format!("{} {}{required}", quoted(column.name), dialect.kind(column.kind))
        })
        .collect();
    format!("CREATE TABLE {name} ({}){}", columns.join(", "), dialect.after_columns())
}

/// What makes the tables in which a database says what it is.
#[must_use]
pub fn found(dialect: Dialect) -> Vec<String> {
    let mut made = vec![
        create_table(dialect, "projection", &PROJECTION, 4),
        "CREATE UNIQUE INDEX projection_by_generation ON projection (generation)".to_owned(),
        create_table(dialect, "documentation", &DOCUMENTATION, 1),
    ];
    if dialect == Dialect::Postgres {
        made.extend(comments(
            "TABLE",
            "projection",
            "Where each generation of the tables stands.",
            &PROJECTION,
        ));
        made.extend(comments("TABLE", "documentation", "What tables and columns say.", &DOCUMENTATION));
    }
    made
}

/// What makes the tables of a generation, with the indexes that writing needs.
#[must_use]
pub fn create(dialect: Dialect, generation: i64) -> Vec<String> {
    let mut made = vec![];
    for table in Table::ALL {
        let (name, columns) = (history(table, generation), history_columns(table));
        let key = names(&columns[..table.key_columns()]);
        made.push(create_table(dialect, &name, &columns, table.key_columns()));
        made.push(format!("CREATE UNIQUE INDEX {name}_open ON {name} ({key}) WHERE to_position IS NULL"));
    }
    made.push(create_table(dialect, &events_table(generation), &events::shapes(), 2));
    made.push(create_table(dialect, &set_aside_table(generation), &SET_ASIDE, 1));
    made
}

/// What makes the indexes that readers want. Made once the tables are up to date, they cost a fraction.
#[must_use]
pub fn index(dialect: Dialect, generation: i64) -> Vec<String> {
    let mut made = vec![];
    for table in Table::ALL {
        let name = history(table, generation);
        let key = names(&table.columns()[..table.key_columns()]);
        made.push(format!("CREATE INDEX {name}_by_key ON {name} ({key}, from_position)"));
        made.push(format!("CREATE INDEX {name}_by_end ON {name} (to_position)"));
    }
    let name = events_table(generation);
    made.push(format!("CREATE UNIQUE INDEX {name}_by_position ON {name} (position, nth)"));
    made.push(format!("CREATE INDEX {name}_by_about ON {name} (about, position)"));
    made.push(format!("CREATE INDEX {name}_by_correlation ON {name} (correlation, position)"));
    made.push(format!("CREATE INDEX {name}_by_time ON {name} (at)"));
    if dialect == Dialect::Postgres {
        made.extend(tables(generation).iter().map(|name| format!("ANALYZE {name}")));
    }
    made
}

/// The names of the tables of a generation.
fn tables(generation: i64) -> Vec<String> {
    let histories = Table::ALL.into_iter().map(|table| history(table, generation));
    histories.chain([events_table(generation), set_aside_table(generation)]).collect()
}

/// What shows a generation to readers, by the names that they use, in place of another of the same shape. `events` is the
/// first: who reads several views as of one moment holds it, so that this waits there, while it holds none of the others,
/// and not each for the other.
#[must_use]
pub fn show(dialect: Dialect, generation: i64) -> Vec<String> {
    let mut shown = vec![];
    let mut view = |name: &str, query: &str| match dialect {
        Dialect::Sqlite => {
            shown.push(format!("DROP VIEW IF EXISTS {name}"));
            shown.push(format!("CREATE VIEW {name} AS {query}"));
        }
        // What was granted stays, and views of others that read this one.
        Dialect::Postgres => shown.push(format!("CREATE OR REPLACE VIEW {name} AS {query}")),
    };
    view("events", &format!("SELECT * FROM {}", events_table(generation)));
    for table in Table::ALL {
        let (name, from) = (table.name(), history(table, generation));
        view(&format!("{name}_history"), &format!("SELECT * FROM {from}"));
        view(name, &open(&from, &names(&table.columns())));
    }
    view("set_aside", &format!("SELECT * FROM {}", set_aside_table(generation)));
    views::all(dialect).iter().for_each(|one| view(one.name, &one.query));
    shown
        .extend(Table::ALL.into_iter().filter_map(|table| dialect.function(table, &names(&table.columns()))));
    shown
}

/// What takes from readers what another program showed them: these views, `events` first, as [`show`] does. One that others
/// depend on stays, by an error.
#[must_use]
pub fn hide(dialect: Dialect, views: &[String]) -> Vec<String> {
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

/// Asks which views a database has of those that its documentation names.
#[must_use]
pub const fn shown_views(dialect: Dialect) -> &'static str {
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

/// Asks which tables a database has of a generation, whichever program made them.
#[must_use]
pub fn made_tables(dialect: Dialect, generation: i64) -> String {
    let (name, from) = match dialect {
        Dialect::Sqlite => ("name", "sqlite_schema WHERE type = 'table'"),
        Dialect::Postgres => ("tablename", "pg_tables WHERE schemaname = current_schema()"),
    };
    let (events, set_aside) = (events_table(generation), set_aside_table(generation));
    format!(
        "SELECT {name} FROM {from} AND ({name} IN ('{events}', '{set_aside}') OR {name} LIKE '%!_history!_g{generation}' ESCAPE '!')"
    )
}

/// What shows the tables as they stood at a position, to one connection and under the names that hold the present
/// otherwise, and what people ask of them with them. `place` is where those are: a schema.
#[must_use]
pub fn as_of(dialect: Dialect, place: &str, position: schemas::Position) -> Vec<String> {
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
        shown.push(temporary(name, &open(&format!("{own}.{name}_history"), &columns)));
    }
    for name in ["events", "set_aside"] {
        shown.push(temporary(name, &format!("SELECT * FROM {place}.{name} WHERE position <= {position}")));
    }
    shown.extend(views::all(dialect).iter().map(|one| temporary(one.name, &one.query)));
    shown
}

/// What of a history holds.
fn open(history: &str, columns: &str) -> String {
    format!("SELECT {columns}, from_position, from_time FROM {history} WHERE to_position IS NULL")
}

/// Takes rows as they come, in the binary format of PostgreSQL.
#[must_use]
pub fn copy(name: &str) -> String {
    format!("COPY {name} FROM STDIN (FORMAT binary)")
}

/// Writes rows of PostgreSQL, as many as there are: the values of each column are an array of text.
#[must_use]
pub fn insert_all(name: &str, columns: &[Shape]) -> String {
    let values: Vec<String> = (0..columns.len()).map(|nth| of_column(nth, columns[nth].kind)).collect();
    format!("INSERT INTO {name} SELECT {} FROM {}", values.join(", "), unnested("added", columns.len()))
}

/// Ends open rows of PostgreSQL, as many as there are: their keys, and positions and times at which they end, are
/// arrays of text, one for each column. Each row is looked for by its key, and then written where it stands: were they
/// simply joined, a server that has no statistics yet takes few rows to be open, and goes through all of them for each key.
#[must_use]
pub fn end_all(table: Table, generation: i64) -> String {
    let (name, key, columns) = (history(table, generation), table.key_columns(), table.columns());
    let same: Vec<String> = columns[..key]
        .iter()
        .enumerate()
        .map(|(nth, of)| format!("open.{} = ended.{}", quoted(of.name), of_column(nth, of.kind)))
        .collect();
    format!(
        "UPDATE {name} AS old SET to_position = found.position, to_time = found.at FROM (\
         SELECT place, {} AS position, {} AS at FROM {}, LATERAL (\
         SELECT ctid AS place FROM {name} AS open WHERE {} AND open.to_position IS NULL LIMIT 1) AS one OFFSET 0\
         ) AS found WHERE old.ctid = found.place",
        of_column(key, Kind::Integer),
        of_column(key + 1, Kind::Time),
        unnested("ended", key + 2),
        same.join(" AND ")
    )
}

/// Rows of arrays of text, of which each holds the values of a column: `c0`, `c1`...
fn unnested(name: &str, columns: usize) -> String {
    let arrays: Vec<String> = (1..=columns).map(|nth| format!("${nth}::text[]")).collect();
    let named: Vec<String> = (0..columns).map(|nth| format!("c{nth}")).collect();
    format!("unnest({}) AS {name} ({})", arrays.join(", "), named.join(", "))
}

/// A column of those, as what it is.
fn of_column(nth: usize, kind: Kind) -> String {
    format!("c{nth}::{}", Dialect::Postgres.kind(kind))
}

/// Writes rows of `SQLite`, so many at once.
#[must_use]
pub fn insert(name: &str, columns: usize, rows: usize) -> String {
    format!("INSERT INTO {name} VALUES {}", values(columns, rows))
}

/// Ends open rows of `SQLite`, so many at once: for each its key, and the position and the time at which it ends.
#[must_use]
pub fn end(table: Table, generation: i64, rows: usize) -> String {
    let (name, key) = (history(table, generation), table.key_columns());
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

/// What tables and columns say: for each the table, the column (none: of the table itself), and the comment.
#[must_use]
pub fn documentation() -> Vec<(String, Option<&'static str>, String)> {
    let mut said = vec![];
    let mut say = |table: &str, comment: &str, columns: &[Shape]| {
        said.push((table.to_owned(), None, comment.to_owned()));
        said.extend(columns.iter().map(|of| (table.to_owned(), Some(of.name), of.comment.to_owned())));
    };
    for table in Table::ALL {
        let mut columns = table.columns();
        columns.extend_from_slice(&INTERVAL[..2]);
        say(table.name(), table.comment(), &columns);
        say(&format!("{}_history", table.name()), &of_history(table), &history_columns(table));
    }
    say("events", EVENTS, &events::shapes());
    say("set_aside", NO_ENTRIES, &SET_ASIDE);
    for view in views::all(Dialect::Sqlite) {
        said.push((view.name.to_owned(), None, view.comment.to_owned()));
        let columns = view.columns.iter();
        said.extend(
            columns.map(|(name, comment)| (view.name.to_owned(), Some(*name), (*comment).to_owned())),
        );
    }
    said
}

const EVENTS: &str = "Every event of the log.";
const NO_ENTRIES: &str = "What the journal holds that is no entry.";

fn of_history(table: Table) -> String {
    format!("{} With the positions between which each row held.", table.comment())
}

/// What writes down what tables and columns say: as rows and, where a database keeps comments, as those.
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
            let name = history(table, generation);
            written.extend(comments("TABLE", &name, &of_history(table), &history_columns(table)));
        }
        written.extend(comments("TABLE", &events_table(generation), EVENTS, &events::shapes()));
        written.extend(comments("TABLE", &set_aside_table(generation), NO_ENTRIES, &SET_ASIDE));
    }
    written
}

fn comments(what: &str, name: &str, comment: &str, columns: &[Shape]) -> Vec<String> {
    let own = format!("COMMENT ON {what} {name} IS {}", literal(comment));
    let of_columns = columns.iter().map(|column| {
        format!("COMMENT ON COLUMN {name}.{} IS {}", quoted(column.name), literal(column.comment))
    });
    std::iter::once(own).chain(of_columns).collect()
}

/// Text as it stands in a statement.
#[must_use]
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Names the shape of all tables: other tables have another.
#[must_use]
pub fn fingerprint(dialect: Dialect) -> String {
    let made = [found(dialect), create(dialect, 0), index(dialect, 0), show(dialect, 0)].concat();
    format!("{:016x}", schemas::checksum::crc64(&[made.join("\n").as_bytes()]))
}
