//! FLOPs that backward computes once more: `hfu` exceeds `mfu` by exactly these.

use meshwright::train::LanguageModel;
use meshwright_examples::gpt2::Gpt2;
use meshwright_examples::llama::Llama;
use meshwright_tests::models::plain_llama;

use super::case::{Case, HEADS, ONE, Outcome, VOCAB};

/// Queries that the attention kernel takes at a time. Of the keys it leaves out only those that are behind all of them.
const QUERIES: usize = 32;

/// Keys that its backward takes at a time, against all queries but those before them, in blocks as above.
const KEYS: usize = 64;

/// Two blocks of queries and a part of a third one.
const LONG: Case = Case { seq: 75, layers: 3, ..ONE };

#[test]
fn recomputed_layers_cost_their_forward_pass_once_more() {
    for recompute in ["none", "full", "every=2", "sqrt", "attn"] {
        check::<Llama>(Case { recompute, ..LONG });
    }
}

#[test]
fn what_is_recomputed_does_not_depend_on_the_mesh_or_the_level() {
    for (dp, fsdp, tp, zero) in [(2, 1, 2, 0), (1, 2, 2, 3), (2, 2, 1, 2)] {
        let case = Case { dp, fsdp, tp, zero, recompute: "full", ..LONG };
        check::<Llama>(case);
        check::<Llama>(Case { micro_batches: 2, bf16: true, recompute: "attn", ..case });
        check::<plain_llama::Llama>(Case { splits_stream: false, ..case });
    }
}

/// Its head is its embedding, which counts once, and its positions are only looked up. Recomputing a layer takes its
/// products and attention once more; what the model itself declares takes none of them.
#[test]
fn a_gpt2_counts_what_it_multiplies_with() {
    for (recompute, again) in [("", 0.0), ("none", 0.0), ("full", 1.0)] {
        for (tp, zero) in [(1, 0), (2, 3)] {
            let case = Case { tp, fsdp: tp, zero, recompute, ..LONG };
            let Case { hidden, ffn, layers, batch, seq, .. } = case;
            let matrices = 4 * hidden * hidden + 2 * hidden * ffn;
            let vectors = 9 * hidden + ffn;
            let parameters = layers * (matrices + vectors) + 2 * hidden + VOCAB * hidden;
            let model = ((6 * parameters + 12 * layers * hidden * seq) * batch * seq) as f64;
            let products = (2 * batch * seq * layers * matrices) as f64;
            check_steps::<Gpt2>(case, model, again * (products + case.attention()));
        }
    }
}

/// Trains, and compares the difference between the two utilisations, which both are of `model` FLOPs, with `again`.
#[track_caller]
fn check_steps<M: LanguageModel>(case: Case, model: f64, again: f64) -> Outcome {
    let outcome = case.run::<M>();
    for line in &outcome.steps {
        let [mfu, hfu] = ["mfu", "hfu"].map(|key| line[key].as_f64().unwrap());
        let found = (hfu - mfu) / mfu * model;
        assert!((found - again).abs() < 0.5, "{found} is not {again}: {case:?}");
    }
    outcome
}

#[track_caller]
fn check<M: LanguageModel>(case: Case) {
    let again = case.recomputed_products() + case.recomputed_attention();
    let outcome = check_steps::<M>(case, case.model_flops(), again);
    // Of all that is executed: backward takes two products for each of forward, and five of attention's for two.
    let products = 3.0 * (case.products() + case.head());
    let executed = products + case.attention() + case.attention_backward() + again;
    let found = outcome.summary.report.recomputed * executed;
    assert!((found - again).abs() < 0.5, "{found} is not {again}: {case:?}");
}

impl Case {
    /// `6 N + 12 L H Q T` of each token, without the embedding, which is only looked up.
    fn model_flops(self) -> f64 {
        let Case { hidden, ffn, layers, batch, seq, .. } = self;
        let layer = 4 * hidden * hidden + 3 * hidden * ffn + 2 * hidden;
        let parameters = layers * layer + hidden + VOCAB * hidden;
        ((6 * parameters + 12 * layers * hidden * seq) * batch * seq) as f64
    }

    /// `2 m n k` of every product of the layers, on all tokens.
    fn products(self) -> f64 {
        let Case { hidden, ffn, layers, batch, seq, .. } = self;
        (2 * batch * seq * layers * (4 * hidden * hidden + 3 * hidden * ffn)) as f64
    }

    fn head(self) -> f64 {
        (2 * self.batch * self.seq * VOCAB * self.hidden) as f64
    }

    /// Scores and weighted sums of the layers: `4 m n q` of each block of `m` queries, which sees `n` keys.
    fn attention(self) -> f64 {
        let blocks = (0..self.seq).step_by(QUERIES).map(|start| {
            let end = self.seq.min(start + QUERIES);
            (end - start) * end
        });
        4.0 * self.in_all_heads(blocks.sum())
    }

    /// Five products: `10 m n q` of each block of `n` keys, which `m` queries see.
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

    fn recomputed_products(self) -> f64 {
        let Case { hidden, layers, batch, seq, .. } = self;
        match self.recompute {
            "none" => 0.0,
            // Queries, keys and values.
            "attn" => (2 * batch * seq * layers * 3 * hidden * hidden) as f64,
            _ => self.products(),
        }
    }

    fn recomputed_attention(self) -> f64 {
        if self.recompute == "none" { 0.0 } else { self.attention() }
    }
}
