//! Sources of examples on disk: JSONL files, folders of the library `datasets`, and images in folders of classes.

#[cfg_attr(not(feature = "arrow"), path = "no_arrow.rs")]
mod arrow;
#[cfg(feature = "arrow")]
mod arrow_row;
#[cfg(all(test, feature = "arrow"))]
mod arrow_tests;
mod file_bytes;
mod image_folder;
mod joined;
mod json_field;
mod json_lines;
mod open;
#[cfg(test)]
mod open_tests;
mod saved_dataset;

pub use file_bytes::file_bytes;
pub use open::open_examples;

use arrow::open_arrow;
use image_folder::{ImageFolder, Listed};
use joined::Joined;
use json_lines::JsonObjects;
use saved_dataset::data_files;
