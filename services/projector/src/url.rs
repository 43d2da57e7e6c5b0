//! Addresses of databases.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use projections::tables::Dialect;
use sqlx::postgres::PgConnectOptions;

/// Default schema of the tables in `PostgreSQL`.
const DEFAULT_SCHEMA: &str = "muster";
/// Maximum length of a name in `PostgreSQL`.
const MAX_NAME_LEN: usize = 63;

/// Address of a database: `sqlite:FILE`, or `postgres://USER@HOST/DATABASE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Url {
    /// File of `SQLite`.
    Sqlite(PathBuf),
    /// Schema in a database of `PostgreSQL`.
    Postgres(PostgresUrl),
}

/// Schema in a database of `PostgreSQL`. Its `Display` and `Debug` output contains no password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    url: String,
    schema: String,
}

/// Error for text that is not an address of a database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid database {given:?}{why}: use sqlite:FILE or postgres://USER@HOST/DATABASE[?schema=NAME]")]
pub struct BadUrl {
    given: String,
    why: String,
}

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad = |why: String| BadUrl { given: without_password(text), why };
        if let Some(rest) = text.strip_prefix("sqlite:") {
            let file = rest.strip_prefix("//").unwrap_or(rest);
            return if file.is_empty() { Err(bad(String::new())) } else { Ok(Self::Sqlite(file.into())) };
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            let place = PostgresUrl::parse(text).map_err(|why| bad(format!(" ({why})")))?;
            return Ok(Self::Postgres(place));
        }
        Err(bad(String::new()))
    }
}

impl Url {
    /// Returns the SQL dialect of the database.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Returns the schema of the tables, as SQL names it.
    #[must_use]
    pub fn schema(&self) -> &str {
        match self {
            Self::Sqlite(_) => "main",
            Self::Postgres(place) => place.schema(),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => write!(f, "sqlite:{}", file.display()),
            Self::Postgres(place) => place.fmt(f),
        }
    }
}

impl PostgresUrl {
    /// Parses a URL. Removes the schema parameter from the URL, because the client library does not know this
    /// parameter.
    fn parse(text: &str) -> Result<Self, String> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut schema = DEFAULT_SCHEMA.to_owned();
        let mut others = vec![];
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("schema", name)) => name.clone_into(&mut schema),
                Some(_) | None => others.push(pair),
            }
        }
        if !is_valid_schema(&schema) {
            return Err(format!(
                "invalid schema {schema:?}: expected a-z, 0-9 and _, starting with a letter"
            ));
        }
        let url = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
        let place = Self { url, schema };
        place.options().map_err(|error| error.to_string())?;
        Ok(place)
    }

    pub(crate) fn options(&self) -> Result<PgConnectOptions, sqlx::Error> {
        Ok(self.url.parse::<PgConnectOptions>()?.application_name("muster"))
    }

    /// Returns the schema, a name that needs no quotes.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.url))?;
        if self.schema == DEFAULT_SCHEMA {
            return Ok(());
        }
        let mark = if self.url.contains('?') { '&' } else { '?' };
        write!(f, "{mark}schema={}", self.schema)
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns `true` if a name needs no quotes and is not reserved by PostgreSQL.
fn is_valid_schema(name: &str) -> bool {
    let first = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let rest = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    first && rest && name.len() <= MAX_NAME_LEN && !name.starts_with("pg_")
}

/// Returns a URL with its passwords masked.
fn without_password(url: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let secret =
        |pair: &str| if pair.starts_with("password=") { "password=***".to_owned() } else { pair.to_owned() };
    let query = query.map(|query| query.split('&').map(secret).collect::<Vec<_>>().join("&"));
    let base = match base.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)))
    {
        Some((scheme, (user, host))) => {
            let user = user.split_once(':').map_or(user.to_owned(), |(user, _)| format!("{user}:***"));
            format!("{scheme}://{user}@{host}")
        }
        None => base.to_owned(),
    };
    query.map_or(base.clone(), |query| format!("{base}?{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_shown_without_password() {
        let shown = |text: &str| text.parse::<Url>().map(|url| url.to_string());
        for (given, expected) in [
            ("sqlite:a/b.db", "sqlite:a/b.db"),
            ("sqlite:///tmp/b.db", "sqlite:/tmp/b.db"),
            ("postgres://ada@db/x", "postgres://ada@db/x"),
            (
                "postgresql://ada:secret@db:5433/x?sslmode=require",
                "postgresql://ada:***@db:5433/x?sslmode=require",
            ),
            ("postgres:///x?host=/run/pg&password=secret", "postgres:///x?host=/run/pg&password=***"),
            ("postgres://db/x?schema=shop&sslmode=disable", "postgres://db/x?sslmode=disable&schema=shop"),
            ("postgres://db/x?schema=muster", "postgres://db/x"),
        ] {
            assert_eq!(shown(given).as_deref(), Ok(expected), "{given}");
            let url: Url = given.parse().unwrap();
            assert!(!format!("{url:?}").contains("secret"), "{url:?}");
        }
        for bad in ["", "sqlite:", "a.db", "mysql://x", "postgres://db:port/x", "postgres://db/x?schema=A"] {
            let said = bad.parse::<Url>().unwrap_err().to_string();
            assert!(said.contains("use sqlite:FILE or postgres://"), "{bad}: {said}");
        }
        let said = "postgres://a:secret@db/x?schema=pg_x".parse::<Url>().unwrap_err().to_string();
        assert!(said.contains("invalid schema \"pg_x\"") && !said.contains("secret"), "{said}");
    }
}
