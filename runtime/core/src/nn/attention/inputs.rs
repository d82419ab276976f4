//! Queries, keys and values of one application of attention, and the checks of their sizes.

use std::panic::Location;
use std::sync::Arc;

use crate::layout::{DimInfo, Dims, Entry};
use crate::tensor::{Extent, Operand, Rank, Value, draw_key, enter_region};
use meshwright_backend::{AttentionShape, Band, GlobalPositions, SequenceLayout, WeightDropout};
use meshwright_comm::Site;

use super::context::ContextStyle;
use super::layer_options::LayerOptions;

/// The field and the settings of an attention, which are known when it is built.
#[derive(Clone)]
pub struct AttentionCore {
    /// The field.
    pub(super) path: Arc<str>,
    pub(super) is_causal: bool,
    /// True if queries attend to keys of other documents.
    pub(super) ignores_documents: bool,
    pub(super) options: LayerOptions,
    /// Style of ranks that share the sequence, if they may.
    pub(super) context: Option<ContextStyle>,
}

/// Queries, keys and values of one application, inside of the region of the query heads.
pub struct AttentionInputs<'a> {
    pub(super) core: &'a AttentionCore,
    /// The rank of the result.
    pub(super) rank: Rank,
    pub(super) queries: &'a Value,
    pub(super) keys: Value,
    pub(super) values: Value,
    /// The sequence dims of queries and of keys.
    sequences: [DimInfo; 2],
    /// The dims of the rows of keys.
    pub(super) rows: &'static [DimInfo],
}

impl<'a> AttentionInputs<'a> {
    /// Enters keys and values by `entries`, and checks that all fit together.
    #[track_caller]
    pub(super) fn new<Q: Operand, K: Operand, V: Operand>(
        core: &'a AttentionCore,
        q: &'a Q,
        k: &K,
        v: &V,
        entries: [Entry; 2],
    ) -> AttentionInputs<'a> {
        let queries = q.operand().value();
        let site = Site::new(Arc::clone(&core.path)).at_location(Location::caller());
        let [keys, values] = [k.operand().value(), v.operand().value()];
        let enter = |value: &Value| {
            let inside = |value: Value, entry| enter_region(&value, entry, &site);
            entries.into_iter().fold(value.clone(), inside)
        };
        let [keys, values] = [keys, values].map(enter);
        let sequences = [Q::Shape::DIMS[1], K::Shape::DIMS[1]];
        let ranks = [queries, &keys, &values].map(Value::rank);
        let rank = Rank::of_operands(ranks).expect("there are three operands");
        let rows = &K::Shape::DIMS[..2];
        let inputs = AttentionInputs { core, rank, queries, keys, values, sequences, rows };
        inputs.check_shapes();
        inputs
    }

    /// Checks that queries, keys and values have the same samples, that keys and values have the same positions and
    /// heads, and that this rank has the key-value head of each query head, and, without context parallelism, all
    /// positions.
    ///
    /// # Panics
    /// If a size of one operand differs, a query head has no key-value head, or other ranks have positions.
    #[track_caller]
    fn check_shapes(&self) {
        let path = &self.core.path;
        let (q, k, v) = (self.queries.extents(), self.keys.extents(), self.values.extents());
        let is_cross = self.is_cross();
        for (name, value) in [("keys", &self.keys), ("values", &self.values)] {
            self.queries.rank().check_same(value.rank());
            let other = value.extents();
            let positions = if is_cross { k[1] } else { q[1] };
            assert!(
                q[0] == other[0] || q[0].local != other[0].local,
                "`{path}`: the queries are rows {} to {} of the batch, and the {name} are rows {} to {}: compute both \
                 from one micro-batch",
                q[0].offset,
                q[0].offset + q[0].local - 1,
                other[0].offset,
                other[0].offset + other[0].local - 1
            );
            assert!(
                q[0] == other[0] && positions == other[1],
                "`{path}`: the {} have a batch of {} and {} positions, but the {name} have {} and {}",
                if is_cross { "queries and keys" } else { "queries" },
                q[0].local,
                positions.local,
                other[0].local,
                other[1].local
            );
        }
        assert!(
            k[2] == v[2] && q[3] == k[3],
            "`{path}`: queries, keys and values have heads of different number or size: {} of {}, {} of {}, {} of {}",
            q[2].global,
            q[3].global,
            k[2].global,
            k[3].global,
            v[2].global,
            v[3].global
        );
        if self.core.context.is_none() {
            // The types guarantee this, so a failure is a bug of the library.
            for (name, sequence) in [("queries", q[1]), ("keys", k[1])] {
                assert!(
                    sequence.local == sequence.global,
                    "`{path}`: this rank has {} of the {} positions of the {name}, and attention without `#[sharded(cp \
                     = ..)]` exchanges none",
                    sequence.local,
                    sequence.global
                );
            }
        }
        let (heads, kv_heads) = (q[2], k[2]);
        assert!(
            has_key_value_heads(heads, kv_heads),
            "`{path}`: {} query heads and {} key-value heads are split so that this rank has query heads {}..{} and \
             key-value heads {}..{}, which do not match: both numbers must be divisible by the degree of the axis",
            heads.global,
            kv_heads.global,
            heads.offset,
            heads.offset + heads.local,
            kv_heads.offset,
            kv_heads.offset + kv_heads.local
        );
        if let Some(window) = self.core.options.window {
            assert!(
                !is_cross,
                "`{path}`: a window of {window} positions is that of one sequence, but the keys are along {}, and the \
                 queries along {}; set options without a window for this field by `Sizes::with_attention`",
                self.sequences[1].name, self.sequences[0].name
            );
        }
    }

    /// Returns true if the keys have another sequence than the queries.
    pub(super) fn is_cross(&self) -> bool {
        !self.sequences[0].is_same_dim(&self.sequences[1])
    }

    /// Returns the sizes of the kernels.
    pub(super) fn shape(&self) -> AttentionShape {
        let (q, k, v) = (self.queries.extents(), self.keys.extents(), self.values.extents());
        let LayerOptions { window, soft_cap, scale, .. } = self.core.options;
        let (heads, kv_heads) = (q[2], k[2]);
        let group = heads.global / kv_heads.global;
        let positions = q[1].global.max(k[1].global);
        let before = window.filter(|window| *window < positions).map(|window| window - 1);
        let after = if self.core.is_causal { Some(0) } else { before };
        let band = Band { offset: 0, before, after };
        let usual = AttentionShape::new(
            q[0].local,
            q[1].local,
            [heads.local, kv_heads.local, q[3].local],
            band,
        );
        AttentionShape {
            keys: SequenceLayout::dense(k[1].local),
            group,
            first_head: heads.offset - kv_heads.offset * group,
            value_dim: v[3].local,
            scale: scale.unwrap_or(usual.scale),
            soft_cap,
            dropout: self.dropout(),
            ..usual
        }
    }

    /// Returns the dropout of weights, in training.
    fn dropout(&self) -> Option<WeightDropout> {
        let (rank, rate) = (&self.rank, self.core.options.dropout);
        if !rank.is_training() || rate == 0.0 {
            return None;
        }
        let (q, k) = (self.queries.extents(), self.keys.extents());
        Some(WeightDropout {
            key: draw_key(rank, &self.core.path),
            rate,
            rows: positions_of(&q[0]),
            first_head: q[2].offset,
            queries: positions_of(&q[1]),
            keys: positions_of(&k[1]),
        })
    }
}

/// Returns the positions of this rank's elements of a dim.
pub(super) fn positions_of(extent: &Extent) -> GlobalPositions {
    let (gap_at, gap) = extent.gap();
    GlobalPositions { first: extent.offset, gap_at, gap }
}

/// Returns true if the key-value heads of a rank are the ones that its query heads read, or include them.
fn has_key_value_heads(heads: Extent, kv_heads: Extent) -> bool {
    if !heads.global.is_multiple_of(kv_heads.global) {
        return false;
    }
    let group = heads.global / kv_heads.global;
    let end = (kv_heads.offset + kv_heads.local) * group;
    kv_heads.offset * group <= heads.offset && heads.offset + heads.local <= end
}
