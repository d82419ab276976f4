//! Rows that a task makes of examples, as batches.

use std::ops::Range;

use super::{Batch, DataError, Dataset, RowStreams, SamplePosition};

impl Dataset {
    /// Makes the rows of a task, as [`micro_batches`](Self::micro_batches).
    pub(super) fn task_rows(
        &self,
        step: u64,
        micro_batches: &[Range<usize>],
        streams: &RowStreams,
    ) -> Result<Batch, DataError> {
        let rows = micro_batches.iter().map(Range::len).sum::<usize>();
        let mut data = streams.filling_rows(rows);
        let mut places = Vec::with_capacity(rows);
        for (index, row) in micro_batches.iter().cloned().flatten().enumerate() {
            let (source, epoch, sample) = self.sample_at(step, row);
            let start = if self.is_single_pass && epoch > 0 {
                self.seq * sample as usize
            } else {
                source.rows.write_streams(epoch, sample, &mut data, index)?
            };
            places.push(SamplePosition { epoch, start });
        }
        let streams = Some((streams.clone(), data));
        let (tokens, targets, micro_batches) = (Vec::new(), Vec::new(), micro_batches.to_vec());
        Ok(Batch { tokens, targets, starts: None, streams, rows, places, micro_batches })
    }

    /// Returns the streams of the rows, if a task makes them.
    pub fn streams(&self) -> Option<&RowStreams> {
        self.sources[0].rows.streams()
    }
}
