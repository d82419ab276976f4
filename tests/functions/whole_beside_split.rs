//! Functions with a dim that is split in one operand and whole in another, functions with options of their rank, and
//! functions that refuse half of their elements.

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, BackwardReads, Forward, Function, apply};
use meshwright_tests::data::numbers;
use meshwright_tests::run::on_mesh;

use super::refusal;

dims! { Batch @ data, Ffn }

type Inner = (Batch, Split<Ffn, Tp>);
type Input = (Inner,);
type Table = ((Ffn,),);

const SIZES: [usize; 2] = [4, 12];

#[model]
struct Net {
    gains: Param<(Ffn,)>,
}

/// Multiplies each element by that of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Gain {
    /// The one of its index in the global tensor.
    Global,
    /// The one of its index on the rank.
    Local,
    /// The one of its index on the rank, in backward only.
    LocalBackward,
}

impl Gain {
    fn index(self, extent: meshwright::tensor::Extent, index: usize, is_backward: bool) -> usize {
        match self {
            Gain::Local => index,
            Gain::LocalBackward if is_backward => index,
            _ => extent.index(index),
        }
    }
}

impl Function<Input, Table> for Gain {
    type Output = Tensor<Inner>;
    type Saved = ();

    fn path(&self) -> &str {
        "gain"
    }

    fn backward_reads(&self) -> BackwardReads<Input, Table> {
        BackwardReads::operands()
    }

    fn forward_pass(&self, call: Forward<'_, Input, Table>) {
        let Forward { inputs: [x], params: [gains], mut output, .. } = call;
        let (data, gains, extent) = (x.to_f32(), gains.to_f32(), x.local_extents()[1]);
        let of = |at: usize| data[at] * gains[self.index(extent, at % extent.local, false)];
        output.write_f32(&(0..data.len()).map(of).collect::<Vec<_>>());
    }

    fn backward_pass(&self, call: Backward<'_, Input, Table, ()>) {
        let Backward { inputs: [x], params: [gains], output_gradient: dy, .. } = call;
        let (data, gains, extent) = (x.to_f32(), gains.to_f32(), x.local_extents()[1]);
        let dy = dy.to_f32();
        let index = |at: usize| self.index(extent, at % extent.local, true);
        let ([dx], [dgains]) = (call.input_gradients, call.param_gradients);
        if let Some(mut dx) = dx.target() {
            dx.write_f32(&(0..dy.len()).map(|at| dy[at] * gains[index(at)]).collect::<Vec<_>>());
        }
        if let Some(mut dgains) = dgains.target() {
            let mut sums = vec![0.0; gains.len()];
            (0..dy.len()).for_each(|at| sums[index(at)] += dy[at] * data[at]);
            dgains.write_f32(&sums);
        }
    }
}

/// Returns the gradient of the table.
fn gradient(rank: &Rank, gain: Gain) -> Vec<f32> {
    let built = meshwright::nn::build::<Net>(rank, &Sizes::new().with(Ffn, SIZES[1])).unwrap();
    let x: Tensor<Inner> = numbers(rank, "x", &SIZES);
    let y = apply(gain, (&x,), (&built.model.gains,));
    let gradients = Loss::mean_of(&y.tanh()).backward().reduce();
    gradients.gather(&built.params()[0])
}

#[test]
fn tables_are_read_by_global_index() {
    let expected = on_mesh("1", 1, |rank| gradient(rank, Gain::Global)).remove(0);
    for mesh in ["tp=2", "dp=2", "dp=2,tp=2"] {
        for found in on_mesh(mesh, 1, |rank| gradient(rank, Gain::Global)) {
            let distance = meshwright_tests::compare::distance(&found, &expected);
            assert!(distance < 1e-5, "{mesh}: {distance}");
        }
    }
    for mesh in ["1", "tp=2", "dp=2,tp=2"] {
        for (gain, part) in [
            (Gain::Local, "`gain` writes other results along"),
            (Gain::LocalBackward, "backward of `gain` sums to another gradient of parameter 0"),
        ] {
            let text = refusal(mesh, |rank| drop(gradient(rank, gain)));
            assert!(
                text.contains(part) && text.contains("whole_beside_split.rs"),
                "{mesh}: {text}"
            );
        }
    }
}

/// Multiplies by a setting.
#[derive(Debug)]
struct Scale {
    by: f32,
    /// Refuses an odd number of elements on the rank.
    in_pairs: bool,
}

impl Function<Input> for Scale {
    type Output = Tensor<Inner>;
    type Saved = ();

    fn path(&self) -> &str {
        "scale"
    }

    fn options(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn backward_reads(&self) -> BackwardReads<Input, ()> {
        BackwardReads::nothing()
    }

    fn forward_pass(&self, call: Forward<'_, Input, ()>) {
        let Forward { inputs: [x], mut output, .. } = call;
        assert!(!self.in_pairs || x.local_extents()[1].local.is_multiple_of(2), "an odd number");
        output.write_f32(&x.to_f32().iter().map(|x| self.by * x).collect::<Vec<_>>());
    }

    fn backward_pass(&self, call: Backward<'_, Input, (), ()>) {
        let ([dx], dy) = (call.input_gradients, call.output_gradient.to_f32());
        if let Some(mut dx) = dx.target() {
            dx.write_f32(&dy.iter().map(|dy| self.by * dy).collect::<Vec<_>>());
        }
    }
}

/// Trains a step with a function in front of the loss, whose output ranks sum.
fn step(rank: &Rank, scale: Scale) {
    let built = meshwright::nn::build::<Net>(rank, &Sizes::new().with(Ffn, SIZES[1])).unwrap();
    let x: Tensor<(Batch, Ffn)> = numbers(rank, "x", &SIZES);
    let y = apply(scale, (&(x * &built.model.gains).slice(Ffn, Tp),), ());
    drop(Loss::mean_of(&y.tanh()).backward().reduce());
}

#[test]
fn options_are_those_of_all_ranks() {
    for mesh in ["tp=2", "dp=2", "fsdp=2,tp=2"] {
        let scale = |rank: &Rank| Scale { by: 1.0 + rank.index() as f32, in_pairs: false };
        let text = refusal(mesh, |rank| step(rank, scale(rank)));
        assert!(text.contains("the options of `scale`"), "{mesh}: {text}");
        assert!(text.contains("whole_beside_split.rs"), "{mesh}: {text}");
        on_mesh(mesh, 1, |rank| step(rank, Scale { by: 2.0, in_pairs: false }));
    }
}

/// Six elements of a rank are pairs, and half of them are not.
#[test]
fn functions_may_refuse_half_of_their_elements() {
    for mesh in ["1", "tp=2"] {
        on_mesh(mesh, 1, |rank| step(rank, Scale { by: 2.0, in_pairs: true }));
    }
}
