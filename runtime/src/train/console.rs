//! Text for the terminal: lines on stderr, counts and large numbers.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

pub use crate::os::{counted, counted_with_commas, with_commas};

/// Prints a warning about the files of a model, unless this process has printed it: a search opens them often.
pub fn warn_once(warning: &str) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if printed.insert(warning.to_owned()) {
        print_line(&format!("warning: {warning}"));
    }
}

/// Prints a line to stderr. A closed or full stderr does not stop a run: errors are ignored.
pub fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
