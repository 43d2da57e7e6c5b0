//! Events as columns, for programs that analyse many of them: Apache Parquet.
//!
//! The columns are those of the table `events`, by the same definition. The file's metadata has, as `muster.manifest`, the
//! manifest of an export of the same range as lines: so a file of columns can be held against the log that it is of.

use std::sync::Arc;

use audit::export::Manifest;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use projections::tables::{EventRow, Kind, Shape, Value, events, micros};

/// Events that are written as one group of rows, at the most.
const GROUP_ROWS: usize = 65_536;
/// Bytes of text that are written as one group of rows, about.
const GROUP_BYTES: usize = 64 * 1024 * 1024;
/// Where the metadata has the manifest.
pub(crate) const MANIFEST: &str = "muster.manifest";

/// A file of columns that is being written. It holds one group of rows.
pub(crate) struct Columns {
    writer: SerializedFileWriter<Vec<u8>>,
    shapes: Vec<Shape>,
    rows: Vec<EventRow>,
    bytes: usize,
}

impl Columns {
    /// Begins a file.
    ///
    /// # Errors
    /// The columns make no schema.
    pub(crate) fn begin() -> Result<Self, ParquetError> {
        let shapes = events::shapes();
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = SerializedFileWriter::new(vec![], schema(&shapes)?, Arc::new(properties))?;
        Ok(Self { writer, shapes, rows: vec![], bytes: 0 })
    }

    /// Adds an event. Answers what of the file is done now.
    ///
    /// # Errors
    /// The rows can't be written as columns.
    pub(crate) fn add(&mut self, row: EventRow) -> Result<Vec<u8>, ParquetError> {
        self.bytes += row.values.iter().map(size).sum::<usize>();
        self.rows.push(row);
        if self.rows.len() < GROUP_ROWS && self.bytes < GROUP_BYTES {
            return Ok(vec![]);
        }
        self.write_group()?;
        self.writer.flush()?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    /// Ends the file. Answers the rest of it.
    ///
    /// # Errors
    /// The rows can't be written as columns.
    pub(crate) fn finish(mut self, manifest: &Manifest) -> Result<Vec<u8>, ParquetError> {
        if !self.rows.is_empty() {
            self.write_group()?;
        }
        let text =
            serde_json::to_string(manifest).map_err(|error| ParquetError::General(error.to_string()))?;
        self.writer.append_key_value_metadata(KeyValue::new(MANIFEST.to_owned(), text));
        self.writer.into_inner()
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for (nth, shape) in self.shapes.iter().enumerate() {
            if let Some(mut column) = group.next_column()? {
                write_column(&mut column, shape.kind, self.rows.iter().map(|row| &row.values[nth]))?;
                column.close()?;
            }
        }
        group.close()?;
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// Writes a column of a group.
fn write_column<'a>(
    column: &mut SerializedColumnWriter<'_>,
    kind: Kind,
    values: impl Iterator<Item = &'a Value> + Clone,
) -> Result<(), ParquetError> {
    match kind {
        Kind::Text | Kind::Json => {
            write::<ByteArrayType>(column, values, |value| value.as_text().map(ByteArray::from))
        }
        Kind::Integer | Kind::Time => write::<Int64Type>(column, values, |value| match value {
            Value::Integer(number) => Some(*number),
            Value::Time(at) => Some(micros(*at)),
            Value::Null | Value::Text(_) | Value::Boolean(_) | Value::Json(_) => None,
        }),
        Kind::Boolean => write::<BoolType>(column, values, |value| match value {
            Value::Boolean(flag) => Some(*flag),
            Value::Null | Value::Text(_) | Value::Integer(_) | Value::Time(_) | Value::Json(_) => None,
        }),
    }
}

fn write<'a, T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: impl Iterator<Item = &'a Value> + Clone,
    of: fn(&Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = values.clone().map(|value| i16::from(*value != Value::Null)).collect();
    let there: Vec<T::T> = values.filter_map(of).collect();
    column.typed::<T>().write_batch(&there, Some(&levels), None)?;
    Ok(())
}

fn schema(shapes: &[Shape]) -> Result<TypePtr, ParquetError> {
    let column = |shape: &Shape| {
        let (physical, logical) = match shape.kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Json => (Physical::BYTE_ARRAY, Some(LogicalType::Json)),
            Kind::Integer => (Physical::INT64, None),
            Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
            Kind::Boolean => (Physical::BOOLEAN, None),
        };
        let column = Type::primitive_type_builder(shape.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        column.build().map(Arc::new)
    };
    let fields = shapes.iter().map(column).collect::<Result<_, _>>()?;
    Type::group_type_builder("events").with_fields(fields).build().map(Arc::new)
}

/// About how much memory a value takes.
fn size(value: &Value) -> usize {
    value.as_text().map_or(8, str::len)
}
