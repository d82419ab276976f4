//! Text for the terminal: lines on stderr, counts and large numbers.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::launch::ProcessRank;
pub use crate::os::{counted, counted_with_commas, with_commas};

/// Prints a warning about the files of a model, unless this run has printed it: a search opens them often.
pub fn warn_once(warning: &str) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if printed.insert(warning.to_owned()) {
        print_shared(&format!("warning: {warning}"));
    }
}

/// Prints a line that all processes of a run have, in that of rank 0.
pub fn print_shared(line: &str) {
    static IS_FIRST: OnceLock<bool> = OnceLock::new();
    let is_first = || {
        let own = ProcessRank::from_environment().ok().flatten();
        own.is_none_or(|own| own.rank == 0)
    };
    if *IS_FIRST.get_or_init(is_first) {
        print_line(line);
    }
}

/// Prints a line to stderr. A closed or full stderr does not stop a run: errors are ignored.
pub fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
