//! A trace as a Parquet file, for tools that read such (feature `parquet`).
//!
//! | column | type | what |
//! |---|---|---|
//! | `file` | `BYTE_ARRAY`, a string where all paths of the trace are UTF-8 | path |
//! | `period` | `INT64` | number of the period from the first one on, as in the CSV table |
//! | `start` | `INT64`, timestamp in ms, UTC | when the period begins |
//! | `count`, `writes`, `metadata` | `INT64` | requests, how many of them wrote data, how many concerned metadata alone |
//! | `bytes`, `bytes_written` | `INT64` | bytes sent, bytes taken |
//!
//! There is a row for each file and period with requests, in the order of periods and then of files as they were first
//! seen. Values are encoded by dictionary where it is smaller, and not compressed.

use crate::trace_file::{TraceFileError, TraceIndex};
use ::parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::Type;
use std::collections::HashMap;
use std::io::{Read, Seek, Write};
use std::sync::Arc;

/// Rows of a row group, which are kept in memory until it is written (about 50 bytes each, and the paths of its files).
const GROUP_ROWS: usize = 262_144;

/// Why a trace cannot be written as Parquet.
#[derive(Debug, thiserror::Error)]
pub enum ParquetExportError {
    /// The trace cannot be read.
    #[error(transparent)]
    Read(#[from] TraceFileError),
    /// The file cannot be written.
    #[error("the Parquet file cannot be written: {0}")]
    Write(#[from] ParquetError),
}

/// Writes all counts of a trace; how many rows.
///
/// # Errors
/// [`ParquetExportError`].
pub fn write<R: Read + Seek, W: Write + Send>(
    index: &TraceIndex,
    trace: R,
    out: W,
) -> Result<usize, ParquetExportError> {
    let mut writer =
        SerializedFileWriter::new(out, Arc::new(schema(index)?), Arc::new(WriterProperties::default()))?;
    let first = index.span().map_or(0, |(first, _)| first);
    let mut periods = index.counts(trace);
    let mut group = Group::default();
    let mut rows = 0;
    while let Some((period, counts)) = periods.next_period()? {
        let start_ms = index.head().period_start_s(period).saturating_mul(1_000);
        for count in counts {
            let path = group.paths.entry(count.file);
            group.file.push(path.or_insert_with(|| index.path(count.file).to_vec().into()).clone());
            group.period.push(period.saturating_sub(first));
            group.start.push(start_ms);
            group.count.push(signed(count.requests));
            group.writes.push(signed(count.writes));
            group.metadata.push(signed(count.metadata));
            group.bytes.push(signed(count.bytes_read));
            group.bytes_written.push(signed(count.bytes_written));
            rows += 1;
            if group.file.len() >= GROUP_ROWS {
                group.write(&mut writer)?;
            }
        }
    }
    group.write(&mut writer)?;
    writer.close()?;
    Ok(rows)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn schema(index: &TraceIndex) -> Result<Type, ParquetError> {
    let column = |name: &str, physical, logical: Option<LogicalType>| {
        let column = Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
        Ok::<_, ParquetError>(Arc::new(column.with_logical_type(logical).build()?))
    };
    let is_text = (0..).take(index.files()).all(|file| std::str::from_utf8(index.path(file)).is_ok());
    let moment = LogicalType::timestamp(true, TimeUnit::MILLIS);
    let columns = vec![
        column("file", Physical::BYTE_ARRAY, is_text.then_some(LogicalType::String))?,
        column("period", Physical::INT64, None)?,
        column("start", Physical::INT64, Some(moment))?,
        column("count", Physical::INT64, None)?,
        column("writes", Physical::INT64, None)?,
        column("metadata", Physical::INT64, None)?,
        column("bytes", Physical::INT64, None)?,
        column("bytes_written", Physical::INT64, None)?,
    ];
    Type::group_type_builder("trace").with_fields(columns).build()
}

/// Rows that wait for being written, by column.
#[derive(Default)]
struct Group {
    file: Vec<ByteArray>,
    period: Vec<i64>,
    start: Vec<i64>,
    count: Vec<i64>,
    writes: Vec<i64>,
    metadata: Vec<i64>,
    bytes: Vec<i64>,
    bytes_written: Vec<i64>,
    /// Paths of the files in it.
    paths: HashMap<u32, ByteArray>,
}

impl Group {
    fn write<W: Write + Send>(&mut self, writer: &mut SerializedFileWriter<W>) -> Result<(), ParquetError> {
        if self.file.is_empty() {
            return Ok(());
        }
        let mut rows = writer.next_row_group()?;
        column::<ByteArrayType, W>(&mut rows, &mut self.file)?;
        for values in [
            &mut self.period,
            &mut self.start,
            &mut self.count,
            &mut self.writes,
            &mut self.metadata,
            &mut self.bytes,
            &mut self.bytes_written,
        ] {
            column::<Int64Type, W>(&mut rows, values)?;
        }
        rows.close()?;
        self.paths.clear();
        Ok(())
    }
}

/// Writes the next column of a row group.
fn column<T: DataType, W: Write + Send>(
    rows: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<T::T>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the schema has fewer columns than there are values".into());
    let mut column = rows.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, None, None)?;
    values.clear();
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace_file::{FileCount, Head, Span, TraceWriter};
    use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
    use ::parquet::record::RowAccessor as _;
    use std::fs::File;
    use std::io::Cursor;

    fn exported(paths: &[&[u8]], counts: &[(i64, Vec<FileCount>)]) -> SerializedFileReader<File> {
        let head = Head { name: "site".into(), about: String::new(), period_s: 60, origin_s: 7 };
        let mut writer = TraceWriter::new(Vec::new(), &head).unwrap();
        writer.name_files(paths.iter().copied()).unwrap();
        for (period, counts) in counts {
            writer.counts(*period, counts).unwrap();
        }
        writer.span(Span { first: -1, periods: 9, silent_is_zero: false }).unwrap();
        let trace = writer.finish().unwrap();
        let out = tempfile::tempfile().unwrap();
        let index = TraceIndex::read(&trace[..]).unwrap();
        let rows = write(&index, Cursor::new(&trace), &out).unwrap();
        let reader = SerializedFileReader::new(out).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), i64::try_from(rows).unwrap());
        reader
    }

    #[test]
    fn a_trace_comes_back_row_by_row() {
        let count = |file, requests| FileCount {
            file,
            requests,
            writes: 1,
            bytes_read: u64::MAX,
            ..FileCount::default()
        };
        let reader =
            exported(&[b"/a", b"/\xc3\xa9"], &[(3, vec![count(1, 5)]), (-1, vec![count(0, 1), count(1, 2)])]);
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let read = rows.iter().map(|row| {
            let long = |column| row.get_long(column).unwrap();
            let moment = row.get_timestamp_millis(2).unwrap();
            (row.get_string(0).unwrap().as_str(), long(1), moment, [long(3), long(4), long(6)])
        });
        let wanted = [
            ("/a", 0, -53_000, [1, 1, i64::MAX]),
            ("/é", 0, -53_000, [2, 1, i64::MAX]),
            ("/é", 4, 187_000, [5, 1, i64::MAX]),
        ];
        assert_eq!(read.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn paths_that_are_no_text_are_bytes_and_many_rows_are_many_groups() {
        let count = |file| FileCount { file, requests: 1, ..FileCount::default() };
        let names: Vec<Vec<u8>> =
            (0..GROUP_ROWS / 2 + 1).map(|file| format!("/\u{ff}{file}").into_bytes()).collect();
        let mut paths: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        paths[0] = b"/\xff";
        let all: Vec<FileCount> = (0..).take(paths.len()).map(count).collect();
        let reader = exported(&paths, &[(0, all.clone()), (1, all)]);
        assert_eq!(reader.metadata().num_row_groups(), 2);
        let first = reader.get_row_iter(None).unwrap().next().unwrap().unwrap();
        assert_eq!(first.get_bytes(0).unwrap().data(), b"/\xff");
    }

    #[test]
    fn a_trace_without_counts_has_no_rows() {
        assert_eq!(exported(&[], &[]).get_row_iter(None).unwrap().count(), 0);
    }
}
