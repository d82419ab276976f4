//! Functions whose mistake does not show in their first call with the numbers of a model: each is found with made-up
//! operands, by a second call, or when its settings change. Right functions of the same kinds are not refused.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshwright::mesh::Extent;
use meshwright::nn::build;
use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};
use meshwright_tests::data::numbers;

use super::refusal;

dims! { Batch @ data, Hidden }

type Rows = Tensor<(Batch, Hidden)>;

const SIZES: [usize; 2] = [8, 4];
const MESHES: [&str; 4] = ["1", "tp=2", "dp=2", "fsdp=4"];

/// Numbers of a block of rows, with its extents.
struct Block<'a> {
    x: &'a [f32],
    gate: &'a [f32],
    extents: &'a [Extent],
}

impl Block<'_> {
    fn map(&self, element: impl Fn(usize, f32) -> f32) -> Vec<f32> {
        self.x.iter().enumerate().map(|(i, x)| element(i, *x)).collect()
    }

    fn largest(&self) -> f32 {
        self.x.iter().fold(0.0f32, |most, x| most.max(x.abs()))
    }
}

/// A function of rows and a gate, with the gradients of `x + gate`.
trait Kernel: Send + Sync + 'static {
    fn compute(&self, block: &Block<'_>) -> Vec<f32>;

    fn options(&self) -> Option<String> {
        None
    }
}

impl<F: Fn(&Block<'_>) -> Vec<f32> + Send + Sync + 'static> Kernel for F {
    fn compute(&self, block: &Block<'_>) -> Vec<f32> {
        self(block)
    }
}

macro_rules! function {
    ($name:ident, [$($generic:tt)*], $batch:ty, $hidden:ty) => {
        impl<$($generic)* K: Kernel> Function<(($batch, $hidden),), (($hidden,),)> for $name<K> {
            type Output = Tensor<($batch, $hidden)>;
            type Saved = ();

            fn path(&self) -> &str {
                "kernel"
            }

            fn options(&self) -> Option<String> {
                self.0.options()
            }

            fn forward_pass(&self, call: Forward<'_, (($batch, $hidden),), (($hidden,),)>) {
                let Forward { inputs: [x], params: [gate], mut output, .. } = call;
                let (values, gate) = (x.to_f32(), gate.to_f32());
                let block = Block { x: &values, gate: &gate, extents: x.local_extents() };
                output.write_f32(&self.0.compute(&block));
            }

            fn backward_pass(&self, call: Backward<'_, (($batch, $hidden),), (($hidden,),), ()>) {
                let Backward { input_gradients: [dx], param_gradients: [dgate], .. } = call;
                let dy = call.output_gradient.to_f32();
                if let Some(mut dx) = dx.target() {
                    dx.write_f32(&dy);
                }
                if let Some(mut dgate) = dgate.target() {
                    let cols = dgate.len();
                    let sum = |col: usize| dy.iter().skip(col).step_by(cols).sum::<f32>();
                    dgate.write_f32(&(0..cols).map(sum).collect::<Vec<_>>());
                }
            }
        }
    };
}

struct OfRows<K>(K);
struct Generic<K>(K);
function!(OfRows, [], Batch, Hidden);
function!(Generic, [B: Dim, H: Dim,], B, H);

#[model]
struct Net {
    gate: Param<(Hidden,)>,
}

/// A program's use of a kernel.
#[derive(Debug, Clone, Copy)]
enum Way {
    Direct,
    Generic,
    Field,
    Helper,
}

const WAYS: [Way; 4] = [Way::Direct, Way::Generic, Way::Field, Way::Helper];

struct Layer<'a, K> {
    function: OfRows<Arc<K>>,
    gate: &'a Param<(Hidden,)>,
}

impl<K: Kernel> Layer<'_, K> {
    fn forward(self, x: &Rows) -> Rows {
        apply(self.function, (x,), (self.gate,))
    }
}

fn through_closure<K: Kernel>(kernel: K) -> impl Fn(&Rows, &Param<(Hidden,)>) -> Rows {
    let kernel = Arc::new(kernel);
    move |x, gate| apply(Generic(kernel.clone()), (x,), (gate,))
}

impl<K: Kernel + ?Sized> Kernel for Arc<K> {
    fn compute(&self, block: &Block<'_>) -> Vec<f32> {
        (**self).compute(block)
    }

    fn options(&self) -> Option<String> {
        (**self).options()
    }
}

/// Runs some steps of a model whose gate begins as zeros, with the kernel of each step.
fn train<K: Kernel>(rank: &Rank, way: Way, kernel: impl Fn(usize) -> K) {
    let sizes = Sizes::new().with(Hidden, SIZES[1]);
    let built = build::<Net>(rank, &sizes).unwrap();
    let gate = &built.model.gate;
    built.params()[0].write_global(&[0.0; SIZES[1]]);
    let x: Rows = numbers(rank, "x", &SIZES);
    for step in 0..12 {
        let kernel = kernel(step);
        let y = match way {
            Way::Direct => apply(OfRows(kernel), (&x,), (gate,)),
            Way::Generic => apply(Generic(kernel), (&x,), (gate,)),
            Way::Field => Layer { function: OfRows(Arc::new(kernel)), gate }.forward(&x),
            Way::Helper => through_closure(kernel)(&x, gate),
        };
        let _ = Loss::mean_of(&(&y * &y)).backward().reduce();
    }
}

#[track_caller]
fn is_refused<K: Kernel>(part: &str, kernel: impl Fn(usize) -> K + Sync) {
    for way in WAYS {
        for mesh in MESHES {
            let text = refusal(mesh, |rank| train(rank, way, &kernel));
            assert!(text.contains(part), "{way:?} on {mesh}: {text}");
        }
    }
}

#[track_caller]
fn is_right<K: Kernel>(kernel: impl Fn(usize) -> K + Sync) {
    for way in WAYS {
        for mesh in MESHES {
            meshwright_tests::run::on_mesh(mesh, 1, |rank| train(rank, way, &kernel));
        }
    }
}

/// The rows rolled by `shift`.
fn rolled(block: &Block<'_>, shift: usize) -> Vec<f32> {
    let (len, cols) = (block.x.len(), block.gate.len());
    block.map(|i, _| block.x[(i + shift * cols) % len])
}

#[derive(Debug)]
struct Roll {
    shift: usize,
}

impl Kernel for Roll {
    fn compute(&self, block: &Block<'_>) -> Vec<f32> {
        rolled(block, self.shift)
    }
}

/// It states its setting.
#[derive(Debug)]
struct StatedRoll(Roll);

impl Kernel for StatedRoll {
    fn compute(&self, block: &Block<'_>) -> Vec<f32> {
        self.0.compute(block)
    }

    fn options(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

#[test]
fn settings_that_are_raised_are_checked() {
    let shift_at = |step: usize, from| usize::from(step >= from);
    let part = "`kernel` writes other results along `Batch` if it is given half";
    for from in [1, 3, 9] {
        is_refused(part, move |step| Roll { shift: shift_at(step, from) });
        is_refused(part, move |step| StatedRoll(Roll { shift: shift_at(step, from) }));
        is_refused(part, move |step| {
            let shift = shift_at(step, from);
            move |block: &Block<'_>| rolled(block, shift)
        });
    }
}

thread_local! {
    static SHIFT: Cell<usize> = const { Cell::new(0) };
}

#[test]
fn settings_beside_the_function_are_checked() {
    is_refused("`kernel` writes other results along `Batch`", |step| {
        SHIFT.set(usize::from(step >= 4));
        |block: &Block<'_>| rolled(block, SHIFT.get())
    });
}

#[test]
fn stated_settings_are_checked_at_their_first_call() {
    // The call after many others, which no count selects.
    let text = refusal("1", |rank| {
        let built = build::<Net>(rank, &Sizes::new().with(Hidden, SIZES[1])).unwrap();
        let x: Rows = numbers(rank, "x", &SIZES);
        for call in 0..1001 {
            let kernel = StatedRoll(Roll { shift: usize::from(call == 1000) });
            apply(OfRows(kernel), (&x,), (&built.model.gate,));
        }
    });
    assert!(text.contains("along `Batch`"), "{text}");
}

fn mean_of_column(block: &Block<'_>, col: usize) -> f32 {
    let column = block.x.iter().skip(col).step_by(block.gate.len());
    column.sum::<f32>() / block.extents[0].local as f32
}

#[test]
fn branches_that_begin_as_zero_are_checked() {
    let part = "`kernel` writes other results along `Batch`";
    is_refused(part, |_| {
        |block: &Block<'_>| {
            let cols = block.gate.len();
            block.map(|i, x| x + block.gate[i % cols] * mean_of_column(block, i % cols))
        }
    });
    is_refused(part, |_| {
        |block: &Block<'_>| {
            let cols = block.gate.len();
            block.map(|i, x| x * (1.0 + block.gate[i % cols] * (i / cols) as f32))
        }
    });
}

/// Rounds to multiples of `scale / 128`.
fn quantized(x: f32, scale: f32) -> f32 {
    (x / scale * 128.0).round().clamp(-128.0, 127.0) * scale / 128.0
}

#[test]
fn scales_of_a_block_are_refused() {
    let part = "`kernel` writes other results along `Batch`";
    is_refused(part, |_| |block: &Block<'_>| block.map(|_, x| quantized(x, block.largest())));
    // A power of two, which is the same for both halves of most samples.
    is_refused(part, |_| {
        |block: &Block<'_>| {
            let scale = block.largest().log2().ceil().exp2();
            block.map(|_, x| quantized(x, scale))
        }
    });
    // Of numbers with an exponent; only small ones are lost.
    is_refused(part, |_| {
        |block: &Block<'_>| {
            let least = block.largest().log2().ceil().exp2() / 512.0;
            block.map(|_, x| if x.abs() < least { 0.0 } else { x })
        }
    });
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn counters_are_refused() {
    let part = "`kernel` writes other results if it is called again with the same operands";
    is_refused(part, |_| {
        |block: &Block<'_>| {
            let call = CALLS.fetch_add(1, Ordering::Relaxed);
            block.map(|_, x| x * (1 + call) as f32)
        }
    });
    let shared = Arc::new(AtomicUsize::new(0));
    is_refused(part, move |_| {
        let shared = shared.clone();
        move |block: &Block<'_>| {
            let call = shared.fetch_add(1, Ordering::Relaxed);
            block.map(|_, x| x + 1e-6 * x * call as f32)
        }
    });
    is_refused(part, |_| {
        |block: &Block<'_>| {
            let call = SHIFT.replace(SHIFT.get() + 1);
            block.map(|_, x| x - call as f32)
        }
    });
}

#[test]
fn right_functions_are_not_refused() {
    is_right(|_| |block: &Block<'_>| block.map(|_, x| x.ln()));
    is_right(|_| |block: &Block<'_>| block.map(|_, x| x.sqrt() + (40.0 * x).exp()));
    is_right(|step| move |block: &Block<'_>| block.map(|_, x| x * (1 + step) as f32));
    is_right(|_| {
        |block: &Block<'_>| {
            let (cols, rows) = (block.gate.len(), block.extents[0]);
            block.map(|i, x| x + block.gate[i % cols] * rows.index(i / cols) as f32)
        }
    });
    // A fixed scale, and one of each row.
    is_right(|_| |block: &Block<'_>| block.map(|_, x| quantized(x, 2.0)));
    is_right(|_| {
        |block: &Block<'_>| {
            let cols = block.gate.len();
            let row = |i: usize| &block.x[i / cols * cols..][..cols];
            let largest = |i| row(i).iter().fold(1e-9f32, |most, x| most.max(x.abs()));
            block.map(|i, x| quantized(x, largest(i)))
        }
    });
    // Indices of a table, beyond which it panics.
    is_right(|_| {
        |block: &Block<'_>| {
            assert!(block.x.iter().all(|x| x.abs() < 4.0), "not an index");
            block.map(|_, x| [1.0, 2.0, 4.0, 8.0][x.abs() as usize])
        }
    });
    // A counter on which nothing depends.
    is_right(|_| {
        |block: &Block<'_>| {
            CALLS.fetch_add(1, Ordering::Relaxed);
            block.map(|_, x| x.tanh())
        }
    });
}

/// Each row of `x` times an element of `scale`.
struct ScaleRows {
    /// Backward divides the gradient of the scale by the rows of the rank.
    divides: bool,
    /// Backward refuses to compute the gradient of the scale.
    refuses: bool,
}

impl Function<((Batch, Hidden), (Batch,))> for ScaleRows {
    type Output = Rows;
    type Saved = ();

    fn path(&self) -> &str {
        "scale_rows"
    }

    fn forward_pass(&self, call: Forward<'_, ((Batch, Hidden), (Batch,)), ()>) {
        let Forward { inputs: [x, scale], mut output, .. } = call;
        let (x, scale, cols) = (x.to_f32(), scale.to_f32(), x.local_extents()[1].local);
        output.write_f32(&(0..x.len()).map(|i| x[i] * scale[i / cols]).collect::<Vec<_>>());
    }

    fn backward_pass(&self, call: Backward<'_, ((Batch, Hidden), (Batch,)), (), ()>) {
        let Backward { inputs: [x, scale], input_gradients: [dx, dscale], .. } = call;
        let (rows, cols) = (x.local_extents()[0].local, x.local_extents()[1].local);
        let (x, scale, dy) = (x.to_f32(), scale.to_f32(), call.output_gradient.to_f32());
        if let Some(mut dx) = dx.target() {
            dx.write_f32(&(0..x.len()).map(|i| dy[i] * scale[i / cols]).collect::<Vec<_>>());
        }
        if let Some(mut dscale) = dscale.target() {
            assert!(!self.refuses, "the scale is a constant");
            let count = if self.divides { rows } else { 1 } as f32;
            let sum =
                |row: usize| (row * cols..(row + 1) * cols).map(|i| dy[i] * x[i]).sum::<f32>();
            dscale.write_f32(&(0..rows).map(|row| sum(row) / count).collect::<Vec<_>>());
        }
    }
}

fn scale_rows(rank: &Rank, function: ScaleRows) {
    let built = build::<Net>(rank, &Sizes::new().with(Hidden, SIZES[1])).unwrap();
    let x: Rows = numbers(rank, "x", &SIZES);
    let scale: Tensor<(Batch,)> = numbers(rank, "scale", &SIZES[..1]);
    let y = apply(function, (&(x * &built.model.gate), &scale), ());
    let _ = Loss::mean_of(&y).backward().reduce();
}

#[test]
fn gradients_that_are_not_required_are_checked() {
    for mesh in MESHES {
        let text = refusal(mesh, |rank| {
            scale_rows(rank, ScaleRows { divides: true, refuses: false });
        });
        let part = "backward of `scale_rows` writes another gradient of input 1";
        assert!(text.contains(part), "{mesh}: {text}");
        // One that no program may require has none to check.
        for refuses in [false, true] {
            meshwright_tests::run::on_mesh(mesh, 1, |rank| {
                scale_rows(rank, ScaleRows { divides: false, refuses });
            });
        }
    }
}
