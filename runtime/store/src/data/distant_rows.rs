//! Rows of files that are far away, which are fetched together before they are read.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Dataset, TokenFile};

/// Bytes of rows that are fetched together, at least; all rows of a step are.
const WINDOW_BYTES: usize = 1 << 20;

/// Largest width of a token in bytes.
const WIDEST: usize = 8;

/// Ranges of the tokens of a file.
struct WantedParts<'a> {
    file: &'a TokenFile,
    spans: Vec<Range<usize>>,
}

impl Dataset {
    /// Fetches the rows of these steps that are far away. Those of local files are not touched.
    pub(super) fn prepare_steps(&self, steps: Range<u64>, micro_batches: &[Range<usize>]) {
        if !self.is_distant {
            return;
        }
        let mut wanted: BTreeMap<(usize, usize), WantedParts<'_>> = BTreeMap::new();
        for step in steps {
            for row in micro_batches.iter().cloned().flatten() {
                let (source, epoch, sample) = self.sample_at(step, row);
                if self.is_single_pass && epoch > 0 {
                    continue;
                }
                let address = std::ptr::from_ref(source).addr();
                source.rows.spans(sample, |index, file, span| {
                    let new = || WantedParts { file, spans: Vec::new() };
                    wanted.entry((address, index)).or_insert_with(new).spans.push(span);
                });
            }
        }
        for WantedParts { file, spans } in wanted.into_values() {
            file.prepare(spans);
        }
    }

    /// Returns the number of steps whose rows are fetched together.
    pub(super) fn steps_of_window(&self, micro_batches: &[Range<usize>]) -> u64 {
        let rows: usize = micro_batches.iter().map(Range::len).sum();
        let files = self.sources.iter().flat_map(|source| source.rows.files());
        let width = files.map(|file| file.encoding().width()).max().unwrap_or(WIDEST);
        (WINDOW_BYTES / (rows * self.seq * width).max(1)).max(1) as u64
    }
}
