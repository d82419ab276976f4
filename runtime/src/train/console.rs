//! Text for the terminal: lines on stderr, counts and large numbers.

use std::io::Write;

pub use crate::os::{counted, counted_with_commas, with_commas};

/// Prints a line to stderr. A closed or full stderr does not stop a run: errors are ignored.
pub fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
