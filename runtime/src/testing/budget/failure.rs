//! Messages of budgets that are exceeded.

use std::cmp::Reverse;

use crate::train::explain::{CollectiveRow, KernelRow, aligned, flops_text};

/// Most rows that a message lists.
const MAX_LISTED: usize = 5;

/// Panics if the first number is above the second one, its limit: with the begin of a message, both numbers, and a list
/// of what needs most.
#[track_caller]
pub fn check(
    [needed, limit]: [u64; 2],
    number: impl Fn(u64) -> String,
    begin: &str,
    largest: impl FnOnce() -> String,
) {
    if needed > limit {
        let [needed, limit, more] = [needed, limit, needed - limit].map(number);
        panic!(
            "{begin} {needed}: {more} above the limit of {limit}. The largest parts:\n{}",
            largest()
        );
    }
}

/// Lists the collectives and messages with most of a number: field, operation, number and line.
pub fn largest_collectives<'a>(
    rows: impl Iterator<Item = &'a CollectiveRow>,
    number_of: impl Fn(&CollectiveRow) -> u64,
    text: impl Fn(u64) -> String,
) -> String {
    let mut rows: Vec<_> = rows.map(|row| (number_of(row), row)).collect();
    rows.sort_by_key(|(number, _)| Reverse(*number));
    rows.truncate(MAX_LISTED);
    let cells = |(number, row): &(u64, &CollectiveRow)| {
        let (field, line) = (row.layers.to_string(), row.line().unwrap_or_default());
        [field, row.op.to_owned(), text(*number), line]
    };
    aligned(&rows.iter().map(cells).collect::<Vec<_>>(), 2..3)
}

/// Lists the layers and functions with most FLOPs.
pub fn largest_kernels(rows: &[KernelRow]) -> String {
    let flops_of = |row: &KernelRow| row.all_work().flops.iter().sum::<u64>();
    let mut rows: Vec<_> = rows.iter().map(|row| (flops_of(row), row)).collect();
    rows.sort_by_key(|(flops, _)| Reverse(*flops));
    rows.truncate(MAX_LISTED);
    let cells = |(flops, row): &(u64, &KernelRow)| {
        [row.layers_text(), row.function.to_owned(), flops_text(*flops as f64)]
    };
    aligned(&rows.iter().map(cells).collect::<Vec<_>>(), 2..3)
}
