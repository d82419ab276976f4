//! Functions whose statements or kernels are wrong: each is refused by a message that names the function and the
//! operand.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use meshwright::layout::DimInfo;
use meshwright::nn::{Sizes, build};
use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, BackwardReads, Forward, Function, apply};
use meshwright_tests::data::numbers;
use meshwright_tests::run::on_mesh;

dims! { Batch @ data, Hidden, Ffn, Heads }

/// The mistake of a function.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// Forward leaves the last element of the output unwritten.
    PartOfOutput,
    /// Backward does not take the gradient of the input.
    NoInputGradient,
    /// Backward takes the gradient of the parameter, but does not write it.
    UnwrittenParamGradient,
    /// Backward reads an input that it does not save.
    UnsavedInput,
}

/// `x + shift`, with a fault.
struct Shift(Fault);

type Input = ((Batch, Hidden),);
type Params = ((Hidden,),);

impl Function<Input, Params> for Shift {
    type Output = Tensor<(Batch, Hidden)>;
    type Saved = ();

    fn path(&self) -> &str {
        "net.shift"
    }

    fn backward_reads(&self) -> BackwardReads<Input, Params> {
        BackwardReads::nothing()
    }

    fn forward_pass(&self, call: Forward<'_, Input, Params>) {
        let Forward { inputs: [x], params: [shift], mut output, .. } = call;
        let (x, shift) = (x.to_f32(), shift.to_f32());
        let sum: Vec<f32> = x.iter().zip(shift.iter().cycle()).map(|(x, s)| x + s).collect();
        if self.0 == Fault::PartOfOutput {
            let written = sum.len() - 1;
            output.view_mut().into_slice(0..written).write(&sum[..written]);
        } else {
            output.write_f32(&sum);
        }
    }

    fn backward_pass(&self, call: Backward<'_, Input, Params, ()>) {
        let Backward { inputs: [x], input_gradients: [dx], param_gradients: [dshift], .. } = call;
        if self.0 == Fault::UnsavedInput {
            x.to_f32();
        }
        if self.0 != Fault::NoInputGradient
            && let Some(mut dx) = dx.target()
        {
            dx.write_f32(&call.output_gradient.to_f32());
        }
        if let Some(mut dshift) = dshift.target()
            && self.0 != Fault::UnwrittenParamGradient
        {
            dshift.write_f32(&vec![1.0; dshift.len()]);
        }
    }
}

#[model]
struct Net {
    scale: Param<(Hidden,)>,
    shift: Param<(Hidden,)>,
}

/// Returns the message of the panic of `call`.
#[track_caller]
fn message(call: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(call)).expect_err("the function is refused");
    payload.downcast::<String>().map(|message| *message).expect("a message")
}

#[test]
fn faults_of_kernels_are_named() {
    for (fault, expected) in [
        (
            Fault::PartOfOutput,
            "the output of `net.shift` has 6 elements on this rank, but element 5 was not written",
        ),
        (
            Fault::NoInputGradient,
            "backward has not written the gradient of input 0 of `net.shift`: take it by `.target()`",
        ),
        (
            Fault::UnwrittenParamGradient,
            "the gradient of parameter 0 of `net.shift` has 3 elements on this rank, but element 0 was not written",
        ),
        (
            Fault::UnsavedInput,
            "input 0 of `net.shift` is read in backward, but not saved for it: set it in the function's \
             `backward_reads`",
        ),
    ] {
        on_mesh("1", 1, |rank| {
            let built = build::<Net>(rank, &Sizes::new().with(Hidden, 3)).unwrap();
            let x: Tensor<(Batch, Hidden)> = numbers(rank, "x", &[2, 3]);
            let got = message(|| {
                let y = apply(Shift(fault), (&(x * &built.model.scale),), (&built.model.shift,));
                let _ = Loss::mean_of(&y).backward();
            });
            assert!(got.starts_with(expected), "{got}");
        });
    }
}

/// A function that writes ones, whose shapes are wrong in a way that types do not show.
struct Ones<O> {
    size: Option<usize>,
    output: std::marker::PhantomData<fn() -> O>,
}

impl<O> Ones<O> {
    fn new(size: Option<usize>) -> Ones<O> {
        Ones { size, output: std::marker::PhantomData }
    }
}

macro_rules! ones {
    ($($input:ty => $output:ty;)*) => {$(
        impl Function<$input> for Ones<$output> {
            type Output = $output;
            type Saved = ();

            fn path(&self) -> &str {
                "ones"
            }

            fn new_size(&self, _: &DimInfo) -> Option<usize> {
                self.size
            }

            fn forward_pass(&self, call: Forward<'_, $input, ()>) {
                let mut output = call.output;
                output.write_f32(&vec![1.0; output.len()]);
            }

            fn backward_pass(&self, call: Backward<'_, $input, (), ()>) {
                for mut target in call.input_gradients.into_iter().filter_map(|dx| dx.target()) {
                    target.write_f32(&vec![1.0; target.len()]);
                }
            }
        }
    )*};
}

type SplitFfn = (Batch, Split<Ffn, Tp>);
type SplitHeads = (Batch, Split<Heads, Tp>);
type Rows = (Batch, Hidden);

ones! {
    (SplitFfn,) => Tensor<SplitHeads>;
    (Rows,) => Partial<(Batch,), Tp>;
    (Rows,) => Tensor<(Batch, Heads)>;
    (Rows, (Hidden,)) => Tensor<Rows>;
    ((Split<Hidden, Tp>, Batch),) => Tensor<(Batch, Hidden, Split<Ffn, Tp>)>;
}

#[test]
fn distributions_that_types_do_not_show_are_refused() {
    // The same on every mesh, also if the axis has one rank.
    for mesh in ["1", "tp=2"] {
        on_mesh(mesh, 1, |rank| {
            let rows: Tensor<Rows> = numbers(rank, "rows", &[2, 3]);
            let split: Tensor<SplitFfn> = numbers(rank, "split", &[2, 4]);
            let got = message(|| {
                apply(Ones::<Tensor<SplitHeads>>::new(Some(2)), (&split,), ());
            });
            let expected = "`ones`: input 0 has the dim `Split<Ffn, tp>`, distributed over tp, and the output \
                            (Batch, Split<Heads, tp>) has not: a sum over it is partial";
            assert!(got.starts_with(expected), "{got}");
            let got = message(|| {
                drop(apply(Ones::<Partial<(Batch,), Tp>>::new(None), (&rows,), ()));
            });
            assert!(got.starts_with("`ones`: the output is partial over tp, but no dim"), "{got}");
            let turned: Tensor<(Split<Hidden, Tp>, Batch)> = numbers(rank, "turned", &[4, 2]);
            let got = message(|| {
                let ones = Ones::<Tensor<(Batch, Hidden, Split<Ffn, Tp>)>>::new(Some(2));
                apply(ones, (&turned,), ());
            });
            assert!(got.contains("has another split of this dim: a rank would compute"), "{got}");
        });
    }
}

#[test]
fn sizes_are_checked() {
    on_mesh("1", 1, |rank| {
        let rows: Tensor<Rows> = numbers(rank, "rows", &[2, 3]);
        let vector: Tensor<(Hidden,)> = numbers(rank, "vector", &[4]);
        let got = message(|| {
            apply(Ones::<Tensor<Rows>>::new(None), (&rows, &vector), ());
        });
        assert!(
            got.starts_with("`ones`: input 0 has Hidden = 3, but input 1 has Hidden = 4"),
            "{got}"
        );
        let got = message(|| {
            apply(Ones::<Tensor<(Batch, Heads)>>::new(None), (&rows,), ());
        });
        assert!(got.starts_with("`ones`: no operand has the dim `Heads` of the output"), "{got}");
        let made = apply(Ones::<Tensor<(Batch, Heads)>>::new(Some(5)), (&rows,), ());
        assert_eq!(made.sizes(), [2, 5]);
    });
}

/// `x * x`, whose backward reads what the last forward has kept.
#[derive(Default)]
struct KeptSquare(Mutex<Vec<f32>>);

impl<B: Dim, H: Dim> Function<((B, H),)> for KeptSquare {
    type Output = Tensor<(B, H)>;
    type Saved = ();

    fn path(&self) -> &str {
        "kept_square"
    }

    fn forward_pass(&self, call: Forward<'_, ((B, H),), ()>) {
        let Forward { inputs: [x], mut output, .. } = call;
        let x = x.to_f32();
        output.write_f32(&x.iter().map(|x| x * x).collect::<Vec<_>>());
        *self.0.lock().unwrap() = x;
    }

    fn backward_pass(&self, call: Backward<'_, ((B, H),), (), ()>) {
        let Backward { input_gradients: [dx], output_gradient: dy, .. } = call;
        let kept = self.0.lock().unwrap();
        if let Some(mut dx) = dx.target() {
            let pairs = dy.to_f32().into_iter().zip(kept.iter().cycle());
            dx.write_f32(&pairs.map(|(dy, x)| 2.0 * x * dy).collect::<Vec<_>>());
        }
    }
}

#[test]
fn numbers_that_are_kept_elsewhere_than_in_saved_are_refused() {
    for mesh in ["1", "tp=2", "dp=2"] {
        on_mesh(mesh, 1, |rank| {
            let built = build::<Net>(rank, &Sizes::new().with(Hidden, 3)).unwrap();
            let x: Tensor<(Batch, Hidden)> = numbers(rank, "x", &[4, 3]);
            let got = message(|| {
                let y = apply(KeptSquare::default(), (&(x * &built.model.scale),), ());
                let _ = Loss::mean_of(&y).backward();
            });
            for part in ["backward of `kept_square` writes another gradient", "than in `Saved`"] {
                assert!(got.contains(part), "{mesh}: {got}");
            }
        });
    }
}
