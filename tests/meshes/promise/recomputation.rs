//! The `forward` of a recomputed layer runs twice. One that does not do the same again is refused, and no layer can
//! tell whether it is recomputed.

use std::cell::Cell;

use meshwright::backend::DType;
use meshwright::nn::{Build, Builder};
use meshwright::prelude::*;
use meshwright::tensor::{Rank, Settings, ZeroStage};
use meshwright_tests::compare::assert_same_bits;
use meshwright_tests::run::on_mesh_with;

use super::harness::{MESH_CASES, Numbers, Steps, assert_mesh_parity, built, numbers, on};
use super::net::{Batch, Hidden, Seq, Stream, micro_batch, sizes};

/// Counts the calls of a layer.
struct Calls(Cell<u32>);

impl Build for Calls {
    fn build(_: &mut Builder<'_>) -> Calls {
        Calls(Cell::new(0))
    }
}

impl Calls {
    fn next(&self) -> u32 {
        self.0.replace(self.0.get() + 1)
    }
}

/// A layer that uses another weight in every other call.
#[model]
pub struct Alternating {
    calls: Calls,
    even: Linear<Hidden, Hidden>,
    odd: Linear<Hidden, Hidden>,
}

#[forward]
impl Alternating {
    fn forward(&self, x: &Stream) -> Stream {
        let layer = if self.calls.next().is_multiple_of(2) { &self.even } else { &self.odd };
        x + layer.forward(x).tanh()
    }
}

/// A layer that is left out in every other call.
#[model]
pub struct LeftOut {
    calls: Calls,
    linear: Linear<Hidden, Hidden>,
}

#[forward]
impl LeftOut {
    fn forward(&self, x: &Stream) -> Stream {
        if self.calls.next().is_multiple_of(2) { x + self.linear.forward(x) } else { x.clone() }
    }
}

/// A layer that scales its result by the number of its call.
#[model]
pub struct Scaled {
    calls: Calls,
    linear: Linear<Hidden, Hidden>,
}

#[forward]
impl Scaled {
    fn forward(&self, x: &Stream) -> Stream {
        self.linear.forward(x).scale(1.0 + self.calls.next() as f32)
    }
}

/// A layer with noise that differs between calls.
#[model]
pub struct Noisy {
    calls: Calls,
    linear: Linear<Hidden, Hidden>,
}

#[forward]
impl Noisy {
    fn forward(&self, x: &Stream) -> Stream {
        let call = self.calls.next() as usize;
        let at = |at: &[usize]| ((at[0] + at[1] * call + at[2]) % 3) as f32;
        self.linear.forward(x) * Tensor::<(Batch, Seq, Hidden)>::from_fn(x.rank(), &x.sizes(), at)
    }
}

/// A layer that computes another function in every other call, of the same parameters and numbers.
#[model]
pub struct Branching {
    calls: Calls,
    linear: Linear<Hidden, Hidden>,
}

#[forward]
impl Branching {
    fn forward(&self, x: &Stream) -> Stream {
        let y = self.linear.forward(x);
        if self.calls.next().is_multiple_of(2) { x + y.tanh() } else { x - y }
    }
}

/// A layer that asks whether gradients are computed.
#[model]
pub struct Asking {
    linear: Linear<Hidden, Hidden>,
}

#[forward]
impl Asking {
    fn forward(&self, x: &Stream) -> Stream {
        let y = self.linear.forward(x);
        let evaluated = x.rank().evaluate(|| x.rank().is_recording());
        if x.rank().is_recording() && !evaluated { y.tanh() } else { y }
    }
}

/// A layer whose evaluation reads tensors that it goes on with, and that goes on with the results of the evaluation.
#[model]
pub struct Evaluating {
    norm: RmsNorm<Hidden>,
    linear: Linear<Hidden, Hidden>,
    #[recompute]
    inner: Asking,
}

#[forward]
impl Evaluating {
    fn forward(&self, x: &Stream) -> Stream {
        let sum = x + self.linear.forward(x);
        let (product, passed) = (&sum * x, x.scale(0.7).tanh());
        let constant = x.rank().evaluate(|| {
            self.norm.forward(&sum).tanh() + product.scale(0.3) + self.inner.forward(&passed)
        });
        sum.silu() * constant + self.norm.forward(&sum) + product.tanh() + passed.scale(0.3)
    }
}

/// A layer in a recomputed stack, or not.
macro_rules! nets {
    ($($layer:ident: $plain:ident, $recomputed:ident;)*) => {$(
        #[model]
        pub struct $plain {
            embed: Embedding<super::net::Vocab, Hidden>,
            layers: Stack<$layer>,
        }

        #[forward]
        impl $plain {
            fn forward(&self, ids: &super::net::Ids) -> Stream {
                self.layers.forward(&self.embed.forward(ids))
            }
        }

        #[model]
        pub struct $recomputed {
            embed: Embedding<super::net::Vocab, Hidden>,
            #[recompute]
            layers: Stack<$layer>,
        }

        #[forward]
        impl $recomputed {
            fn forward(&self, ids: &super::net::Ids) -> Stream {
                self.layers.forward(&self.embed.forward(ids))
            }
        }
    )*};
}

nets! {
    Alternating: PlainAlternating, AgainAlternating;
    LeftOut: PlainLeftOut, AgainLeftOut;
    Scaled: PlainScaled, AgainScaled;
    Noisy: PlainNoisy, AgainNoisy;
    Branching: PlainBranching, AgainBranching;
    Asking: PlainAsking, AgainAsking;
    Evaluating: PlainEvaluating, AgainEvaluating;
}

macro_rules! trained {
    ($net:ty) => {
        |rank: &Rank| -> Numbers {
            let net = built::<$net>(rank, &sizes());
            let y = net.model.forward(&micro_batch(rank, (8, 6), (0, 1), true).tokens);
            let mut steps = Steps::default();
            let loss = steps.note(Loss::mean_of(&(&y * &y)));
            steps.add(loss);
            numbers(&net, steps)
        }
    };
}

#[test]
fn other_recomputations_are_refused() {
    assert_mesh_parity("alternating", trained!(PlainAlternating));
    assert_mesh_parity("left out", trained!(PlainLeftOut));
    assert_mesh_parity("scaled", trained!(PlainScaled));
    assert_mesh_parity("noisy", trained!(PlainNoisy));
    assert_mesh_parity("branching", trained!(PlainBranching));
    for case in MESH_CASES {
        for (name, result) in [
            ("alternating", on(case, trained!(AgainAlternating))),
            ("left out", on(case, trained!(AgainLeftOut))),
            ("scaled", on(case, trained!(AgainScaled))),
            ("noisy", on(case, trained!(AgainNoisy))),
            ("branching", on(case, trained!(AgainBranching))),
        ] {
            let message = result.expect_err(name);
            for part in [
                "has recomputed `layers.1` with other parameters or numbers than its forward pass",
                "tests/meshes/promise/harness.rs",
                "use `Dropout`",
            ] {
                assert!(
                    message.contains(part),
                    "{name} on {}: no `{part}` in {message}",
                    case.mesh
                );
            }
        }
    }
}

#[test]
fn a_layer_cannot_tell_that_it_is_recomputed() {
    assert_mesh_parity("asking", trained!(AgainAsking));
    let [plain, again] = [
        on(super::harness::ONE, trained!(PlainAsking)).unwrap(),
        on(super::harness::ONE, trained!(AgainAsking)).unwrap(),
    ];
    assert_eq!(plain, again);
}

/// The forward pass of a recomputed layer, which is not recorded either, fused the operations of an evaluation with
/// those after it, so that it rounded fewer results than the recomputation.
#[test]
fn an_evaluation_stays_apart_in_a_recomputed_layer() {
    for (mesh, zero) in [
        ("1", ZeroStage::Replicated),
        ("dp=2", ZeroStage::Replicated),
        ("fsdp=2", ZeroStage::Parameters),
    ] {
        for compute in [DType::F32, DType::Bf16] {
            let settings = Settings { compute, zero, ..Settings::new(7) };
            let plain = on_mesh_with(mesh, 1, settings, trained!(PlainEvaluating));
            let again = on_mesh_with(mesh, 1, settings, trained!(AgainEvaluating));
            for (again, plain) in again.iter().zip(&plain) {
                assert_same_bits(&format!("{mesh}, {compute}"), again, plain);
            }
        }
    }
}
