//! Writing rows into a file of `SQLite`.

use projections::tables::{Batch, Interval, SetAside, Table, Value, sql, time};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{AssertSqlSafe, Sqlite};

/// Rows that one statement writes.
const AT_ONCE: usize = 64;

/// Writes what a batch does to the rows of a generation.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    generation: i64,
    batch: &Batch,
) -> Result<(), sqlx::Error> {
    for table in Table::ALL {
        let ends: Vec<Vec<Value>> = batch.end_values(table).collect();
        in_chunks(connection, &ends, |rows| sql::end(table, generation, rows)).await?;
        let intervals: Vec<Vec<Value>> = batch.intervals(table).map(Interval::values).collect();
        let (name, columns) = (sql::history(table, generation), sql::history_columns(table).len());
        in_chunks(connection, &intervals, |rows| sql::insert(&name, columns, rows)).await?;
    }
    let events: Vec<Vec<Value>> = batch.events.iter().map(|event| event.values.clone()).collect();
    let (name, columns) = (sql::events_table(generation), projections::tables::events::shapes().len());
    in_chunks(connection, &events, |rows| sql::insert(&name, columns, rows)).await?;
    let aside: Vec<Vec<Value>> = batch.set_aside.iter().map(SetAside::values).collect();
    let (name, columns) = (sql::set_aside_table(generation), sql::SET_ASIDE.len());
    in_chunks(connection, &aside, |rows| sql::insert(&name, columns, rows)).await
}

/// Runs a statement for so many rows that the same few are prepared once: full chunks, and row by row what is left.
async fn in_chunks(
    connection: &mut SqliteConnection,
    rows: &[Vec<Value>],
    statement: impl Fn(usize) -> String,
) -> Result<(), sqlx::Error> {
    let (full, rest) = rows.split_at(rows.len() - rows.len() % AT_ONCE);
    for (chunks, size) in [(full.chunks(AT_ONCE), AT_ONCE), (rest.chunks(1), 1)] {
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
