//! Questions in SQL: read only, with their answers as plain data.

use projections::tables::sql;
use schemas::Position;
use serde_json::Value;

use crate::connection::Connection;
use crate::database::{Standing, standings};
use crate::{Error, Url};

/// A database that is only read, all of it at one moment.
#[derive(Debug)]
pub struct Reading {
    url: Url,
    connection: Connection,
}

/// The answer to a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The names of its columns.
    pub columns: Vec<String>,
    /// Its rows: a value for each column.
    pub rows: Vec<Vec<Value>>,
}

impl Reading {
    /// Opens a database to read it, and says where its tables stand.
    ///
    /// # Errors
    /// It isn't there, can't be opened, or holds no tables of Muster.
    pub async fn open(url: &Url) -> Result<(Self, Standing), Error> {
        let mut connection = Connection::reading(url).await?;
        let standing = begin(&mut connection, url).await?;
        Ok((Self { url: url.clone(), connection }, standing))
    }

    /// From now on tables show what held at a position.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn as_of(&mut self, position: Position) -> Result<(), Error> {
        let doing = || Error::database(format!("can't show position {position}"));
        // These views are the connection's own, and yet nothing can be made where nothing can be written.
        self.connection.run("ROLLBACK").await.map_err(doing())?;
        let views = sql::as_of(self.connection.dialect(), self.url.schema(), position);
        self.connection.run_all(&views).await.map_err(doing())?;
        begin(&mut self.connection, &self.url).await.map(drop)
    }

    /// Asks a question: one statement that answers rows.
    ///
    /// # Errors
    /// What the database says of it: it can't be read, or would write.
    pub async fn ask(&mut self, question: &str) -> Result<Answer, Error> {
        let columns = self.connection.columns(question).await.map_err(Error::refused)?;
        if columns.is_empty() && matches!(self.connection, Connection::Postgres(_)) {
            let why = "it answers no rows, and nothing is written here: ask with SELECT";
            return Err(Error::Question(why.to_owned()));
        }
        let rows = self.connection.rows(question).await.map_err(Error::refused)?;
        Ok(Answer { columns, rows })
    }
}

/// Begins to read at one moment, at which the live tables stand somewhere. From its first answer on a transaction of
/// `PostgreSQL` can't become one that writes.
pub(crate) async fn begin(connection: &mut Connection, url: &Url) -> Result<Standing, Error> {
    let doing = || Error::database(format!("can't read the database {url}"));
    connection.begin_reading().await.map_err(doing())?;
    let all = standings(connection, url).await?.unwrap_or_default();
    all.into_iter().find(|one| one.live).ok_or_else(|| Error::Empty(url.clone()))
}
