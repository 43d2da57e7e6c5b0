//! What databases say differently.

use super::{Kind, Table};

/// A database's way to say things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `SQLite`. Times are text, true and false are 1 and 0.
    Sqlite,
    /// `PostgreSQL`.
    Postgres,
}

impl Dialect {
    /// The type of a column.
    pub(super) const fn kind(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Self::Sqlite, Kind::Text | Kind::Time | Kind::Json) | (Self::Postgres, Kind::Text) => "TEXT",
            (Self::Sqlite, Kind::Integer | Kind::Boolean) => "INTEGER",
            (Self::Postgres, Kind::Integer) => "bigint",
            (Self::Postgres, Kind::Boolean) => "boolean",
            (Self::Postgres, Kind::Time) => "timestamptz",
            // `jsonb` would change the text and refuses "\u0000": a table could not be compared with the log, and not
            // hold everything that a log can.
            (Self::Postgres, Kind::Json) => "json",
        }
    }

    /// What stands behind the columns of a table.
    pub(super) const fn after_columns(self) -> &'static str {
        match self {
            Self::Sqlite => " STRICT",
            Self::Postgres => "",
        }
    }

    /// A number with at most so many digits behind the point.
    pub(super) fn rounded(self, number: &str, digits: u8) -> String {
        match self {
            Self::Sqlite => format!("round({number}, {digits})"),
            Self::Postgres => format!("round(({number})::numeric, {digits})::float8"),
        }
    }

    /// Seconds from one moment to another.
    pub(super) fn seconds(self, from: &str, to: &str) -> String {
        match self {
            Self::Sqlite => format!("round((julianday({to}) - julianday({from})) * 86400, 3)"),
            Self::Postgres => self.rounded(&format!("extract(epoch FROM ({to}) - ({from}))"), 3),
        }
    }

    /// The day of a moment, in UTC.
    pub(super) fn day(self, at: &str) -> String {
        match self {
            Self::Sqlite => format!("date({at})"),
            Self::Postgres => format!("(({at}) AT TIME ZONE 'UTC')::date"),
        }
    }

    /// The day after a day.
    pub(super) fn next_day(self, day: &str) -> String {
        match self {
            Self::Sqlite => format!("date({day}, '+1 day')"),
            Self::Postgres => format!("({day} + 1)"),
        }
    }

    /// The moment at which a day begins, in UTC, written as every other one: `SQLite` compares text.
    pub(super) fn midnight(self, day: &str) -> String {
        match self {
            Self::Sqlite => format!("{day} || 'T00:00:00.000000Z'"),
            Self::Postgres => format!("(({day})::timestamp AT TIME ZONE 'UTC')"),
        }
    }

    /// The moment at which the hour of a moment begins.
    pub(super) fn hour(self, at: &str) -> String {
        match self {
            Self::Sqlite => format!("strftime('%Y-%m-%dT%H:00:00.000000Z', {at})"),
            Self::Postgres => format!("date_trunc('hour', {at}, 'UTC')"),
        }
    }

    /// The later of two moments.
    pub(super) const fn greatest(self) -> &'static str {
        match self {
            Self::Sqlite => "max",
            Self::Postgres => "greatest",
        }
    }

    /// The earlier of two moments.
    pub(super) const fn least(self) -> &'static str {
        match self {
            Self::Sqlite => "min",
            Self::Postgres => "least",
        }
    }

    /// The texts of a group, one behind the other. A file has to be read by older clients, too: in those of `SQLite`
    /// no order can be said, and it is that of the table.
    pub(super) fn list(self, text: &str, order: &str) -> String {
        match self {
            Self::Sqlite => format!("group_concat({text}, ', ')"),
            Self::Postgres => format!("string_agg({text}, ', ' ORDER BY {order})"),
        }
    }

    /// What begins each range of a column that holds indices, and what ends it, as rows of `range`.
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

    /// Text as it can be stored.
    #[must_use]
    pub fn storable(self, text: &str) -> std::borrow::Cow<'_, str> {
        match self {
            // Text of `PostgreSQL` can't hold NUL: what a task left as its result may.
            Self::Postgres if text.contains('\0') => text.replace('\0', "\u{fffd}").into(),
            Self::Postgres | Self::Sqlite => text.into(),
        }
    }

    /// What answers a table as of a position: a function of `PostgreSQL`.
    pub(super) fn function(self, table: Table, columns: &str) -> Option<String> {
        let name = table.name();
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some(format!(
                "CREATE OR REPLACE FUNCTION {name}_at(at_position bigint) RETURNS SETOF {name} \
                 LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC \
                 SELECT {columns}, from_position, from_time FROM {name}_history \
                 WHERE from_position <= at_position AND (to_position IS NULL OR to_position > at_position); END"
            )),
        }
    }
}
