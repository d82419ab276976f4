//! A rank that fails in the middle of backward, during prefetch and gradient reduction.

use std::cell::Cell;

use meshwright::backend::cpu::CpuBackend;
use meshwright::comm::{CommError, launch};
use meshwright::nn::{Layers, Sizes, build};
use meshwright::prelude::*;
use meshwright::tensor::{Settings, ZeroStage};

use super::{assert_contains, in_time};

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

const LAYERS: usize = 4;

thread_local! {
    /// Number of layers that this rank has computed.
    static COMPUTED: Cell<usize> = const { Cell::new(0) };
}

#[model]
struct Layer {
    up: Linear<Hidden, Ffn>,
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Layer {
    fn forward(&self, x: &Stream) -> Stream {
        COMPUTED.set(COMPUTED.get() + 1);
        // The second layer that backward recomputes.
        let fails = x.rank().index() == 1 && COMPUTED.get() == LAYERS + 2;
        assert!(!fails, "a mistake of the author's");
        x + self.down.forward(&self.up.forward(x).tanh())
    }
}

#[model]
struct Deep {
    first: Linear<Hidden, Hidden>,
    #[recompute]
    layers: Stack<Layer>,
}

#[forward]
impl Deep {
    fn forward(&self, x: &Stream) -> Stream {
        self.layers.forward(&self.first.forward(x))
    }
}

#[test]
fn a_failure_in_backward_stops_every_rank() {
    for (mesh, ranks) in [("fsdp=2", 2), ("fsdp=4", 4), ("dp=2,fsdp=2", 4)] {
        for zero in ZeroStage::ALL {
            let shape = mesh.parse().unwrap();
            let outcome = in_time(move || {
                launch(&shape, |comms| {
                    let backend = CpuBackend::new(1).expect("one thread starts nothing");
                    let settings = Settings { zero, ..Settings::new(0) };
                    let rank = Rank::with_settings(comms, Box::new(backend), settings);
                    let sizes = Sizes::new().with(Hidden, 24).with(Ffn, 40).with(Layers, LAYERS);
                    let built =
                        build::<Deep>(&rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
                    let x = Tensor::from_fn(&rank, &[4, 3, 24], |at| at[2] as f32);
                    let loss = Loss::mean_of(&built.model.forward(&x));
                    Ok::<f64, CommError>(loss.backward().reduce().norm())
                })
            });
            let label = format!("{mesh} with {zero}");
            let error = outcome.expect_err(&label);
            assert_eq!(error.failures.len(), ranks, "{label}: {error}");
            assert_eq!(error.failures[0].rank, 1, "{label}: the cause comes first");
            assert_contains(&error.to_string(), &["a mistake of the author's", file!()]);
            for failure in &error.failures[1..] {
                assert!(failure.stopped_by.is_some(), "{label}: {}", failure.cause);
            }
        }
    }
}
