//! Functions that promise to treat all elements along a dim alike: one that reads along it, or knows positions on its
//! rank only, is refused on every mesh; one that knows positions in the global tensor is right on every mesh.

use meshwright::layout::Shape;
use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, BackwardReads, Forward, Function, apply};
use meshwright_tests::compare::{Tensors, assert_same_bits};
use meshwright_tests::data::numbers;
use meshwright_tests::run::{on_mesh, on_mesh_with};

dims! { Batch @ data, Seq @ cp, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;
type SplitStream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// A function of a sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Along {
    /// The sum of the positions up to each one.
    PrefixSum,
    /// The next position.
    Next,
    /// The difference from the mean.
    Centered,
    /// The product with the index of the position on the rank.
    TimesLocalIndex,
    /// The quotient by the number of positions on the rank.
    DividedByLocalCount,
    /// The product with the position in the sequence.
    TimesPosition,
}

impl<B: Dim, S: Dim, H: Dim> Function<((B, S, H),)> for Along {
    type Output = Tensor<(B, S, H)>;
    type Saved = ();

    fn path(&self) -> &str {
        "along"
    }

    fn backward_reads(&self) -> BackwardReads<((B, S, H),), ()> {
        BackwardReads::nothing()
    }

    fn forward_pass(&self, call: Forward<'_, ((B, S, H),), ()>) {
        let Forward { inputs: [x], mut output, .. } = call;
        let [rows, seq, hidden] = [0, 1, 2].map(|dim| x.local_extents()[dim].local);
        let data = x.to_f32();
        let at = |row: usize, position: usize, h: usize| data[(row * seq + position) * hidden + h];
        let element = |index: usize| {
            let (row, position, h) = (index / hidden / seq, index / hidden % seq, index % hidden);
            let all = || (0..seq).map(|position| at(row, position, h));
            match self {
                Along::PrefixSum => all().take(position + 1).sum(),
                Along::Next => at(row, (position + 1) % seq, h),
                Along::Centered => at(row, position, h) - all().sum::<f32>() / seq as f32,
                Along::TimesLocalIndex => at(row, position, h) * (1 + position) as f32,
                Along::DividedByLocalCount => at(row, position, h) / seq as f32,
                Along::TimesPosition => {
                    at(row, position, h) * (1 + x.local_extents()[1].index(position)) as f32
                }
            }
        };
        output.write_f32(&(0..rows * seq * hidden).map(element).collect::<Vec<_>>());
    }

    fn backward_pass(&self, call: Backward<'_, ((B, S, H),), (), ()>) {
        let [dx] = call.input_gradients;
        if let Some(mut dx) = dx.target() {
            dx.write_f32(&vec![1.0; dx.len()]);
        }
    }
}

const SIZES: [usize; 3] = [4, 12, 3];

fn outcome<S: Shape>(mesh: &str, body: impl Fn(&Rank) -> Tensor<S> + Sync) -> Result<(), String> {
    let run = || on_mesh(mesh, 1, |rank| body(rank).to_local_vec());
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).err();
    payload.map_or(Ok(()), |payload| {
        Err(payload.downcast::<String>().map(|text| *text).expect("a panic has a message"))
    })
}

#[test]
fn reads_along_a_distributed_dim_are_refused() {
    use Along::{Centered, DividedByLocalCount, Next, PrefixSum, TimesLocalIndex};
    for function in [PrefixSum, Next, Centered, TimesLocalIndex, DividedByLocalCount] {
        for mesh in ["1", "cp=2", "tp=2", "dp=2", "cp=2,tp=2"] {
            let whole = outcome(mesh, |rank| {
                let x: Stream = numbers(rank, "x", &SIZES);
                apply(function, (&x,), ())
            });
            let split = outcome(mesh, |rank| {
                let x: SplitStream = numbers(rank, "x", &SIZES);
                apply(function, (&x,), ())
            });
            for (found, dim) in [(whole, "Seq"), (split, "Split<Seq, tp>")] {
                let text = found.expect_err("the function is refused");
                let part = format!("`along` writes other results along `{dim}`");
                assert!(text.contains(&part), "{function:?} on {mesh}: {text}");
            }
        }
    }
}

#[test]
fn functions_of_positions_are_right_on_every_mesh() {
    let found = |mesh: &str| {
        let settings = meshwright::tensor::Settings::new(7);
        on_mesh_with(mesh, 1, settings, |rank| {
            let x: Stream = numbers(rank, "x", &SIZES);
            let whole = apply(Along::TimesPosition, (&x,), ()).gather_to_vec();
            let split = apply(Along::TimesPosition, (&x.slice(Seq, Tp),), ()).gather_to_vec();
            Tensors::from([("whole".to_owned(), whole), ("split".to_owned(), split)])
        })
    };
    let expected = found("1").remove(0);
    for mesh in ["cp=2", "cp=3", "tp=2", "cp=2,tp=2", "dp=2,cp=2"] {
        for numbers in found(mesh) {
            assert_same_bits(mesh, &numbers, &expected);
        }
    }
}
