//! Where a database is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use projections::tables::Dialect;
use sqlx::postgres::PgConnectOptions;

/// The schema of `PostgreSQL` in which the tables are unless another one is named.
const SCHEMA: &str = "muster";
/// Characters of a name of `PostgreSQL`, at most.
const NAME: usize = 63;

/// Where a database is: `sqlite:FILE`, or `postgres://USER@HOST/DATABASE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Url {
    /// A file of `SQLite`.
    Sqlite(PathBuf),
    /// A schema in a database of `PostgreSQL`.
    Postgres(Place),
}

/// A schema in a database of `PostgreSQL`. What is shown of it has no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    url: String,
    schema: String,
}

/// Text that names no database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} names no database{why}: use sqlite:FILE or postgres://USER@HOST/DATABASE[?schema=NAME]")]
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
            let place = Place::of(text).map_err(|why| bad(format!(" ({why})")))?;
            return Ok(Self::Postgres(place));
        }
        Err(bad(String::new()))
    }
}

impl Url {
    /// How that database says things.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Where its tables are, as SQL names it.
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

impl Place {
    /// The parts of a URL: what the library connects with, and the schema, which it doesn't know.
    fn of(text: &str) -> Result<Self, String> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut schema = SCHEMA.to_owned();
        let mut others = vec![];
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("schema", name)) => name.clone_into(&mut schema),
                Some(_) | None => others.push(pair),
            }
        }
        if !is_name(&schema) {
            return Err(format!("the schema {schema:?} is none: a-z, 0-9 and _, and a letter first"));
        }
        let url = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
        let place = Self { url, schema };
        place.options().map_err(|error| error.to_string())?;
        Ok(place)
    }

    pub(crate) fn options(&self) -> Result<PgConnectOptions, sqlx::Error> {
        Ok(self.url.parse::<PgConnectOptions>()?.application_name("muster"))
    }

    /// The schema, a name that needs no quotes.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.url))?;
        if self.schema == SCHEMA {
            return Ok(());
        }
        let mark = if self.url.contains('?') { '&' } else { '?' };
        write!(f, "{mark}schema={}", self.schema)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether something is a name that needs no quotes, and that PostgreSQL doesn't keep for itself.
fn is_name(name: &str) -> bool {
    let first = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let rest = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    first && rest && name.len() <= NAME && !name.starts_with("pg_")
}

/// A URL as it may be shown.
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
    fn a_url_names_a_database() {
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
        assert!(said.contains("the schema \"pg_x\" is none") && !said.contains("secret"), "{said}");
    }
}
