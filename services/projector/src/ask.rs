//! Questions in SQL: read only, with their answers as plain data.

use std::time::Duration;

use projections::tables::{Dialect, sql};
use schemas::Position;
use serde_json::Value;

use crate::connection::Connection;
use crate::database::{Standing, standings};
use crate::{Error, Url};

/// How long the answer to a question may take, unless somebody says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Rows of an answer that is held as a whole.
pub const ANSWER_ROWS: usize = 100_000;
/// Bytes of an answer that is held as a whole: of its texts, and 8 for each value.
pub const ANSWER_BYTES: usize = 64 << 20;
/// What a value takes beside its text.
const VALUE_BYTES: usize = 8;

/// What a question is.
const ASKED: &str =
    "one statement is asked that answers rows (SELECT, VALUES, WITH or EXPLAIN), and nothing is written here";

/// A database that is only read, all of it at one moment.
#[derive(Debug)]
pub struct Reading {
    url: Url,
    connection: Connection,
    patience: Duration,
}

/// A question that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    text: String,
    columns: Vec<String>,
}

/// The answer to a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The names of its columns.
    pub columns: Vec<String>,
    /// Its rows: a value for each column.
    pub rows: Vec<Vec<Value>>,
}

impl Question {
    /// The names of the columns that its answer has.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }
}

impl Reading {
    /// Opens a database to read it, and says where its tables stand.
    ///
    /// # Errors
    /// It isn't there, can't be opened, or holds no tables of Muster.
    pub async fn open(url: &Url) -> Result<(Self, Standing), Error> {
        Self::patient(url, PATIENCE).await
    }

    /// The same, where the answer to a question may take so long.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub async fn patient(url: &Url, patience: Duration) -> Result<(Self, Standing), Error> {
        let mut connection = Connection::reading(url).await?;
        let doing = || Error::database(format!("can't open the database {url}"));
        connection.limit(patience).await.map_err(doing())?;
        let standing = begin_holding(&mut connection, url).await?;
        Ok((Self { url: url.clone(), connection, patience }, standing))
    }

    /// From now on tables show what held at a position.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn as_of(&mut self, position: Position) -> Result<(), Error> {
        let needs = match self.url.dialect() {
            Dialect::Sqlite => "",
            Dialect::Postgres => ", for which views are made that need the right TEMPORARY on the database",
        };
        let doing = || Error::database(format!("can't show position {position}{needs}"));
        // These views are the connection's own, and yet nothing can be made where nothing can be written.
        self.connection.run("ROLLBACK").await.map_err(doing())?;
        let views = sql::as_of(self.connection.dialect(), self.url.schema(), position);
        self.connection.run_all(&views).await.map_err(doing())?;
        begin_holding(&mut self.connection, &self.url).await.map(drop)
    }

    /// Looks whether something is a question: one statement that answers rows.
    ///
    /// # Errors
    /// What the database says of it: it can't be read, or would write.
    pub async fn question(&mut self, text: &str) -> Result<Question, Error> {
        self.connection.limit_from_now(self.patience).await.map_err(|error| self.refused(error))?;
        let text = match self.connection.dialect() {
            Dialect::Sqlite => self.alone(text).await?,
            // It refuses by itself to prepare several.
            Dialect::Postgres => text,
        };
        let columns = self.connection.columns(text).await.map_err(|error| self.refused(error))?;
        if columns.is_empty() {
            return Err(Error::Question(format!("it answers no rows: {ASKED}")));
        }
        Ok(Question { text: text.to_owned(), columns })
    }

    /// Asks a question, and gives what is answered row by row, as long as it is taken.
    ///
    /// # Errors
    /// What the database says of it; it takes too long; a row isn't taken.
    pub async fn each<E: From<Error>>(
        &mut self,
        question: &Question,
        mut take: impl FnMut(Vec<Value>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.connection.limit_from_now(self.patience).await.map_err(|error| self.refused(error))?;
        let mut taken = Ok(());
        let answered = self.connection.answer(&question.text, |row| {
            taken = take(row);
            taken.is_ok()
        });
        let answered = answered.await;
        taken?;
        answered.map_err(|error| self.refused(error).into())
    }

    /// Asks a question: one statement that answers rows, at most [`ANSWER_ROWS`] and [`ANSWER_BYTES`].
    ///
    /// # Errors
    /// What the database says of it: it can't be read, or would write; it takes too long; the answer is larger.
    pub async fn ask(&mut self, question: &str) -> Result<Answer, Error> {
        let question = self.question(question).await?;
        let (mut rows, mut bytes) = (vec![], 0);
        self.each(&question, |row| {
            bytes += row.iter().map(weight).sum::<usize>();
            rows.push(row);
            check_size(rows.len(), bytes)
        })
        .await?;
        Ok(Answer { columns: question.columns, rows })
    }

    /// A question to a file, without what stands behind it. The library runs as many statements as it is given. So
    /// `SQLite` is shown it as a part of another question first: only one that answers rows can be that, and nothing
    /// like COMMIT, ATTACH or VACUUM; two are never, for the first would end where a parenthesis is open.
    async fn alone<'a>(&mut self, text: &'a str) -> Result<&'a str, Error> {
        let text = first(text);
        let part = format!("SELECT EXISTS ({}\n)", unexplained(text));
        match self.connection.columns(&part).await.map_err(|error| self.refused(error)) {
            Ok(_) => Ok(text),
            Err(Error::Question(said)) if said.contains("syntax error") || said == "incomplete input" => {
                Err(Error::Question(format!("{said}: {ASKED}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Why there is no answer.
    fn refused(&self, error: sqlx::Error) -> Error {
        if Connection::took_too_long(&error) {
            return Error::Question(format!(
                "its answer took longer than {:?}: ask for less, or give it longer with --timeout",
                self.patience
            ));
        }
        Error::refused(error)
    }
}

fn check_size(rows: usize, bytes: usize) -> Result<(), Error> {
    if rows <= ANSWER_ROWS && bytes <= ANSWER_BYTES {
        return Ok(());
    }
    Err(Error::Question(format!(
        "its answer has more than {ANSWER_ROWS} rows or {} MiB: ask for less, as with LIMIT, or with -o csv or -o jsonl, \
         which take any number",
        ANSWER_BYTES >> 20
    )))
}

/// Bytes that a value takes.
fn weight(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(weight).sum(),
            Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
        }
}

/// The first statement of a text, if nothing stands behind it but comments and semicolons; else the whole text.
fn first(text: &str) -> &str {
    let end = end_of_first(text);
    let mut rest = &text[end..];
    loop {
        let behind = unspaced(rest).trim_start_matches(';');
        if behind.len() == rest.len() {
            return if rest.is_empty() { &text[..end] } else { text };
        }
        rest = behind;
    }
}

/// Where the first semicolon stands that is in no text, name or comment.
fn end_of_first(text: &str) -> usize {
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let close = match next {
            ';' => break,
            '\'' | '"' | '`' => Some(next),
            '[' => Some(']'),
            _ => None,
        };
        let commented = unspaced(rest);
        rest = match close {
            Some(close) => rest[1..].split_once(close).map_or("", |(_, behind)| behind),
            None if commented.len() < rest.len() => commented,
            None => &rest[next.len_utf8()..],
        };
    }
    text.len() - rest.len()
}

/// What stands behind the spaces and comments that a text begins with.
fn unspaced(text: &str) -> &str {
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

/// What is explained, if it is asked how `SQLite` would answer; else the same question.
fn unexplained(question: &str) -> &str {
    let Some(rest) = behind_word(question, "EXPLAIN") else { return question };
    behind_word(rest, "QUERY").and_then(|rest| behind_word(rest, "PLAN")).unwrap_or(rest)
}

/// What stands behind a word, if a text begins with it.
fn behind_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (begin, rest) = unspaced(text).split_at_checked(word.len())?;
    let ends = !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    (begin.eq_ignore_ascii_case(word) && ends).then_some(rest)
}

/// Begins to read at one moment, at which the live tables stand somewhere. From its first answer on a transaction of
/// `PostgreSQL` can't become one that writes.
pub(crate) async fn begin(connection: &mut Connection, url: &Url) -> Result<Standing, Error> {
    let doing = || Error::database(format!("can't read the database {url}"));
    connection.begin_reading().await.map_err(doing())?;
    live(connection, url).await
}

/// The same, where what the views show stays what they show.
async fn begin_holding(connection: &mut Connection, url: &Url) -> Result<Standing, Error> {
    let doing = || Error::database(format!("can't read the database {url}"));
    connection.begin_holding(url.schema()).await.map_err(doing())?;
    live(connection, url).await
}

async fn live(connection: &mut Connection, url: &Url) -> Result<Standing, Error> {
    let all = standings(connection, url).await?.unwrap_or_default();
    all.into_iter().find(|one| one.live).ok_or_else(|| Error::Empty(url.clone()))
}
