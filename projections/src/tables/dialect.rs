//! Differences between the SQL of the supported databases.

use super::{Kind, Table};

/// SQL dialect of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `SQLite`. Times are text; booleans are 1 and 0.
    Sqlite,
    Postgres,
}

impl Dialect {
    /// Returns the type of a column.
    pub(super) const fn column_type(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Self::Sqlite, Kind::Text | Kind::Time | Kind::Json) | (Self::Postgres, Kind::Text) => "TEXT",
            (Self::Sqlite, Kind::Integer | Kind::Boolean) => "INTEGER",
            (Self::Postgres, Kind::Integer) => "bigint",
            (Self::Postgres, Kind::Boolean) => "boolean",
            (Self::Postgres, Kind::Time) => "timestamptz",
            // `jsonb` normalises the text, so a table with `jsonb` columns could not be compared with the
            // log. `jsonb` also refuses "\u0000", which the log may contain.
            (Self::Postgres, Kind::Json) => "json",
        }
    }

    /// Returns the text that follows the columns in a table definition.
    pub(super) const fn table_options(self) -> &'static str {
        match self {
            Self::Sqlite => " STRICT",
            Self::Postgres => "",
        }
    }

    /// Returns an expression that rounds a number to `digits` digits after the decimal point.
    pub(super) fn rounded(self, number: &str, digits: u8) -> String {
        match self {
            Self::Sqlite => format!("round({number}, {digits})"),
            Self::Postgres => format!("round(({number})::numeric, {digits})::float8"),
        }
    }

    /// Returns an expression for the seconds between two times.
    pub(super) fn seconds(self, from: &str, to: &str) -> String {
        match self {
            Self::Sqlite => format!("round((julianday({to}) - julianday({from})) * 86400, 3)"),
            Self::Postgres => self.rounded(&format!("extract(epoch FROM ({to}) - ({from}))"), 3),
        }
    }

    /// Returns an expression for the day of a time, in UTC.
    pub(super) fn day(self, at: &str) -> String {
        match self {
            Self::Sqlite => format!("date({at})"),
            Self::Postgres => format!("(({at}) AT TIME ZONE 'UTC')::date"),
        }
    }

    /// Returns an expression for the day after a day.
    pub(super) fn next_day(self, day: &str) -> String {
        match self {
            Self::Sqlite => format!("date({day}, '+1 day')"),
            Self::Postgres => format!("({day} + 1)"),
        }
    }

    /// Returns an expression for the start of a day, in UTC. `SQLite` compares times as text, so the
    /// expression returns the format of stored times.
    pub(super) fn midnight(self, day: &str) -> String {
        match self {
            Self::Sqlite => format!("{day} || 'T00:00:00.000000Z'"),
            Self::Postgres => format!("(({day})::timestamp AT TIME ZONE 'UTC')"),
        }
    }

    /// Returns an expression for the start of the hour of a time.
    pub(super) fn hour(self, at: &str) -> String {
        match self {
            Self::Sqlite => format!("strftime('%Y-%m-%dT%H:00:00.000000Z', {at})"),
            Self::Postgres => format!("date_trunc('hour', {at}, 'UTC')"),
        }
    }

    /// Returns the function for the later of two times.
    pub(super) const fn greatest(self) -> &'static str {
        match self {
            Self::Sqlite => "max",
            Self::Postgres => "greatest",
        }
    }

    /// Returns the function for the earlier of two times.
    pub(super) const fn least(self) -> &'static str {
        match self {
            Self::Sqlite => "min",
            Self::Postgres => "least",
        }
    }

    /// Returns an expression that joins the texts of a group. The `SQLite` expression must also work in older
    /// versions, with which clients read a file. These versions do not support an order in the aggregate, so
    /// the texts have the order of the table.
    pub(super) fn list(self, text: &str, order: &str) -> String {
        match self {
            Self::Sqlite => format!("group_concat({text}, ', ')"),
            Self::Postgres => format!("string_agg({text}, ', ' ORDER BY {order})"),
        }
    }

    /// Returns a `FROM` item `range` with the first and last index of each range in an indices column.
    pub(super) fn ranges(self, indices: &str) -> String {
        match self {
            Self::Sqlite => format!(
                "(SELECT json_extract(value, '$[0]') AS first, json_extract(value, '$[1]') AS last \
                 FROM json_each({indices})) AS range"
            ),
            Self::Postgres => format!(
                "(SELECT (value ->> 0)::bigint AS first, (value ->> 1)::bigint AS last \
                 FROM json_array_elements({indices})) AS range"
            ),
        }
    }

    /// Returns the text in a form that the database can store.
    #[must_use]
    pub fn storable(self, text: &str) -> std::borrow::Cow<'_, str> {
        match self {
            // `PostgreSQL` text cannot contain NUL. The result of a task may contain NUL.
            Self::Postgres if text.contains('\0') => text.replace('\0', "\u{fffd}").into(),
            Self::Postgres | Self::Sqlite => text.into(),
        }
    }

    /// Returns the definition of the function that reads a table as of a position. `None` for `SQLite`, which
    /// does not support such functions.
    pub(super) fn as_of_function(self, table: Table, columns: &str) -> Option<String> {
        let name = table.name();
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some(format!(
                "CREATE OR REPLACE FUNCTION {name}_at(at_position bigint) RETURNS SETOF {name} LANGUAGE sql \
                 STABLE PARALLEL SAFE BEGIN ATOMIC SELECT {columns}, from_position, from_time FROM \
                 {name}_history WHERE from_position <= at_position AND (to_position IS NULL OR to_position > \
                 at_position); END"
            )),
        }
    }
}
