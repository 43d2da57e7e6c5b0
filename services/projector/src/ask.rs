//! Read-only SQL queries, with results as plain data.

use std::time::Duration;

use projections::tables::{Dialect, sql};
use schemas::Position;
use serde_json::Value;

use crate::connection::Connection;
use crate::database::{Generation, read_generations};
use crate::{Error, Url};

/// Default time limit of one query.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Maximum number of rows of a result that is collected in memory.
pub const MAX_ROWS: usize = 100_000;
/// Maximum size of a result that is collected in memory, in bytes. The size is the length of all texts plus 8
/// bytes for each value.
pub const MAX_BYTES: usize = 64 << 20;
/// Size that is counted for a value besides its text, in bytes.
const VALUE_BYTES: usize = 8;

/// Description of a valid query, used in errors.
const QUERY_RULE: &str =
    "expected one statement that returns rows (SELECT, VALUES, WITH or EXPLAIN), and queries are read-only";

/// Read-only session on a database. All queries of a session read one snapshot of the database.
#[derive(Debug)]
pub struct QuerySession {
    url: Url,
    connection: Connection,
    timeout: Duration,
}

/// A validated query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    text: String,
    columns: Vec<String>,
}

/// Result of a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryResult {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows, with a value for each column.
    pub rows: Vec<Vec<Value>>,
}

impl Query {
    /// Returns the names of the result's columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }
}

impl QuerySession {
    /// Opens a database for reading. Returns the state of its live tables.
    ///
    /// # Errors
    /// The database does not exist, cannot be opened, or contains no tables of Muster.
    pub async fn open(url: &Url) -> Result<(Self, Generation), Error> {
        Self::open_with_timeout(url, DEFAULT_TIMEOUT).await
    }

    /// Opens a database like [`Self::open`], with this time limit for each query.
    ///
    /// # Errors
    /// See [`Self::open`].
    pub async fn open_with_timeout(url: &Url, timeout: Duration) -> Result<(Self, Generation), Error> {
        let mut connection = Connection::open_for_reading(url).await?;
        let doing = || Error::database(format!("can't open the database {url}"));
        connection.set_statement_timeout(timeout).await.map_err(doing())?;
        let standing = begin_with_views(&mut connection, url).await?;
        Ok((Self { url: url.clone(), connection, timeout }, standing))
    }

    /// Switches the tables to their state at a past position, for all later queries of the session.
    pub async fn as_of(&mut self, position: Position) -> Result<(), Error> {
        let needs = match self.url.dialect() {
            Dialect::Sqlite => "",
            Dialect::Postgres => " (temporary views need the right TEMPORARY on the database)",
        };
        let doing = || Error::database(format!("can't show position {position}{needs}"));
        // The views are temporary, but even temporary views cannot be created in a read-only transaction.
        self.connection.run("ROLLBACK").await.map_err(doing())?;
        let views = sql::create_temp_views(self.connection.dialect(), self.url.schema(), position);
        self.connection.run_all(&views).await.map_err(doing())?;
        begin_with_views(&mut self.connection, &self.url).await.map(drop)
    }

    /// Validates a query: one statement that returns rows.
    ///
    /// # Errors
    /// The database rejects the statement, or the statement would write.
    pub async fn question(&mut self, text: &str) -> Result<Query, Error> {
        self.connection.set_deadline(self.timeout).await.map_err(|error| self.query_error(error))?;
        let text = match self.connection.dialect() {
            Dialect::Sqlite => self.check_single(text).await?,
            // The server itself refuses to prepare several statements.
            Dialect::Postgres => text,
        };
        let columns = self.connection.columns(text).await.map_err(|error| self.query_error(error))?;
        if columns.is_empty() {
            return Err(Error::InvalidQuery(format!("the statement returns no rows: {QUERY_RULE}")));
        }
        Ok(Query { text: text.to_owned(), columns })
    }

    /// Runs a query and passes its rows to `take` one by one, until `take` fails.
    ///
    /// # Errors
    /// The database rejects the query, the query takes too long, or `take` fails.
    pub async fn for_each_row<E: From<Error>>(
        &mut self,
        question: &Query,
        mut take: impl FnMut(Vec<Value>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.connection.set_deadline(self.timeout).await.map_err(|error| self.query_error(error))?;
        let mut taken = Ok(());
        let answered = self.connection.for_each_row(&question.text, |row| {
            taken = take(row);
            taken.is_ok()
        });
        let answered = answered.await;
        taken?;
        answered.map_err(|error| self.query_error(error).into())
    }

    /// Runs a query and collects its result. The query is one statement that returns rows, and its result is
    /// limited to [`MAX_ROWS`] and [`MAX_BYTES`].
    ///
    /// # Errors
    /// The database rejects the statement, the statement would write, it takes too long, or the result is
    /// larger.
    pub async fn ask(&mut self, question: &str) -> Result<QueryResult, Error> {
        let question = self.question(question).await?;
        let (mut rows, mut bytes) = (vec![], 0);
        self.for_each_row(&question, |row| {
            bytes += row.iter().map(value_bytes).sum::<usize>();
            rows.push(row);
            check_size(rows.len(), bytes)
        })
        .await?;
        Ok(QueryResult { columns: question.columns, rows })
    }

    /// For a database file, returns the first statement of a query, without trailing comments and semicolons.
    ///
    /// The library runs every statement in a text. This function therefore first prepares the text as a
    /// subquery in `SQLite`. Only a statement that returns rows is valid as a subquery; COMMIT, ATTACH or
    /// VACUUM are not. Two statements are never valid, because the first one would end inside an open
    /// parenthesis.
    async fn check_single<'a>(&mut self, text: &'a str) -> Result<&'a str, Error> {
        let text = first_statement(text);
        let part = format!("SELECT EXISTS ({}\n)", strip_explain(text));
        match self.connection.columns(&part).await.map_err(|error| self.query_error(error)) {
            Ok(_) => Ok(text),
            Err(Error::InvalidQuery(said)) if said.contains("syntax error") || said == "incomplete input" => {
                Err(Error::InvalidQuery(format!("{said}: {QUERY_RULE}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Converts an error of the database to the reason that the query has no result.
    fn query_error(&self, error: sqlx::Error) -> Error {
        if Connection::is_timeout(&error) {
            return Error::InvalidQuery(format!(
                "the query took longer than {:?}: narrow it, or set a longer --timeout",
                self.timeout
            ));
        }
        Error::query(error)
    }
}

fn check_size(rows: usize, bytes: usize) -> Result<(), Error> {
    if rows <= MAX_ROWS && bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(Error::InvalidQuery(format!(
        "the result has more than {MAX_ROWS} rows or {} MiB: add a LIMIT, or use -o csv or -o jsonl, \
         which have no limit",
        MAX_BYTES >> 20
    )))
}

/// Returns the counted size of a value, in bytes.
fn value_bytes(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(value_bytes).sum(),
            Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + value_bytes(value)).sum(),
        }
}

/// Returns the first statement of a text. If more than comments and semicolons follow this statement, returns
/// the whole text.
fn first_statement(text: &str) -> &str {
    let end = end_of_first(text);
    let mut rest = &text[end..];
    loop {
        let behind = skip_spaces(rest).trim_start_matches(';');
        if behind.len() == rest.len() {
            return if rest.is_empty() { &text[..end] } else { text };
        }
        rest = behind;
    }
}

/// Returns the offset of the first semicolon outside literals, names and comments, or the length of the text.
fn end_of_first(text: &str) -> usize {
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let close = match next {
            ';' => break,
            '\'' | '"' | '`' => Some(next),
            '[' => Some(']'),
            _ => None,
        };
        let commented = skip_spaces(rest);
        rest = match close {
            Some(close) => rest[1..].split_once(close).map_or("", |(_, behind)| behind),
            None if commented.len() < rest.len() => commented,
            None => &rest[next.len_utf8()..],
        };
    }
    text.len() - rest.len()
}

/// Removes spaces and comments from the start of a text.
fn skip_spaces(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let behind = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n').map_or("", |(_, behind)| behind)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, behind)| behind)
        } else {
            return rest;
        };
        rest = behind.trim_start();
    }
}

/// Removes a leading EXPLAIN or EXPLAIN QUERY PLAN from a query.
fn strip_explain(question: &str) -> &str {
    let Some(rest) = strip_word(question, "EXPLAIN") else { return question };
    strip_word(rest, "QUERY").and_then(|rest| strip_word(rest, "PLAN")).unwrap_or(rest)
}

/// Returns the text after a word, or `None` if the text does not start with that word.
fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (begin, rest) = skip_spaces(text).split_at_checked(word.len())?;
    let ends = !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    (begin.eq_ignore_ascii_case(word) && ends).then_some(rest)
}

/// Starts a read transaction and returns the state of the live tables. The transaction has returned a result,
/// so `PostgreSQL` rejects a change to a writing transaction.
pub(crate) async fn begin(connection: &mut Connection, url: &Url) -> Result<Generation, Error> {
    let doing = || Error::database(format!("can't read the database {url}"));
    connection.begin_reading().await.map_err(doing())?;
    live(connection, url).await
}

/// Starts a read transaction. The views show the same tables until its end.
async fn begin_with_views(connection: &mut Connection, url: &Url) -> Result<Generation, Error> {
    let doing = || Error::database(format!("can't read the database {url}"));
    connection.begin_with_views(url.schema()).await.map_err(doing())?;
    live(connection, url).await
}

async fn live(connection: &mut Connection, url: &Url) -> Result<Generation, Error> {
    let all = read_generations(connection, url).await?.unwrap_or_default();
    all.into_iter().find(|one| one.live).ok_or_else(|| Error::Empty(url.clone()))
}
