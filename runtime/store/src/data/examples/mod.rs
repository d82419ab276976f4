//! Sources of examples on disk: JSONL files.

mod joined;
mod json_field;
mod json_lines;
mod open;
#[cfg(test)]
mod open_tests;

use json_lines::JsonLines;
pub use open::open_examples;

use joined::Joined;
