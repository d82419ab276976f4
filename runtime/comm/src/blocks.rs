//! Partition of a gathered tensor into the members' parts.

use std::ops::Range;
use std::sync::Arc;

/// A tensor seen as `[outer][sum(lens)]`. Member `r` owns a run of `lens[r]` elements in every row.
///
/// So a gather along a middle dim of a tensor needs no packing: `outer` is the product of the dims before it, and
/// `lens[r]` the member's part of the dim times the product of the dims after it. Runs may differ in length and may be
/// empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    /// Number of rows.
    pub outer: usize,
    /// Elements of each member in one row.
    pub lens: Arc<[usize]>,
}

impl Blocks {
    /// Creates blocks of `outer` rows with `lens[r]` elements of member `r`.
    pub fn new(outer: usize, lens: impl Into<Arc<[usize]>>) -> Blocks {
        Blocks { outer, lens: lens.into() }
    }

    /// Creates blocks of `outer` rows with `len` elements of each of `members` members.
    pub fn even(outer: usize, len: usize, members: usize) -> Blocks {
        Blocks { outer, lens: vec![len; members].into() }
    }

    /// Elements of one row.
    pub fn row(&self) -> usize {
        self.lens.iter().sum()
    }

    /// Elements of the whole tensor.
    pub fn total(&self) -> usize {
        self.outer * self.row()
    }

    /// Elements that `member` owns: `outer * lens[member]`.
    pub fn owned(&self, member: usize) -> usize {
        self.outer * self.lens[member]
    }

    /// Start of the run of `member` within a row.
    pub fn start(&self, member: usize) -> usize {
        self.lens[..member].iter().sum()
    }

    /// Returns for each row the run of `member` in the whole tensor, and the same run in the member's own part.
    pub fn runs(&self, member: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let (row, start, len) = (self.row(), self.start(member), self.lens[member]);
        // A member without elements has no runs, regardless of the number of rows.
        let rows = if len == 0 { 0 } else { self.outer };
        (0..rows).map(move |o| {
            let whole = o * row + start;
            (whole..whole + len, o * len..(o + 1) * len)
        })
    }
}

/// `4 x [3, 5]`, or `[3, 5]` for a single row.
impl std::fmt::Display for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.outer != 1 {
            write!(f, "{} x ", self.outer)?;
        }
        write!(f, "{:?}", self.lens)
    }
}

/// Returns the run of `member` in concatenated parts.
pub(super) fn run_of(counts: &[usize], member: usize) -> Range<usize> {
    let start = counts[..member].iter().sum();
    start..start + counts[member]
}
