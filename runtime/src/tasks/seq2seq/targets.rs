//! Targets of decoders, and what a decoder reads to predict them.

use crate::data::{Row, Streams};

/// Adds the streams of a decoder of `seq` positions: `read`, the ids that it reads, and `target`, those that it predicts.
pub(super) fn add_targets(streams: Streams, seq: usize, vocab: usize) -> Streams {
    streams.ids("read", &[seq], vocab).targets("target", &[seq], vocab)
}

/// Writes both streams: a decoder reads the targets one position later, behind `start`, and `padding` behind the last
/// one.
pub(super) fn write_targets(row: &mut Row<'_>, targets: &[u32], [start, padding]: [u32; 2]) {
    row.ids("target")[..targets.len()].copy_from_slice(targets);
    let read = row.ids("read");
    read.fill(padding);
    let behind = read.len().min(targets.len() + 1);
    if let Some((first, rest)) = read[..behind].split_first_mut() {
        *first = start;
        rest.copy_from_slice(&targets[..rest.len()]);
    }
}
