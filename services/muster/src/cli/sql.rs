//! `muster sql`: questions to the tables, read only.

use projections::tables::time;
use projector::Url;
use projector::ask::{Answer, Reading};
use schemas::query::{AsOf, Moment};
use schemas::{Position, Timestamp};
use serde_json::{Map, Value};

use super::args::{Format, Global};
use super::connect::data_folder;
use super::failure::{Exit, Failure};
use super::moment;
use super::output::{Output, note, text_as_it_is};
use super::table::{Cell, Table};
use crate::error::chain;

pub(crate) async fn run(
    question: &str,
    database: Option<Url>,
    as_of: Option<AsOf>,
    global: &Global,
) -> Result<(), Failure> {
    let url = database_of(database, global)?;
    let (mut reading, standing) = Reading::open(&url).await?;
    let end = standing.end.position;
    let position = match as_of.map(moment::settled).transpose()? {
        None => None,
        Some(Moment::Position(position)) if position > end => {
            return Err(Failure::usage(format!(
                "position {position} is beyond {end}, where the tables stand"
            )));
        }
        Some(Moment::Position(position)) => Some(position),
        Some(Moment::Time(at)) => Some(position_of(&mut reading, at, end).await?),
    };
    if let Some(position) = position {
        reading.as_of(position).await?;
    }
    let answer = reading.ask(question).await?;
    let output = Output::new(global);
    if output.is_for_people() {
        note(&format!("at position {}", position.unwrap_or(end)));
    }
    show(&answer, output)
}

/// The database that is named, or that of a local cluster.
pub(super) fn database_of(named: Option<Url>, global: &Global) -> Result<Url, Failure> {
    named.map_or_else(|| usual(global), Ok)
}

/// The position before the first event that was decided later than a time.
async fn position_of(reading: &mut Reading, at: Timestamp, end: Position) -> Result<Position, Failure> {
    let text = time(at);
    let asked = reading.ask(&format!("SELECT min(position) FROM events WHERE at > '{text}'")).await?;
    let first = asked.rows.first().and_then(|row| row.first()).and_then(Value::as_u64);
    match first {
        None => Ok(end),
        Some(first) if first <= 1 => Err(Failure::usage(format!(
            "{text} is before the first event of the tables: nothing was there yet"
        ))),
        Some(first) => Ok(Position(first - 1)),
    }
}

/// The database of a local cluster.
fn usual(global: &Global) -> Result<Url, Failure> {
    let folder = data_folder(global).ok_or_else(|| {
        Failure::usage("no database is named: give --database sqlite:FILE or postgres://USER@HOST/DATABASE, or set MUSTER_DATABASE")
    })?;
    let file = folder.join(projector::FILE);
    if file.exists() {
        return Ok(Url::Sqlite(file));
    }
    let why = format!("there is no database {}", file.display());
    let failure = Failure::new(Exit::Unreachable, "Unreachable", why);
    Err(failure
        .advise("start a cluster here: muster dev")
        .advise("or name a database: --database sqlite:FILE or --database postgres://USER@HOST/DATABASE"))
}

fn show(answer: &Answer, output: Output) -> Result<(), Failure> {
    match output.format {
        Format::Csv => text_as_it_is(&csv(answer)?),
        Format::Table | Format::Json | Format::Jsonl => output.rows(&objects(answer), |_, _| table(answer)),
    }
}

/// Each row as an object.
fn objects(answer: &Answer) -> Vec<Map<String, Value>> {
    let object = |row: &Vec<Value>| answer.columns.iter().cloned().zip(row.iter().cloned()).collect();
    answer.rows.iter().map(object).collect()
}

fn table(answer: &Answer) -> Table {
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

/// Nothing is an empty field.
fn csv(answer: &Answer) -> Result<String, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::new(Exit::Failed, "Output", chain(error));
    let mut writer = csv::Writer::from_writer(vec![]);
    writer.write_record(&answer.columns).map_err(|error| failed(&error))?;
    for row in &answer.rows {
        let fields = row.iter().map(|value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
        });
        writer.write_record(fields).map_err(|error| failed(&error))?;
    }
    let bytes = writer.into_inner().map_err(|error| failed(error.error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_shown_in_every_format() {
        let columns = ["name", "n", "note"].map(str::to_owned).to_vec();
        let rows =
            vec![vec![json!("web"), json!(3), Value::Null], vec![json!("a,b"), json!(12), json!("x\"y")]];
        let answer = Answer { columns, rows };
        assert_eq!(table(&answer).render(false), "name    n   note\nweb     3   -\na,b    12   x\"y");
        assert_eq!(csv(&answer).unwrap(), "name,n,note\nweb,3,\n\"a,b\",12,\"x\"\"y\"\n");
        assert_eq!(json!(objects(&answer))[1], json!({"name": "a,b", "n": 12, "note": "x\"y"}));
    }
}
