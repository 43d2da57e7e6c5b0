//! `muster sql`: read-only queries on the tables.

use clap::Args;
use cli_base::connect::data_folder;
use cli_base::failure::Failure;
use cli_base::moment;
use cli_base::options::{Format, Global};
use cli_base::output::{Output, note};
use cli_base::table::{Cell, Table};
use projections::tables::time;
use projector::Url;
use projector::ask::{DEFAULT_TIMEOUT, Query, QueryResult, QuerySession};
use runtime::exit::Exit;
use schemas::query::{AsOf, Moment};
use schemas::{Position, Timestamp};
use serde_json::{Map, Value};
use text::chain;

use super::projection::DatabaseOption;

/// Minimum number of bytes per write. The last write may be smaller.
const BUFFER_LEN: usize = 64 << 10;

/// Arguments of `muster sql`.
#[derive(Clone, Debug, Args)]
pub struct SqlArgs {
    /// SQL query, such as "SELECT count(*) FROM events"
    question: String,
    #[command(flatten)]
    of: DatabaseOption,
    /// Show the state at a past moment: a position of the log, a time (UTC, or local as "2026-10-02 14:00"),
    /// or a time ago such as -10m
    #[arg(id = "log_as_of", long = "as-of", value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
    as_of: Option<AsOf>,
}

pub(crate) async fn run(args: SqlArgs, global: &Global) -> Result<(), Failure> {
    let SqlArgs { question, of, as_of } = args;
    let url = database_of(of.database, global)?;
    let patience = global.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let (mut reading, standing) = QuerySession::open_with_timeout(&url, patience).await?;
    let end = standing.end.position;
    let position = match as_of.map(moment::resolve).transpose()? {
        None => None,
        Some(Moment::Position(position)) if position > end => {
            return Err(Failure::usage(format!(
                "position {position} is beyond {end}, the end of the tables"
            )));
        }
        Some(Moment::Position(position)) => Some(position),
        Some(Moment::Time(at)) => Some(position_of(&mut reading, at, end).await?),
    };
    if let Some(position) = position {
        reading.as_of(position).await?;
    }
    let output = Output::new(global);
    match output.format {
        Format::Csv => stream(&mut reading, &question, output, csv_header, csv_line).await,
        Format::Jsonl => stream(&mut reading, &question, output, |_| Ok(vec![]), json_line).await,
        Format::Table | Format::Json | Format::Toml => {
            let answer = reading.ask(&question).await?;
            if output.is_human_readable() {
                note(&format!("at position {}", position.unwrap_or(end)));
            }
            output.write_rows(&objects(&answer), |_, _| table(&answer))
        }
    }
}

/// Writes a result row by row, so that memory does not limit the size of the result.
async fn stream(
    reading: &mut QuerySession,
    question: &str,
    output: Output,
    header: impl FnOnce(&Query) -> Result<Vec<u8>, Failure>,
    line: impl Fn(&Query, Vec<Value>) -> Result<Vec<u8>, Failure>,
) -> Result<(), Failure> {
    let question = reading.question(question).await?;
    let mut bytes = header(&question)?;
    let answered = reading.for_each_row(&question, |row| -> Result<(), Failure> {
        bytes.extend(line(&question, row)?);
        if bytes.len() < BUFFER_LEN {
            return Ok(());
        }
        output.write_program_bytes(&std::mem::take(&mut bytes))
    });
    // Rows that arrived before an error are written as well.
    let answered = answered.await;
    output.write_program_bytes(&bytes).and(answered)
}

/// Returns the selected database, or the database of a local cluster.
pub(super) fn database_of(named: Option<Url>, global: &Global) -> Result<Url, Failure> {
    named.map_or_else(|| default_database(global), Ok)
}

/// Returns the position before the first event with a decision time after `at`.
async fn position_of(reading: &mut QuerySession, at: Timestamp, end: Position) -> Result<Position, Failure> {
    let text = time(at);
    let asked = reading.ask(&format!("SELECT min(position) FROM events WHERE at > '{text}'")).await?;
    let first = asked.rows.first().and_then(|row| row.first()).and_then(Value::as_u64);
    match first {
        None => Ok(end),
        Some(first) if first <= 1 => {
            Err(Failure::usage(format!("{text} is before the first event of the tables")))
        }
        Some(first) => Ok(Position(first - 1)),
    }
}

/// Returns the database of a local cluster.
fn default_database(global: &Global) -> Result<Url, Failure> {
    let folder = data_folder(global).ok_or_else(|| {
        Failure::usage(
            "no database: pass --database sqlite:FILE or postgres://USER@HOST/DATABASE, or set MUSTER_DATABASE",
        )
    })?;
    let file = folder.join(projector::FILE_NAME);
    if file.exists() {
        return Ok(Url::Sqlite(file));
    }
    let why = format!("database {} does not exist", file.display());
    let failure = Failure::new(Exit::Unreachable, "Unreachable", why);
    Err(failure
        .advise("start a local cluster: muster dev")
        .advise("or pass a database: --database sqlite:FILE or --database postgres://USER@HOST/DATABASE"))
}

/// Converts each row to an object.
fn objects(answer: &QueryResult) -> Vec<Map<String, Value>> {
    answer.rows.iter().map(|row| object(&answer.columns, row.clone())).collect()
}

fn object(columns: &[String], row: Vec<Value>) -> Map<String, Value> {
    columns.iter().cloned().zip(row).collect()
}

fn json_line(question: &Query, row: Vec<Value>) -> Result<Vec<u8>, Failure> {
    let mut bytes = serde_json::to_vec(&object(question.columns(), row)).map_err(|error| failed(&error))?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn table(answer: &QueryResult) -> Table {
    let mut table = Table::new(&answer.columns);
    for row in &answer.rows {
        table.row(row.iter().map(cell).collect());
    }
    table
}

fn cell(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::None,
        Value::Number(number) => Cell::number(number),
        Value::String(text) => Cell::state(text),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => Cell::text(value),
    }
}

fn csv_header(question: &Query) -> Result<Vec<u8>, Failure> {
    csv_record(question.columns())
}

fn csv_line(_: &Query, row: Vec<Value>) -> Result<Vec<u8>, Failure> {
    csv_record(&row.into_iter().map(csv_field).collect::<Vec<_>>())
}

/// Formats a value as a CSV field. Null is an empty field.
fn csv_field(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn csv_record(fields: &[String]) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::Writer::from_writer(vec![]);
    writer.write_record(fields).map_err(|error| failed(&error))?;
    writer.into_inner().map_err(|error| failed(error.error()))
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::new(Exit::Failed, "Output", chain(error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn result_is_formatted_in_every_output_format() {
        let columns = ["name", "n", "note"].map(str::to_owned).to_vec();
        let rows =
            vec![vec![json!("web"), json!(3), Value::Null], vec![json!("a,b"), json!(12), json!("x\"y")]];
        let answer = QueryResult { columns, rows };
        assert_eq!(table(&answer).render(false), "name    n   note\nweb     3   -\na,b    12   x\"y");
        let line = |row: &Vec<Value>| row.iter().cloned().map(csv_field).collect::<Vec<_>>();
        let lines = std::iter::once(answer.columns.clone()).chain(answer.rows.iter().map(line));
        let csv: Vec<u8> = lines.flat_map(|line| csv_record(&line).unwrap()).collect();
        assert_eq!(csv, b"name,n,note\nweb,3,\n\"a,b\",12,\"x\"\"y\"\n");
        assert_eq!(json!(objects(&answer))[1], json!({"name": "a,b", "n": 12, "note": "x\"y"}));
    }
}
