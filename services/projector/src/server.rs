//! Writer of rows to `PostgreSQL`: many by COPY in CSV format, few by a statement.

use projections::tables::{
    Batch, ColumnSpec, Dialect, Interval, QuarantinedMessage, Table, Value, events, sql,
};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;

/// Minimum number of rows for which COPY is used. A COPY sends its data in two parts. The second part waits
/// for the server's delayed acknowledgement of the first, which takes 40 ms. That is long for few rows and
/// negligible for many.
const COPY_THRESHOLD: usize = 256;
/// Number of bytes that are sent at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Writes the changes of a batch to the tables of a generation.
pub(crate) async fn write(
    connection: &mut PgConnection,
    generation: i64,
    batch: &Batch,
) -> Result<(), sqlx::Error> {
    for table in Table::ALL {
        end_rows(connection, table, generation, batch).await?;
        let intervals = batch.intervals(table).map(Interval::values);
        add_rows(connection, &sql::history_table(table, generation), &sql::history_columns(table), intervals)
            .await?;
    }
    let happened = batch.events.iter().map(|event| event.values.clone());
    add_rows(connection, &sql::events_table(generation), &events::column_specs(), happened).await?;
    let aside = batch.quarantined.iter().map(QuarantinedMessage::values);
    add_rows(connection, &sql::quarantined_table(generation), &sql::QUARANTINED_COLUMNS, aside).await
}

/// Ends rows that existed before the batch.
async fn end_rows(
    connection: &mut PgConnection,
    table: Table,
    generation: i64,
    batch: &Batch,
) -> Result<(), sqlx::Error> {
    let rows: Vec<Vec<Value>> = batch.end_values(table).collect();
    if rows.is_empty() {
        return Ok(());
    }
    execute_with_arrays(connection, sql::end_all(table, generation), table.key_columns() + 2, rows).await
}

/// Adds rows, if there are any.
async fn add_rows(
    connection: &mut PgConnection,
    table: &str,
    columns: &[ColumnSpec],
    mut rows: impl Iterator<Item = Vec<Value>>,
) -> Result<(), sqlx::Error> {
    let first: Vec<Vec<Value>> = rows.by_ref().take(COPY_THRESHOLD).collect();
    match first.len() {
        0 => Ok(()),
        COPY_THRESHOLD => copy(connection, table, first.into_iter().chain(rows)).await,
        _ => execute_with_arrays(connection, sql::insert_all(table, columns), columns.len(), first).await,
    }
}

/// Runs a statement whose parameters are text arrays, one for each column.
async fn execute_with_arrays(
    connection: &mut PgConnection,
    statement: String,
    columns: usize,
    rows: Vec<Vec<Value>>,
) -> Result<(), sqlx::Error> {
    let mut columns = vec![Vec::with_capacity(rows.len()); columns];
    for row in rows {
        columns.iter_mut().zip(row).for_each(|(column, value)| column.push(as_text(value)));
    }
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for column in columns {
        query = query.bind(column);
    }
    query.execute(connection).await.map(drop)
}

fn as_text(value: Value) -> Option<String> {
    value.into_text().map(|text| Dialect::Postgres.storable(&text).into_owned())
}

async fn copy(
    connection: &mut PgConnection,
    table: &str,
    rows: impl Iterator<Item = Vec<Value>>,
) -> Result<(), sqlx::Error> {
    let mut taken = connection.copy_in_raw(&sql::copy(table)).await?;
    let mut lines = String::new();
    for row in rows {
        put_line(&mut lines, row);
        if lines.len() >= CHUNK_BYTES {
            taken.send(lines.as_bytes()).await?;
            lines.clear();
        }
    }
    taken.send(lines.as_bytes()).await?;
    taken.finish().await.map(drop)
}

/// Appends a row as a line of CSV. `PostgreSQL` reads an empty field as NULL, and a quoted empty field as an
/// empty text. The `csv` crate either quotes both or neither.
fn put_line(lines: &mut String, row: Vec<Value>) {
    for (nth, value) in row.into_iter().enumerate() {
        lines.push_str(if nth == 0 { "" } else { "," });
        if let Some(text) = as_text(value) {
            lines.extend(["\"", &text.replace('"', "\"\""), "\""]);
        }
    }
    lines.push('\n');
}

#[cfg(test)]
mod tests {
    use schemas::Timestamp;

    use super::*;

    #[test]
    fn null_and_empty_text_differ_in_a_line() {
        let mut lines = String::new();
        let text = |text: &str| Value::Text(text.to_owned());
        put_line(&mut lines, vec![Value::Null, text(""), text("NULL"), Value::Null]);
        put_line(
            &mut lines,
            vec![text("a\0é"), text("say \"b\",\n\\."), Value::Json("{\"a\":1}".to_owned())],
        );
        let at = Timestamp(946_684_800_000_001_999);
        put_line(&mut lines, vec![Value::Integer(-2), Value::Boolean(true), Value::Time(at)]);
        let expected = concat!(
            ",\"\",\"NULL\",\n",
            "\"a\u{fffd}é\",\"say \"\"b\"\",\n\\.\",\"{\"\"a\"\":1}\"\n",
            "\"-2\",\"true\",\"2000-01-01T00:00:00.000001Z\"\n",
        );
        assert_eq!(lines, expected);
    }
}
