//! Tables of cosines and sines, which all layers of a rank share.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::rotary::{RopeParameters, RopeScaling, RotaryFrequencies};
use crate::tensor::{Extent, Rank};
use meshwright_backend::{Buffer, Category, DType};

/// Cosines and sines of the angles of the positions that a rank holds, f32 `[positions, rotary_dim / 2]`.
pub(super) struct RopeTables {
    key: TableKey,
    pub cos: Buffer,
    pub sin: Buffer,
}

/// Inputs of the computation of a table.
#[derive(Clone, PartialEq)]
pub(super) struct TableKey {
    pub parameters: RopeParameters,
    pub head_dim: usize,
    /// The positions of the rank.
    pub sequence: Extent,
    /// Length that the frequencies follow from: that of the sequence, without padding at its end.
    len: usize,
}

/// Length of sequences that are padded at their end, for all ranks of `cp` to have as many positions.
#[derive(Default)]
struct UnpaddedLength(Cell<Option<usize>>);

/// Runs `body` with sequences that are padded after `len` positions: scalings that depend on the length are those of
/// sequences of `len` positions, as on meshes that need no padding.
pub fn with_unpadded_length<T>(rank: &Rank, len: usize, body: impl FnOnce() -> T) -> T {
    let UnpaddedLength(unpadded) = rank.session_state();
    let outer = unpadded.replace(Some(len));
    let result = body();
    unpadded.set(outer);
    result
}

impl TableKey {
    /// Creates the key of the tables for `sequence` on `rank`.
    pub(super) fn new(
        rank: &Rank,
        parameters: RopeParameters,
        head_dim: usize,
        sequence: Extent,
    ) -> TableKey {
        let UnpaddedLength(unpadded) = rank.session_state();
        let len = match parameters.scaling {
            RopeScaling::Dynamic { .. } | RopeScaling::LongRope(_) => {
                unpadded.get().unwrap_or(sequence.global)
            }
            _ => sequence.global,
        };
        TableKey { parameters, head_dim, sequence, len }
    }
}

/// Tables of a rank. Layers own them, so they are freed with the last layer that uses them.
#[derive(Default)]
struct TablesInUse(RefCell<Vec<Weak<RopeTables>>>);

impl RopeTables {
    /// Returns the tables of `key`, which are computed unless a layer of this rank has them.
    pub(super) fn shared(rank: &Rank, key: &TableKey) -> Rc<RopeTables> {
        let TablesInUse(in_use) = rank.session_state();
        let mut in_use = in_use.borrow_mut();
        in_use.retain(|tables| tables.strong_count() > 0);
        let found = in_use.iter().filter_map(Weak::upgrade).find(|tables| tables.key == *key);
        found.unwrap_or_else(|| {
            let tables = Rc::new(RopeTables::compute(rank, key));
            in_use.push(Rc::downgrade(&tables));
            tables
        })
    }

    /// Returns true if these are the tables of `key`.
    pub(super) fn are_for(&self, key: &TableKey) -> bool {
        self.key == *key
    }

    fn compute(rank: &Rank, key: &TableKey) -> RopeTables {
        let TableKey { parameters, head_dim, sequence, len } = key;
        let frequencies = RotaryFrequencies::new(parameters, *head_dim, *len)
            .unwrap_or_else(|problem| panic!("rotary embedding: {problem}"));
        let table = |f: fn(f64) -> f64| {
            if rank.backend().is_dry_run() {
                let len = sequence.local * frequencies.per_position.len();
                return rank.allocator().alloc(DType::F32, len, Category::Activations);
            }
            let values = table_of(&frequencies, sequence.positions(), f);
            rank.allocator().copy_of(&values, Category::Activations)
        };
        RopeTables { key: key.clone(), cos: table(f64::cos), sin: table(f64::sin) }
    }
}

/// Computes `f` of the angle of each pair at each position, in f64, times the magnitude.
fn table_of(
    frequencies: &RotaryFrequencies,
    positions: impl Iterator<Item = usize>,
    f: fn(f64) -> f64,
) -> Vec<f32> {
    let RotaryFrequencies { per_position, magnitude } = frequencies;
    positions
        .flat_map(|position| {
            let angles = per_position.iter().map(move |of_pair| position as f64 * of_pair);
            angles.map(|angle| (f(angle) * magnitude) as f32)
        })
        .collect()
}
