//! Targets of decoders, and what a decoder reads to predict them.

use crate::data::{RowStreams, RowWriter};

/// Adds the streams of a decoder of `seq` positions: `read`, the ids that it reads, and `target`, those that it
/// predicts.
pub(super) fn add_targets(streams: RowStreams, seq: usize, vocab: usize) -> RowStreams {
    streams.ids("read", &[seq], vocab).targets("target", &[seq], vocab)
}

/// Writes both streams: a decoder reads the targets one position later, behind `start`, and `padding` behind the last
/// one.
pub(super) fn write_targets(row: &mut RowWriter<'_>, targets: &[u32], [start, padding]: [u32; 2]) {
    row.ids("target")[..targets.len()].copy_from_slice(targets);
    let read = row.ids("read");
    read.fill(padding);
    let behind = read.len().min(targets.len() + 1);
    if let Some((first, rest)) = read[..behind].split_first_mut() {
        *first = start;
        rest.copy_from_slice(&targets[..rest.len()]);
    }
}
