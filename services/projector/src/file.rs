//! Writer of rows to a file of `SQLite`.

use projections::tables::{Batch, Interval, QuarantinedMessage, Table, Value, sql, time};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{AssertSqlSafe, Sqlite};

/// Number of rows that one statement writes.
const ROWS_PER_STATEMENT: usize = 64;

/// Writes the changes of a batch to the tables of a generation.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    generation: i64,
    batch: &Batch,
) -> Result<(), sqlx::Error> {
    for table in Table::ALL {
        let ends: Vec<Vec<Value>> = batch.end_values(table).collect();
        in_chunks(connection, &ends, |rows| sql::end_rows(table, generation, rows)).await?;
        let intervals: Vec<Vec<Value>> = batch.intervals(table).map(Interval::values).collect();
        let (name, columns) = (sql::history_table(table, generation), sql::history_columns(table).len());
        in_chunks(connection, &intervals, |rows| sql::insert(&name, columns, rows)).await?;
    }
    let events: Vec<Vec<Value>> = batch.events.iter().map(|event| event.values.clone()).collect();
    let (name, columns) = (sql::events_table(generation), projections::tables::events::column_specs().len());
    in_chunks(connection, &events, |rows| sql::insert(&name, columns, rows)).await?;
    let aside: Vec<Vec<Value>> = batch.quarantined.iter().map(QuarantinedMessage::values).collect();
    let (name, columns) = (sql::quarantined_table(generation), sql::QUARANTINED_COLUMNS.len());
    in_chunks(connection, &aside, |rows| sql::insert(&name, columns, rows)).await
}

/// Runs a statement for all rows, in full chunks and then row by row. Only two statements therefore need to
/// be prepared.
async fn in_chunks(
    connection: &mut SqliteConnection,
    rows: &[Vec<Value>],
    statement: impl Fn(usize) -> String,
) -> Result<(), sqlx::Error> {
    let (full, rest) = rows.split_at(rows.len() - rows.len() % ROWS_PER_STATEMENT);
    for (chunks, size) in [(full.chunks(ROWS_PER_STATEMENT), ROWS_PER_STATEMENT), (rest.chunks(1), 1)] {
        for chunk in chunks {
            let mut query = sqlx::query(AssertSqlSafe(statement(size)));
            for value in chunk.iter().flatten() {
                query = bind(query, value);
            }
            query.execute(&mut *connection).await?;
        }
    }
    Ok(())
}

type Statement<'a> = Query<'a, Sqlite, SqliteArguments>;

fn bind<'a>(query: Statement<'a>, value: &Value) -> Statement<'a> {
    match value {
        Value::Null => query.bind(None::<String>),
        Value::Text(text) | Value::Json(text) => query.bind(text.clone()),
        Value::Integer(number) => query.bind(*number),
        Value::Boolean(flag) => query.bind(*flag),
        Value::Time(at) => query.bind(time(*at)),
    }
}
