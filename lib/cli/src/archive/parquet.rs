//! Events as columns of an Apache Parquet file, for programs that analyse many events.
//!
//! The file has the columns of the table `events`, from the same definition. The metadata entry
//! `muster.manifest` contains a manifest, which is the same as in an export of the same range as lines. With
//! the manifest, the file can be compared with its log.

use std::sync::Arc;

use audit::export::Manifest;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use projections::tables::{ColumnSpec, EventRow, Kind, Value, events, micros};

/// Maximum number of events in a row group.
const GROUP_ROWS: usize = 65_536;
/// Approximate maximum number of text bytes in a row group.
const GROUP_BYTES: usize = 64 * 1024 * 1024;
/// Metadata key of the manifest.
pub(crate) const MANIFEST: &str = "muster.manifest";

/// Writer of a Parquet file. The writer buffers one row group.
pub(crate) struct ParquetWriter {
    writer: SerializedFileWriter<Vec<u8>>,
    shapes: Vec<ColumnSpec>,
    rows: Vec<EventRow>,
    bytes: usize,
}

impl ParquetWriter {
    /// Starts a file.
    ///
    /// # Errors
    /// The columns do not form a valid schema.
    pub(crate) fn start() -> Result<Self, ParquetError> {
        let shapes = events::column_specs();
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = SerializedFileWriter::new(vec![], schema(&shapes)?, Arc::new(properties))?;
        Ok(Self { writer, shapes, rows: vec![], bytes: 0 })
    }

    /// Adds an event. Returns the completed bytes of the file, if any.
    ///
    /// # Errors
    /// The rows cannot be written as columns.
    pub(crate) fn add(&mut self, row: EventRow) -> Result<Vec<u8>, ParquetError> {
        self.bytes += row.values.iter().map(approximate_size).sum::<usize>();
        self.rows.push(row);
        if self.rows.len() < GROUP_ROWS && self.bytes < GROUP_BYTES {
            return Ok(vec![]);
        }
        self.write_group()?;
        self.writer.flush()?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    /// Ends the file, and returns the remaining bytes.
    ///
    /// # Errors
    /// The rows cannot be written as columns.
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

/// Writes one column of a row group.
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

fn schema(shapes: &[ColumnSpec]) -> Result<TypePtr, ParquetError> {
    let column = |shape: &ColumnSpec| {
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

/// Returns the approximate size of a value in bytes.
fn approximate_size(value: &Value) -> usize {
    value.as_text().map_or(8, str::len)
}
