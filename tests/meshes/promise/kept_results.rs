//! Masks, indices and other results without a gradient that a cell keeps: nothing recorded leads to them, so they are
//! refused by their origin in another layer that is recomputed, or in another pipeline stage.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use meshwright::nn::{Build, LayerIndex, build};
use meshwright::prelude::*;
use meshwright::tensor::{Index, Loss, Mask, ParamRef};

use super::harness::{Numbers, ONE, assert_parity_on, mesh, on, stage3};

dims! { Batch @ data, Hidden, Kept }

type Stream = Tensor<(Batch, Hidden)>;

/// A change of the result `y` of a layer with this number and the input `x`.
type Shared = fn(usize, &Stream, Stream) -> Stream;

thread_local! {
    static SHARED: Cell<Shared> = const { Cell::new(|_, _, y| y) };
    static ANY: RefCell<Option<Rc<dyn Any>>> = const { RefCell::new(None) };
}

fn keep<T: Any>(kept: T) {
    ANY.set(Some(Rc::new(kept)));
}

fn kept<T: Any + Clone>() -> Option<T> {
    let any = ANY.with_borrow(Clone::clone)?;
    any.downcast_ref::<T>().cloned()
}

#[model]
struct Block {
    layer: LayerIndex,
    mix: Linear<Hidden, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        x + SHARED.get()(self.layer.get(), x, self.mix.forward(x))
    }
}

#[model]
struct Plain {
    blocks: Stack<Block>,
}

#[forward]
impl Plain {
    fn forward(&self, x: &Stream) -> Stream {
        self.blocks.forward(x)
    }
}

#[model]
struct Recomputed {
    #[recompute]
    blocks: Stack<Block>,
}

#[forward]
impl Recomputed {
    fn forward(&self, x: &Stream) -> Stream {
        self.blocks.forward(x)
    }
}

#[model]
struct Staged {
    #[pipeline_stage]
    blocks: Stack<Block>,
}

#[forward]
impl Staged {
    fn forward(&self, x: &Stream) -> Stream;
}

fn sizes() -> Sizes {
    let mut sizes = Sizes::new().with(Hidden, 6).with(Layers, 3);
    sizes.init_std = 0.4;
    sizes
}

/// Trains on two micro-batches, and returns the gradients of both.
fn step<M: Build + Module<In = Stream, Out = Stream>>(rank: &Rank, shared: Shared) -> Numbers {
    SHARED.set(shared);
    ANY.take();
    let built = build::<M>(rank, &sizes()).unwrap();
    let mut numbers = Numbers::default();
    for index in 0..2 {
        let x = Stream::from_fn(rank, &[4, 6], |at| ((7 * index + 6 * at[0] + at[1]) as f32).sin());
        let gradients = Loss::mean_of(&built.model.forward(&x).square()).backward().reduce();
        let of = |param: &ParamRef| (format!("{} {index}", param.path()), gradients.gather(param));
        numbers.extend(built.params().iter().map(of));
    }
    numbers
}

/// Results of another layer.
const WRONG: [Shared; 6] = [
    |layer, _, y| {
        let old = kept::<Mask<(Batch, Hidden)>>();
        keep(y.gt(0.0));
        if layer > 0 { y.masked(&old.unwrap(), 0.0) } else { y }
    },
    // Combined with another mask, in a closure.
    |layer, _, y| {
        type Masked = Rc<dyn Fn(&Stream) -> Stream>;
        let old = kept::<Masked>();
        let mask = !y.gt(0.0) | y.lt(-1.0);
        keep::<Masked>(Rc::new(move |x| x.masked(&(&mask & &x.gt(-2.0)), 0.0)));
        if layer > 0 { old.unwrap()(&y) } else { y }
    },
    // Its weights, computed further.
    |layer, _, y| {
        let old = kept::<Tensor<(Batch,)>>();
        keep(y.gt(0.0).as_weights().scale(0.5).sum(Hidden).tanh());
        if layer > 0 { y * old.unwrap() } else { y }
    },
    |layer, _, y| {
        let old = kept::<Index<Hidden, (Batch, Kept)>>();
        keep(y.top_k(Hidden, 2, Kept).1);
        if layer > 0 { &y + y.take(&old.unwrap(), (Batch,)).sum(Kept) } else { y }
    },
    |layer, x, y| {
        let old = kept::<Index<Hidden, (Batch,)>>();
        keep(x.arg_max(Hidden));
        if layer > 0 { &y + y.take(&old.unwrap(), (Batch,)) } else { y }
    },
    // A tensor with a gradient that is only compared.
    |layer, _, y| {
        let old = kept::<Stream>();
        keep(y.clone());
        if layer > 0 { y.masked(&old.unwrap().gt(0.0), 0.0) } else { y }
    },
];

#[test]
fn results_of_other_layers_are_refused() {
    for (index, shared) in WRONG.into_iter().enumerate() {
        for case in [ONE, mesh("tp=2"), stage3("fsdp=2")] {
            let staged = on(case, |rank: &Rank| drop(step::<Staged>(rank, shared)));
            let recomputed = on(case, |rank: &Rank| drop(step::<Recomputed>(rank, shared)));
            for (name, result, part) in [
                ("staged", staged, "has computed is used in `blocks."),
                ("recomputed", recomputed, "recomputed `blocks"),
            ] {
                let text = result.expect_err("the result is refused");
                assert!(text.contains(part), "{index} {name} on {}: {text}", case.mesh);
                let line = "tests/meshes/promise/";
                assert!(text.contains(line), "{index} {name} on {}: no line in {text}", case.mesh);
            }
        }
    }
}

/// Results of the layer itself, constants, and what is only looked at.
const RIGHT: [Shared; 4] = [
    |_, _, y| {
        keep(y.gt(0.0));
        y.masked(&kept::<Mask<(Batch, Hidden)>>().unwrap(), 0.0)
    },
    |_, _, y| {
        keep(y.top_k(Hidden, 2, Kept).1);
        let index = kept::<Index<Hidden, (Batch, Kept)>>().unwrap();
        &y + y.take(&index, (Batch,)).sum(Kept)
    },
    |_, x, y| {
        let positions = || Stream::from_fn(x.rank(), &[4, 6], |at| (at[1] % 2) as f32).gt(0.5);
        let mask = kept::<Mask<(Batch, Hidden)>>().unwrap_or_else(positions);
        keep(mask.clone());
        y.masked(&mask, 0.0)
    },
    |_, x, y| {
        if let Some(mask) = kept::<Mask<(Batch, Hidden)>>() {
            let weights = x.rank().evaluate(|| mask.as_weights().gather_to_vec());
            assert!(weights.iter().all(|weight| [0.0, 1.0].contains(weight)));
        }
        keep(y.gt(0.0));
        y
    },
];

#[test]
fn other_results_are_not_refused() {
    for (index, shared) in RIGHT.into_iter().enumerate() {
        let plain = on(ONE, |rank: &Rank| step::<Plain>(rank, shared)).unwrap();
        let recomputed = on(ONE, |rank: &Rank| step::<Recomputed>(rank, shared)).unwrap();
        assert_eq!(plain, recomputed, "{index}");
        let cases = [mesh("tp=2"), mesh("dp=2"), stage3("fsdp=2")];
        assert_parity_on(&format!("staged {index}"), &cases, |rank| step::<Staged>(rank, shared));
    }
}

#[model]
struct Comparing {
    mix: Linear<Hidden, Hidden>,
}

#[forward]
impl Comparing {
    fn forward(&self, x: &Stream) -> (Stream, Stream) {
        let y = self.mix.forward(x);
        let weights = y.gt(0.0).as_weights();
        (y, weights)
    }
}

#[model]
struct Masking {
    mix: Linear<Hidden, Hidden>,
}

#[forward]
impl Masking {
    fn forward(&self, (x, weights): &(Stream, Stream)) -> Stream {
        self.mix.forward(x).masked(&weights.ne(0.0), 0.0)
    }
}

/// Layers that pass the weights of a mask on.
#[model]
struct Passing {
    #[pipeline_stage]
    first: Comparing,
    #[pipeline_stage]
    last: Masking,
}

#[forward]
impl Passing {
    fn forward(&self, x: &Stream) -> Stream;
}

#[model]
struct PassingRecomputed {
    #[pipeline_stage]
    #[recompute]
    first: Comparing,
    #[pipeline_stage]
    #[recompute]
    last: Masking,
}

#[forward]
impl PassingRecomputed {
    fn forward(&self, x: &Stream) -> Stream;
}

#[test]
fn weights_of_a_mask_are_passed_on() {
    let shared: Shared = |_, _, y| y;
    let cases = [mesh("tp=2"), mesh("dp=2"), stage3("fsdp=2")];
    assert_parity_on("passing", &cases, |rank| step::<Passing>(rank, shared));
    let plain = on(ONE, |rank: &Rank| step::<Passing>(rank, shared)).unwrap();
    let recomputed = on(ONE, |rank: &Rank| step::<PassingRecomputed>(rank, shared)).unwrap();
    assert_eq!(plain, recomputed);
}
