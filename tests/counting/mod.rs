//! Memory, communication and FLOPs reported by the trainer, against closed formulas.

mod activations;
mod case;
mod context;
mod flops;
mod groups;
mod pipeline;
mod plan;
mod ring;
mod state;
mod traffic;

use meshwright::models::llama::Batch;
use meshwright::tensor::{Metric, Tokens};
use meshwright_tests::run::on_mesh;

#[test]
fn counts_of_tokens_stay_exact() {
    // Not representable in an f32, nor is their sum.
    let count = (1u64 << 24) + 1;
    let means = on_mesh("dp=4", 1, |rank| {
        let own = count + rank.index() as u64;
        let samples = Tokens::<(Batch,)>::from_block(rank, &[4], &[0]);
        Metric::of(&samples, 0.5, own).reduce()
    });
    for mean in means {
        assert_eq!(mean.count(), 4 * count + 6);
        assert_eq!(mean.value(), 2.0 / (4 * count + 6) as f64);
    }
}
