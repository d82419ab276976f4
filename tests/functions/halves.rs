//! Functions that depend on how the elements of a dim are distributed: in a partial sum, in backward only, and with one
//! element on each rank. They are refused on every mesh on which they could be told.

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, BackwardReads, Forward, Function, apply};
use meshwright_tests::compare::distance;
use meshwright_tests::data::numbers;
use meshwright_tests::run::{on_mesh, on_mesh_with};

use super::refusal;

dims! { Batch @ data, Seq @ cp, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;
type Input = ((Batch, Seq, Hidden),);

const SIZES: [usize; 3] = [4, 12, 3];

/// The weight of each position in a sum over the sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Weights {
    /// The position in the sequence, from 1.
    Position,
    /// The index of the position on the rank, from 1.
    LocalIndex,
    /// The reciprocal of the number of positions on the rank.
    LocalMean,
    /// Ones, and the sum has an offset.
    Offset,
    /// Ones in forward; in backward, by the index on the rank.
    LocalBackward,
}

impl Weights {
    fn of(self, index: usize, seq: usize, position: usize) -> f32 {
        match self {
            Weights::Position => 1.0 + position as f32,
            Weights::LocalIndex => 1.0 + index as f32,
            Weights::LocalMean => 1.0 / seq as f32,
            Weights::Offset | Weights::LocalBackward => 1.0,
        }
    }
}

impl Function<Input> for Weights {
    type Output = Partial<(Batch, Hidden), Cp>;
    type Saved = ();

    fn path(&self) -> &str {
        "weighted_sum"
    }

    fn backward_reads(&self) -> BackwardReads<Input, ()> {
        BackwardReads::nothing()
    }

    fn forward_pass(&self, call: Forward<'_, Input, ()>) {
        let Forward { inputs: [x], mut output, .. } = call;
        let [rows, seq, hidden] = [0, 1, 2].map(|dim| x.local_extents()[dim].local);
        let data = x.to_f32();
        let weight = |index| self.of(index, seq, x.local_extents()[1].index(index));
        let element = |index: usize| {
            let (row, h) = (index / hidden, index % hidden);
            let terms = (0..seq)
                .map(|position| data[(row * seq + position) * hidden + h] * weight(position));
            terms.sum::<f32>() + if *self == Weights::Offset { 1.0 } else { 0.0 }
        };
        output.write_f32(&(0..rows * hidden).map(element).collect::<Vec<_>>());
    }

    fn backward_pass(&self, call: Backward<'_, Input, (), ()>) {
        let ([dx], dy) = (call.input_gradients, call.output_gradient.to_f32());
        let Some(mut dx) = dx.target() else { return };
        let [seq, hidden] = [1, 2].map(|dim| dx.local_extents()[dim].local);
        let extent = dx.local_extents()[1];
        let of_backward = if *self == Weights::LocalBackward { Weights::LocalIndex } else { *self };
        let element = |index: usize| {
            let (row, position, h) = (index / hidden / seq, index / hidden % seq, index % hidden);
            dy[row * hidden + h] * of_backward.of(position, seq, extent.index(position))
        };
        dx.write_f32(&(0..dx.len()).map(element).collect::<Vec<_>>());
    }
}

#[test]
fn partial_sums_by_local_index_are_refused() {
    for weights in [Weights::LocalIndex, Weights::LocalMean, Weights::Offset] {
        for mesh in ["1", "cp=2", "cp=3", "dp=2,cp=2", "cp=6"] {
            let text = refusal(mesh, |rank| {
                let x: Stream = numbers(rank, "x", &SIZES);
                drop(apply(weights, (&x,), ()).all_reduce());
            });
            let part = "`weighted_sum` sums over `Seq`, but its sums over two halves";
            assert!(text.contains(part), "{weights:?} on {mesh}: {text}");
        }
    }
}

#[model]
struct Net {
    gain: Param<(Hidden,)>,
}

/// Returns the gradient of a gain in front of the sum.
fn gain_gradient(rank: &Rank, sum: impl Fn(&Stream) -> Tensor<(Batch, Hidden)>) -> Vec<f32> {
    let sizes = Sizes::new().with(Hidden, SIZES[2]);
    let built = meshwright::nn::build::<Net>(rank, &sizes).unwrap();
    let x: Stream = numbers(rank, "x", &SIZES);
    let y = sum(&(x * &built.model.gain));
    let gradients = Loss::mean_of(&y.tanh()).backward().reduce();
    gradients.gather(&built.params()[0])
}

#[test]
fn partial_sums_by_position_are_right() {
    let found = |mesh: &str| {
        let settings = meshwright::tensor::Settings::new(7);
        let run = |rank: &Rank| {
            gain_gradient(rank, |x| apply(Weights::Position, (x,), ()).all_reduce().scale(0.01))
        };
        on_mesh_with(mesh, 1, settings, run)
    };
    let expected = found("1").remove(0);
    for mesh in ["cp=2", "cp=3", "dp=2,cp=2", "cp=6"] {
        for gradient in found(mesh) {
            assert!(
                distance(&gradient, &expected) < 1e-5,
                "{mesh}: {gradient:?}, not {expected:?}"
            );
        }
    }
}

#[test]
fn backwards_by_local_index_are_refused() {
    for mesh in ["1", "cp=2", "dp=2,cp=2", "cp=6"] {
        let text = refusal(mesh, |rank| {
            gain_gradient(rank, |x| apply(Weights::LocalBackward, (x,), ()).all_reduce());
        });
        let part = "backward of `weighted_sum` writes another gradient of input 0";
        assert!(text.contains(part) && text.contains("along `Seq`"), "{mesh}: {text}");
    }
}

/// A function of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum OfRows {
    /// Each row less the mean of the rows of the rank: batch norm without its variance.
    Centered,
    /// Each row times its gain; backward divides the gradient of the gain by the rows of the rank.
    MeanOfGains,
    /// Each row times its index in the batch, and the gain.
    TimesIndex,
}

type Rows = ((Batch, Hidden),);
type Gain = ((Hidden,),);

impl Function<Rows, Gain> for OfRows {
    type Output = Tensor<(Batch, Hidden)>;
    type Saved = ();

    fn path(&self) -> &str {
        "of_rows"
    }

    fn forward_pass(&self, call: Forward<'_, Rows, Gain>) {
        let Forward { inputs: [x], params: [gain], mut output, .. } = call;
        let (data, gain, extent) = (x.to_f32(), gain.to_f32(), x.local_extents()[0]);
        let mean = |h: usize| {
            let rows = data.iter().skip(h).step_by(gain.len());
            rows.sum::<f32>() / extent.local as f32
        };
        let element = |(i, x): (usize, &f32)| match self {
            OfRows::Centered => (x - mean(i % gain.len())) * gain[i % gain.len()],
            OfRows::MeanOfGains => x * gain[i % gain.len()],
            OfRows::TimesIndex => {
                x * gain[i % gain.len()] * (1 + extent.index(i / gain.len())) as f32
            }
        };
        output.write_f32(&data.iter().enumerate().map(element).collect::<Vec<_>>());
    }

    fn backward_pass(&self, call: Backward<'_, Rows, Gain, ()>) {
        let ([dx], [dgain]) = (call.input_gradients, call.param_gradients);
        let ([x], [gain]) = (call.inputs, call.params);
        let (data, gain, dy) = (x.to_f32(), gain.to_f32(), call.output_gradient.to_f32());
        let extent = x.local_extents()[0];
        let of_row = |i: usize| match self {
            OfRows::TimesIndex => (1 + extent.index(i / gain.len())) as f32,
            _ => 1.0,
        };
        if let Some(mut dx) = dx.target() {
            let element = |(i, dy): (usize, &f32)| dy * gain[i % gain.len()] * of_row(i);
            dx.write_f32(&dy.iter().enumerate().map(element).collect::<Vec<_>>());
        }
        if let Some(mut dgain) = dgain.target() {
            let sum = |h: usize| {
                let terms = (h..data.len()).step_by(gain.len());
                terms.map(|i| dy[i] * data[i] * of_row(i)).sum::<f32>()
            };
            let count = if *self == OfRows::MeanOfGains { extent.local } else { 1 } as f32;
            dgain.write_f32(&(0..gain.len()).map(|h| sum(h) / count).collect::<Vec<_>>());
        }
    }
}

/// Returns the gradient of the gain of a function of 6 rows.
fn rows_gradient(rank: &Rank, function: OfRows) -> Vec<f32> {
    let sizes = Sizes::new().with(Hidden, SIZES[2]);
    let built = meshwright::nn::build::<Net>(rank, &sizes).unwrap();
    let x: Tensor<(Batch, Hidden)> = numbers(rank, "x", &[6, SIZES[2]]);
    let y = apply(function, (&x,), (&built.model.gain,));
    let gradients = Loss::mean_of(&y.tanh()).backward().reduce();
    gradients.gather(&built.params()[0])
}

/// Meshes with six, three, two and one rows on a rank, and with one and two.
const MESHES: [&str; 5] = ["1", "dp=2", "fsdp=3", "dp=2,fsdp=3", "dp=4"];

#[test]
fn functions_of_all_rows_are_refused() {
    for mesh in MESHES {
        let text = refusal(mesh, |rank| {
            rows_gradient(rank, OfRows::Centered);
        });
        assert!(text.contains("`of_rows` writes other results along `Batch`"), "{mesh}: {text}");
    }
}

#[test]
fn gradients_by_local_counts_are_refused() {
    for mesh in MESHES {
        let text = refusal(mesh, |rank| {
            rows_gradient(rank, OfRows::MeanOfGains);
        });
        let part = "backward of `of_rows` sums to another gradient of parameter 0";
        assert!(text.contains(part) && text.contains("along `Batch`"), "{mesh}: {text}");
    }
}

#[test]
fn functions_of_row_indices_are_right() {
    let expected = on_mesh("1", 1, |rank| rows_gradient(rank, OfRows::TimesIndex)).remove(0);
    for mesh in MESHES {
        for gradient in on_mesh(mesh, 1, |rank| rows_gradient(rank, OfRows::TimesIndex)) {
            assert!(
                distance(&gradient, &expected) < 1e-5,
                "{mesh}: {gradient:?}, not {expected:?}"
            );
        }
    }
}
