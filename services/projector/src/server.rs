//! Writer of rows to `PostgreSQL`: many by COPY in its binary format, few by a statement.

use projections::tables::{
    Batch, ColumnSpec, Dialect, Interval, QuarantinedMessage, Table, Value, events, micros, sql,
};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;

/// Header of a COPY in binary format: a signature, flags, and the length of the header extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Trailer of a COPY: a row of -1 columns.
const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();
/// Length of a NULL value.
const NULL: [u8; 4] = (-1_i32).to_be_bytes();
/// Minimum number of rows for which COPY is used. A COPY sends its data in two parts. The second part waits
/// for the server's delayed acknowledgement of the first, which takes 40 ms. That is long for few rows and
/// negligible for many.
const COPY_THRESHOLD: usize = 256;
/// Number of bytes that are sent at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Start of PostgreSQL's time, 2000-01-01, in microseconds since 1970.
const EPOCH: i64 = 946_684_800_000_000;

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
    let mut bytes = HEADER.to_vec();
    for row in rows {
        put_row(&mut bytes, &row);
        if bytes.len() >= CHUNK_BYTES {
            taken.send(&*bytes).await?;
            bytes.clear();
        }
    }
    bytes.extend(TRAILER);
    taken.send(&*bytes).await?;
    taken.finish().await.map(drop)
}

fn put_row(bytes: &mut Vec<u8>, row: &[Value]) {
    let columns = i16::try_from(row.len()).expect("a table has few columns");
    bytes.extend(columns.to_be_bytes());
    for value in row {
        match value {
            Value::Null => bytes.extend(NULL),
            Value::Text(text) | Value::Json(text) => {
                put_value(bytes, Dialect::Postgres.storable(text).as_bytes());
            }
            Value::Integer(number) => put_value(bytes, &number.to_be_bytes()),
            Value::Boolean(flag) => put_value(bytes, &[u8::from(*flag)]),
            Value::Time(at) => put_value(bytes, &(micros(*at) - EPOCH).to_be_bytes()),
        }
    }
}

fn put_value(bytes: &mut Vec<u8>, value: &[u8]) {
    let length = i32::try_from(value.len()).expect("an entry is far below 2 GiB");
    bytes.extend(length.to_be_bytes());
    bytes.extend(value);
}

#[cfg(test)]
mod tests {
    use schemas::Timestamp;

    use super::*;

    #[test]
    fn row_is_encoded_in_copy_format() {
        let mut bytes = vec![];
        let at = Timestamp(946_684_800_000_001_999);
        let row = [
            Value::Null,
            Value::Text("a\0é".into()),
            Value::Integer(-2),
            Value::Boolean(true),
            Value::Time(at),
        ];
        put_row(&mut bytes, &row);
        let expected: Vec<u8> = [
            &[0, 5][..],
            &[0xff; 4],
            &[0, 0, 0, 6],
            "a\u{fffd}é".as_bytes(),
            &[0, 0, 0, 8],
            &(-2_i64).to_be_bytes(),
            &[0, 0, 0, 1, 1, 0, 0, 0, 8],
            &1_i64.to_be_bytes(),
        ]
        .concat();
        assert_eq!(bytes, expected);
    }
}
