//! Training data: token files, text, and which tokens each step trains on. Batches are pure functions of (seed, order,
//! step, index in the global batch), never of a rank or of earlier reads. So every mesh trains on the same samples, and
//! a resumed run continues exactly where it stopped. Ranks read ahead while they compute ([`Prefetch`]), and compare
//! their batches in the first step ([`check_batches`]).

mod batch;
mod byte_source;
mod check;
mod corpus;
mod dataset;
mod dataset_sizes;
mod dataset_streams;
#[cfg(test)]
mod dataset_tests;
mod distant_input;
mod distant_rows;
mod documents;
mod error;
#[cfg(test)]
mod evaluation_tests;
mod example;
mod examples;
mod fetch_ahead;
mod fingerprint;
mod format;
mod ids;
mod images;
mod input;
mod interruption;
pub(crate) mod lfs;
mod mixture;
#[cfg_attr(not(feature = "remote"), path = "no_objects.rs")]
mod objects;
mod packing;
mod permutation;
mod place;
mod position;
mod prefetch;
mod preprocessing_file;
mod row_source;
mod sampler;
mod source;
mod source_record;
#[cfg(test)]
mod source_tests;
mod streams;
mod task_rows;
mod token_layout;
mod tokenizer_record;
mod tokens;
mod tokens_record;

pub use batch::{Batch, MicroBatch, micro_batch_rows, rows_of_rank};
pub use check::{BatchHash, RankBatch, check_batches};
pub use corpus::read_corpus;
pub use dataset::Dataset;
pub use dataset_sizes::SourceSize;
pub use documents::DocumentOptions;
pub use error::{DataError, FileProblem};
pub use example::{Example, ExampleSource, Field};
pub use examples::{file_bytes, open_examples};
pub use format::DataFormat;
pub use ids::{Encoding, Ids};
pub use images::{ImagePreprocessing, Resampling, RgbImage, TrainingView};
pub use input::DataInput;
pub use mixture::{MixedRow, Mixture};
#[cfg(feature = "remote")]
pub use objects::use_data_cache;
pub use objects::{is_object, list_objects};
pub use packing::{Packing, PackingWaste};
pub use permutation::Permutation;
pub use place::is_remote;
pub use position::DataPosition;
pub use prefetch::Prefetch;
pub use preprocessing_file::read_preprocessing;
pub use row_source::{MadeRows, RowSource};
pub use sampler::{Order, SamplePosition, Sampler};
pub use source::{DataSource, Made};
pub use source_record::{FileRecord, SourceRecord};
pub use streams::{RowStreams, RowWriter, StreamData, StreamRows};
pub use task_rows::{MakeRow, TaskRows};
pub use tokenizer_record::TokenizerRecord;
pub use tokens::TokenFile;
pub use tokens_record::TokensRecord;

pub(crate) use lfs::{IS_LFS_POINTER, is_lfs_pointer};
