//! FLOPs of recomputation, which are the difference between `hfu` and `mfu`.

use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::train::LanguageModel;
use meshwright_tests::models::plain_llama;

use super::case::{Case, HEADS, ONE, Outcome, VOCAB};

/// Query block of the attention kernel, which skips only the keys after the whole block.
const QUERIES: usize = 32;

/// Key block of attention's backward, which visits the queries from its first key on, in blocks of [`QUERIES`].
const KEYS: usize = 64;

/// A sequence of two query blocks and a part of a third.
const LONG: Case = Case { seq: 75, layers: 3, ..ONE };

#[test]
fn recomputed_layers_cost_a_second_forward_pass() {
    for recompute in ["none", "full", "every=2", "sqrt", "attn"] {
        check::<Llama>(Case { recompute, ..LONG });
    }
}

#[test]
fn recomputed_flops_do_not_depend_on_mesh_or_stage() {
    for (dp, fsdp, tp, zero) in [(2, 1, 2, 0), (1, 2, 2, 3), (2, 2, 1, 2)] {
        let case = Case { dp, fsdp, tp, zero, recompute: "full", ..LONG };
        check::<Llama>(case);
        check::<Llama>(Case { micro_batches: 2, bf16: true, recompute: "attn", ..case });
        check::<plain_llama::Llama>(Case { splits_stream: false, ..case });
    }
}

/// The tied embedding counts once, as the head, and positions are only looked up. Recomputing a layer repeats its
/// matmuls and attention; the recomputation that the model itself declares repeats neither.
#[test]
fn a_gpt2_counts_parameters_of_matmuls() {
    for (recompute, recomputed) in [("", 0.0), ("none", 0.0), ("full", 1.0)] {
        for (tp, zero) in [(1, 0), (2, 3)] {
            let case = Case { tp, fsdp: tp, zero, recompute, ..LONG };
            let Case { hidden, ffn, layers, batch, seq, .. } = case;
            let matrices = 4 * hidden * hidden + 2 * hidden * ffn;
            let vectors = 9 * hidden + ffn;
            let parameters = layers * (matrices + vectors) + 2 * hidden + VOCAB * hidden;
            let model = ((6 * parameters + 12 * layers * hidden * seq) * batch * seq) as f64;
            let matmuls = (2 * batch * seq * layers * matrices) as f64;
            check_steps::<Gpt2>(case, model, recomputed * (matmuls + case.attention()));
        }
    }
}

/// Trains, and compares the difference between the two utilizations with `recomputed` FLOPs; both are relative to
/// `model`.
#[track_caller]
fn check_steps<M: LanguageModel>(case: Case, model: f64, recomputed: f64) -> Outcome {
    let outcome = case.run::<M>();
    for line in &outcome.steps {
        let [mfu, hfu] = ["mfu", "hfu"].map(|key| line[key].as_f64().unwrap());
        let found = (hfu - mfu) / mfu * model;
        assert!((found - recomputed).abs() < 0.5, "{found} is not {recomputed}: {case:?}");
    }
    outcome
}

#[track_caller]
fn check<M: LanguageModel>(case: Case) {
    let recomputed = case.recomputed_matmuls() + case.recomputed_attention();
    let outcome = check_steps::<M>(case, case.model_flops(), recomputed);
    // Backward takes two matmuls for each of forward, and five for attention's two.
    let matmuls = 3.0 * (case.matmuls() + case.head());
    let executed = matmuls + case.attention() + case.attention_backward() + recomputed;
    let found = outcome.summary.report.recomputed * executed;
    assert!((found - recomputed).abs() < 0.5, "{found} is not {recomputed}: {case:?}");
}

impl Case {
    /// `6 N + 12 L H Q T` per token, without the embedding, which is only looked up.
    fn model_flops(self) -> f64 {
        let Case { hidden, ffn, layers, batch, seq, .. } = self;
        let layer = 4 * hidden * hidden + 3 * hidden * ffn + 2 * hidden;
        let parameters = layers * layer + hidden + VOCAB * hidden;
        ((6 * parameters + 12 * layers * hidden * seq) * batch * seq) as f64
    }

    /// `2 m n k` of every matmul of the layers, on all tokens.
    fn matmuls(self) -> f64 {
        let Case { hidden, ffn, layers, batch, seq, .. } = self;
        (2 * batch * seq * layers * (4 * hidden * hidden + 3 * hidden * ffn)) as f64
    }

    fn head(self) -> f64 {
        (2 * self.batch * self.seq * VOCAB * self.hidden) as f64
    }

    /// Attention scores and weighted sums of the layers: `4 m n q` for each block of `m` queries with `n` keys.
    fn attention(self) -> f64 {
        let blocks = (0..self.seq).step_by(QUERIES).map(|start| {
            let end = self.seq.min(start + QUERIES);
            (end - start) * end
        });
        4.0 * self.in_all_heads(blocks.sum())
    }

    /// Five matmuls: `10 m n q` for each block of `n` keys with `m` queries.
    fn attention_backward(self) -> f64 {
        let blocks = (0..self.seq).step_by(KEYS).map(|start| {
            let end = self.seq.min(start + KEYS);
            (self.seq - start) * (end - start)
        });
        10.0 * self.in_all_heads(blocks.sum())
    }

    fn in_all_heads(self, pairs: usize) -> f64 {
        (self.batch * self.layers * HEADS * pairs * (self.hidden / HEADS)) as f64
    }

    fn recomputed_matmuls(self) -> f64 {
        let Case { hidden, layers, batch, seq, .. } = self;
        match self.recompute {
            "none" => 0.0,
            // Queries, keys and values.
            "attn" => (2 * batch * seq * layers * 3 * hidden * hidden) as f64,
            _ => self.matmuls(),
        }
    }

    fn recomputed_attention(self) -> f64 {
        if self.recompute == "none" { 0.0 } else { self.attention() }
    }
}
