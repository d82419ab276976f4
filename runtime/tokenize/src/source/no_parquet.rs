//! Replacement of `parquet.rs` in a program that is built without the feature `parquet`.

use std::path::Path;

use meshwright_store::data::DataInput;

use super::{Consumed, Record, Records, TokenizeError, problem};

/// Uninhabited replacement of the reader of Parquet files.
pub enum ParquetColumn {}

impl ParquetColumn {
    pub fn open(
        _: DataInput,
        _: &str,
        path: &Path,
        _: &Consumed,
    ) -> Result<ParquetColumn, TokenizeError> {
        let fix = format!(
            "it is a Parquet file, which needs the feature `parquet`: build with cargo run --release --features \
             parquet .., or convert it to JSONL: python -c \"import pandas; \
             pandas.read_parquet('{}').to_json('out.jsonl', orient='records', lines=True)\"",
            path.display()
        );
        Err(problem(path, fix))
    }
}

impl Records for ParquetColumn {
    fn next_record(&mut self) -> Result<Option<Record>, TokenizeError> {
        match *self {}
    }

    fn name_of(&self, _: u64) -> String {
        match *self {}
    }
}
