//! Copies between the order of positions and the parts of ranks in zig-zag order.

use meshwright_backend::BlockCopy;

/// The part of one of several ranks that hold consecutive chunks of a sequence together: dense, `[batch, 2 * chunk,
/// row]`, of a whole `[batch, 2 * chunk * members, row]`.
///
/// Of `2 * members` chunks, member `i` has numbers `i` and `2 * members - 1 - i`.
#[derive(Clone, Copy)]
pub(super) struct ZigZagPart {
    pub batch: usize,
    /// Positions of a chunk.
    pub chunk: usize,
    /// Elements of a position.
    pub row: usize,
    pub members: usize,
    pub member: usize,
}

impl ZigZagPart {
    /// Elements of the part.
    pub fn len(&self) -> usize {
        self.batch * 2 * self.chunk * self.row
    }

    /// Returns the copies of both chunks from the part, which begins at `part_start` of the source, to the whole, which
    /// begins at `whole_start` of the destination.
    pub fn to_whole(self, part_start: usize, whole_start: usize) -> [BlockCopy; 2] {
        let ZigZagPart { batch, chunk, row, members, member } = self;
        let len = chunk * row;
        let chunks = [(0, member), (1, 2 * members - 1 - member)];
        chunks.map(|(half, index)| BlockCopy {
            blocks: batch,
            len,
            src_start: part_start + half * len,
            src_stride: 2 * len,
            dst_start: whole_start + index * len,
            dst_stride: 2 * members * len,
        })
    }
}
