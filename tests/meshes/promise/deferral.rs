//! Elementwise operations are deferred, and fused. No program can tell: results, gradients and refusals are the same as
//! of operations that are computed immediately, on every mesh.

use std::cell::RefCell;

use meshwright::backend::DType;
use meshwright::layout::Dims;
use meshwright::optim::{Ema, Sgd, SgdOptions};
use meshwright::prelude::*;
use meshwright::tensor::{Objective, Pooled, Rank, Settings, Unit};
use meshwright_tests::run::on_mesh_with;

use super::harness::{
    MESH_CASES, Numbers, ONE, OTHER_MESH_CASES, Steps, assert_mesh_parity, assert_parity_on, built,
    gradients_of, mesh, numbers, on, stage3,
};
use super::net::*;

fn batch(rank: &Rank) -> Batched {
    micro_batch(rank, (8, 6), (0, 1), true)
}

fn squares<S: Dims>(x: &Tensor<S>) -> Loss<S> {
    Loss::mean_of(&(x * x))
}

/// Returns the gradients of `loss` on every mesh, which equal one rank's.
#[track_caller]
fn gradients_on_one_rank(
    name: &str,
    loss: impl Fn(&Net, &Stream) -> Objective<Pooled> + Sync,
) -> Numbers {
    let body = |rank: &Rank| {
        let net = built::<Net>(rank, &sizes());
        let x = net.model.embed.forward(&batch(rank).tokens);
        let gradients = loss(&net.model, &net.model.plain.forward(&x)).backward().reduce();
        gradients_of(&net, &gradients)
    };
    assert_mesh_parity(name, body);
    assert_parity_on(name, &OTHER_MESH_CASES, body);
    on(ONE, body).unwrap().remove(0)
}

/// A result of `evaluate` is a constant, also if the operation has nothing to do on one rank.
#[test]
fn results_of_evaluate_have_no_gradient() {
    type Program = fn(&Net, &Stream, bool) -> Objective<Pooled>;
    // With `copied`, the constant is a copy of the numbers.
    fn constant<S: meshwright::layout::Shape>(
        x: &Stream,
        copied: bool,
        value: impl Fn() -> Tensor<S>,
    ) -> Tensor<S> {
        let rank = x.rank();
        let value = rank.evaluate(value);
        if copied { Tensor::from_block(rank, &value.sizes(), &value.to_local_vec()) } else { value }
    }
    let programs: [(&str, Program); 7] = [
        ("scale", |_, x, copied| Loss::mean_of(&(x * constant(x, copied, || x.scale(2.0)))).into()),
        ("slice", |_, x, copied| {
            let stop = constant(x, copied, || x.slice(Seq, Tp));
            Loss::mean_of(&(x.slice(Seq, Tp) * stop)).into()
        }),
        ("gather", |net, x, copied| {
            let y = net.up.forward(x);
            let stop = constant(x, copied, || y.gather(Ffn));
            Loss::mean_of(&(y.gather(Ffn) * stop)).into()
        }),
        ("gather in the background", |net, x, copied| {
            let y = net.up.forward(x);
            let stop = constant(x, copied, || y.start_gather(Ffn).wait());
            Loss::mean_of(&(y.gather(Ffn) * stop)).into()
        }),
        ("reduce_scatter", |net, x, copied| {
            let y = net.up.forward(x);
            let stop = constant(x, copied, || y.sum(Ffn).reduce_scatter(Seq));
            Loss::mean_of(&(y.sum(Ffn).reduce_scatter(Seq) * stop)).into()
        }),
        ("all_reduce in the background", |net, x, copied| {
            let y = net.up.forward(x);
            let stop = constant(x, copied, || y.sum(Ffn).start_all_reduce().wait());
            Loss::mean_of(&(y.sum(Ffn).all_reduce() * stop)).into()
        }),
        ("dropout", |net, x, copied| {
            let stop = constant(x, copied, || net.dropout.forward(x));
            Loss::mean_of(&(x * stop)).into()
        }),
    ];
    for (name, program) in programs {
        let attached = gradients_on_one_rank(name, |net, x| program(net, x, false));
        let copied = gradients_on_one_rank(name, |net, x| program(net, x, true));
        assert_eq!(attached, copied, "{name}");
    }
}

fn optimizer(rank: &Rank, units: &[std::rc::Rc<Unit>]) -> Sgd {
    Sgd::new(rank, units, SgdOptions::default())
}

/// A tensor has the numbers that the parameters had when it was computed, whenever it is read.
#[test]
fn tensors_keep_their_numbers_when_parameters_change() {
    type Change = fn(&Rank, &meshwright::nn::Built<Net>);
    fn step(rank: &Rank, net: &meshwright::nn::Built<Net>) {
        let x = net.model.embed.forward(&batch(rank).tokens) * &net.model.gain;
        optimizer(rank, &net.units)
            .step(0.5, squares(&net.model.bias.forward(&x)).backward().reduce());
    }
    fn write(_: &Rank, net: &meshwright::nn::Built<Net>) {
        net.model.gain.handle().write_global(&[7.0; 8]);
        net.params()
            .into_iter()
            .for_each(|param| param.write_global(&vec![3.0; param.global_len()]));
    }
    fn average(rank: &Rank, net: &meshwright::nn::Built<Net>) {
        let mut average = Ema::new(rank, &net.units, 0.5);
        step(rank, net);
        average.with_average(|| ());
    }
    let changes: [(&str, Change); 3] = [("step", step), ("write", write), ("average", average)];
    for (name, change) in changes {
        for evaluated in [false, true] {
            let run = |looked: bool| {
                move |rank: &Rank| {
                    let net = built::<Net>(rank, &sizes());
                    let model = &net.model;
                    let compute = || {
                        let x = model.embed.forward(&batch(rank).tokens);
                        [
                            model.bias.forward(&model.plain.forward(&x)),
                            (x * &model.gain).tanh() * &model.gain,
                        ]
                    };
                    let kept = if evaluated { rank.evaluate(compute) } else { compute() };
                    if looked {
                        kept.iter().for_each(|kept| drop(kept.to_local_vec()));
                    }
                    change(rank, &net);
                    let mut numbers = Numbers::new();
                    for (index, kept) in kept.iter().enumerate() {
                        let inner = kept.gather_to_vec();
                        numbers.insert(format!("kept {index}"), inner);
                    }
                    // What is still recorded does not count for the next steps.
                    step(rank, &net);
                    drop(kept);
                    step(rank, &net);
                    for param in net.params() {
                        numbers.insert(param.path().to_string(), param.gather(rank));
                    }
                    numbers
                }
            };
            assert_mesh_parity(name, run(false));
            assert_parity_on(name, &OTHER_MESH_CASES, run(false));
            let [later, first] = [false, true].map(|looked| on(ONE, run(looked)).unwrap());
            assert_eq!(later, first, "{name}, evaluated {evaluated}");
        }
    }
}

/// A model whose first unit is so small that a rank may hold no part of it.
#[model]
pub struct Small {
    gain: Param<(Hidden,)>,
    plain: Linear<Hidden, Hidden>,
    bias: Bias<Hidden>,
}

fn small_step(rank: &Rank, small: &meshwright::nn::Built<Small>, x: &Stream) {
    let y = small.model.bias.forward(&small.model.plain.forward(x)) * &small.model.gain;
    optimizer(rank, &small.units).step(0.5, squares(&y).backward().reduce());
}

#[test]
fn units_without_a_part_on_some_ranks_change_like_others() {
    let run = |looked: bool, averaged: bool, evaluated: bool| {
        move |rank: &Rank| {
            let net = built::<Net>(rank, &sizes());
            let small = built::<Small>(rank, &sizes());
            let mut average = Ema::new(rank, &small.units, 0.5);
            let x = rank.evaluate(|| net.model.embed.forward(&batch(rank).tokens));
            small_step(rank, &small, &x);
            let compute = || {
                let scaled = &x * &small.model.gain;
                let plain = small.model.plain.forward(&scaled) * &small.model.gain;
                let results = [scaled, plain];
                if looked {
                    results.iter().for_each(|result| drop(result.to_local_vec()));
                }
                results
            };
            let compute = || if evaluated { rank.evaluate(compute) } else { compute() };
            let kept = if averaged { average.with_average(compute) } else { compute() };
            small_step(rank, &small, &x);
            let mut numbers = Numbers::new();
            for (index, kept) in kept.iter().enumerate() {
                numbers.insert(format!("kept {index}"), kept.gather_to_vec());
            }
            for param in small.params() {
                numbers.insert(param.path().to_string(), param.gather(rank));
            }
            numbers
        }
    };
    for (averaged, evaluated) in [(false, false), (false, true), (true, false), (true, true)] {
        let name = format!("averaged {averaged}, evaluated {evaluated}");
        assert_mesh_parity(&name, run(false, averaged, evaluated));
        let [later, first] =
            [false, true].map(|looked| on(ONE, run(looked, averaged, evaluated)).unwrap());
        assert_eq!(later, first, "{name}");
    }
}

/// A rank that keeps a deferred tensor over a step takes part in all calls like the others.
#[test]
fn one_rank_may_keep_a_deferred_tensor() {
    assert_mesh_parity("kept by rank 0", |rank| {
        let net = built::<Net>(rank, &sizes());
        let small = built::<Small>(rank, &sizes());
        let x = rank.evaluate(|| net.model.embed.forward(&batch(rank).tokens));
        let mut kept = Vec::new();
        for _ in 0..3 {
            let scaled = small.model.bias.forward(&(&x * &small.model.gain));
            if rank.index() == 0 {
                kept.push(scaled);
            }
            small_step(rank, &small, &x);
        }
        small.params().iter().map(|param| (param.path().into(), param.gather(rank))).collect()
    });
}

/// The gradient of a loss of the average would be that of other parameters, also if they have changed as often since.
#[test]
fn a_loss_of_the_average_is_not_differentiated_after_a_step() {
    for steps in 1..4 {
        for case in [ONE, mesh("tp=2"), stage3("fsdp=2")] {
            let result = on(case, |rank| {
                let net = built::<Net>(rank, &sizes());
                let small = built::<Small>(rank, &sizes());
                let mut average = Ema::new(rank, &small.units, 0.5);
                let x = rank.evaluate(|| net.model.embed.forward(&batch(rank).tokens));
                small_step(rank, &small, &x);
                let forward = || small.model.plain.forward(&(&x * &small.model.gain));
                let loss = average.with_average(|| squares(&forward()));
                (0..steps).for_each(|_| small_step(rank, &small, &x));
                loss.backward().reduce().norm()
            });
            let error = result.expect_err("the parameters have changed");
            assert!(error.contains("was changed"), "{steps} steps on {case:?}: {error}");
        }
    }
}

/// Tensors that a program computes from the average, and returns, have its numbers.
#[test]
fn tensors_of_the_average_keep_its_numbers() {
    let run = |looked: bool| {
        move |rank: &Rank| {
            let net = built::<Net>(rank, &sizes());
            let mut average = Ema::new(rank, &net.units, 0.5);
            net.model.gain.handle().write_global(&[4.0; 8]);
            let x = net.model.embed.forward(&batch(rank).tokens);
            let scaled = average.with_average(|| {
                let scaled = &x * &net.model.gain;
                if looked {
                    scaled.to_local_vec();
                }
                scaled
            });
            Numbers::from([("scaled".to_string(), scaled.gather_to_vec())])
        }
    };
    assert_mesh_parity("average", run(false));
    assert_eq!(on(ONE, run(false)).unwrap(), on(ONE, run(true)).unwrap());
}

/// ZeRO stage 3 frees a unit when another one is read.
#[test]
fn an_expression_may_read_units_in_any_order() {
    type Program = fn(&Net, &Stream) -> Stream;
    let programs: [(&str, Program); 4] = [
        ("two units", |net, x| net.bias.forward(x) * &net.gain),
        ("one unit twice, with another in between", |net, x| {
            net.bias.forward(&(net.bias.forward(x) * &net.gain))
        }),
        ("an expression twice", |net, x| {
            let y = net.bias.forward(&net.plain.forward(x)) * &net.gain;
            y.silu() * y
        }),
        ("in a layer after it", |net, x| {
            let y = net.bias.forward(x) * &net.gain;
            net.norm.forward(&(net.plain.forward(&(y.tanh() * &y)) + y))
        }),
    ];
    for (name, program) in programs {
        assert_mesh_parity(name, |rank| {
            let net = built::<Net>(rank, &sizes());
            let x = net.model.embed.forward(&batch(rank).tokens);
            let mut steps = Steps::default();
            let loss = steps.note(squares(&program(&net.model, &x)));
            steps.add(loss);
            numbers(&net, steps)
        });
    }
}

/// A look at a tensor on some ranks changes nothing: neither the order of gradient reductions, nor any number.
#[test]
fn ranks_may_look_at_different_tensors() {
    type Look = fn(&Stream, &Net);
    let looks: [(&str, Look); 4] = [
        ("none", |_, _| ()),
        ("numbers", |x, _| drop(x.to_local_vec())),
        ("results of it", |x, _| {
            x.rank().evaluate(|| drop((x.scale(2.0) + x.tanh()).to_local_vec()));
        }),
        ("a layer's result", |x, net| {
            x.rank().evaluate(|| drop(net.norm.forward(&(x + x)).to_local_vec()));
        }),
    ];
    for (name, look) in looks {
        let body = |rank: &Rank| {
            let net = built::<Net>(rank, &sizes());
            let model = &net.model;
            let x = model.embed.forward(&batch(rank).tokens);
            let scaled = &x * &model.gain;
            let evaluated = rank.evaluate(|| &x * &model.gain);
            let biased = model.bias.forward(&x);
            // A layer's parameters are gathered at stage 3, which needs all ranks.
            if rank.index() == 0 || name == "a layer's result" {
                look(&scaled, model);
                look(&evaluated, model);
            }
            let mut steps = Steps::default();
            let y = model.layer_norm.forward(&biased) + &scaled;
            let loss = steps.note(squares(&(model.plain.forward(&y) + scaled)));
            steps.add(loss);
            numbers(&net, steps)
        };
        assert_mesh_parity(name, body);
        assert_parity_on(name, &OTHER_MESH_CASES, body);
    }
}

/// A block that keeps a constant mask from its first call on, and one that keeps what depends on its parameters.
#[model]
pub struct Masked {
    #[recompute]
    blocks: Stack<Kept>,
}

#[model]
pub struct Kept {
    up: Linear<Hidden, Hidden>,
}

type Mask = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

thread_local! {
    static MASK: RefCell<Option<Mask>> = const { RefCell::new(None) };
}

#[forward]
impl Kept {
    fn forward(&self, x: &Stream) -> Stream {
        let mask = MASK.with_borrow_mut(|mask| {
            let make = || {
                let at = |at: &[usize]| ((at[0] * 5 + at[1] * 3 + at[2]) % 4) as f32;
                Stream::from_fn(x.rank(), &x.sizes(), at).scale(0.5).slice(Seq, Tp)
            };
            mask.get_or_insert_with(make).clone()
        });
        self.up.forward(&(x.slice(Seq, Tp) * mask)).gather(Seq)
    }
}

#[forward]
impl Masked {
    fn forward(&self, x: &Stream) -> Stream {
        self.blocks.forward(x)
    }
}

#[test]
fn recomputed_layers_may_keep_constants() {
    assert_mesh_parity("constant mask", |rank| {
        MASK.set(None);
        let net = built::<Net>(rank, &sizes());
        let masked = built::<Masked>(rank, &sizes());
        let x = net.model.embed.forward(&batch(rank).tokens);
        let gradients = squares(&masked.model.forward(&x)).backward().reduce();
        MASK.set(None);
        gradients_of(&masked, &gradients)
    });
}

/// Two losses that share the result of a collective are refused everywhere, or nowhere.
#[test]
fn backward_twice_is_refused_on_every_mesh() {
    type Program = fn(&Net, &Stream) -> [Stream; 2];
    let programs: [(&str, Program, bool); 3] = [
        (
            "a slice",
            |net, x| {
                let scaled = x * &net.gain;
                [scaled.slice(Seq, Tp).gather(Seq), scaled.slice(Seq, Tp).gather(Seq).tanh()]
            },
            true,
        ),
        (
            "in the background",
            |net, x| {
                let scaled = (x * &net.gain).slice(Hidden, Tp);
                [scaled.start_gather(Hidden).wait(), scaled.gather(Hidden)]
            },
            true,
        ),
        ("nothing", |net, x| [x * &net.gain, (x * &net.gain).tanh()], false),
    ];
    for (name, program, is_refused) in programs {
        for case in [ONE, mesh("dp=2"), mesh("cp=2"), stage3("fsdp=2")].iter().chain(&MESH_CASES) {
            let result = on(*case, |rank| {
                let net = built::<Net>(rank, &sizes());
                let x = rank.evaluate(|| net.model.embed.forward(&batch(rank).tokens));
                let [a, b] = program(&net.model, &x).map(|x| squares(&x));
                a.accumulate().backward(b).reduce().norm()
            });
            match result {
                Ok(_) => assert!(!is_refused, "{name} on {case:?}: nothing was refused"),
                Err(error) => assert!(
                    is_refused && error.contains("whose operations are no longer recorded"),
                    "{name} on {case:?}: {error}"
                ),
            }
        }
    }
}

/// A recomputed layer that looks at other tensors in its first call.
#[model]
pub struct Curious {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

thread_local! {
    static HAS_LOOKED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[forward]
impl Curious {
    fn forward(&self, x: &Stream) -> Stream {
        if !HAS_LOOKED.replace(true) {
            let look = || self.up.forward(&self.norm.forward(&x.scale(3.0))).to_local_vec();
            drop(x.rank().evaluate(look));
        }
        x + self.down.forward(&self.up.forward(&self.norm.forward(x)).tanh())
    }
}

#[model]
pub struct CuriousBlocks {
    #[recompute(save = [norm, up])]
    saving: Stack<Curious>,
    #[recompute]
    blocks: Stack<Curious>,
}

#[test]
fn recomputed_layers_may_look() {
    for looks in [false, true] {
        assert_mesh_parity("a look in a recomputed layer", |rank| {
            let run = |looks: bool| {
                HAS_LOOKED.set(!looks);
                let net = built::<Net>(rank, &sizes());
                let curious = built::<CuriousBlocks>(rank, &sizes());
                let x = net.model.embed.forward(&batch(rank).tokens);
                let y = curious.model.saving.forward(&x);
                HAS_LOOKED.set(!looks);
                let y = curious.model.blocks.forward(&y);
                let gradients = squares(&y).backward().reduce();
                gradients_of(&curious, &gradients)
            };
            let numbers = run(looks);
            assert_eq!(numbers, run(false), "a look changes nothing");
            numbers
        });
    }
}

/// An evaluation rounded a tensor that it read, so that later operations had other numbers on the ranks that evaluate.
#[test]
fn an_evaluation_leaves_deferred_tensors_as_they_are() {
    let settings = Settings { compute: DType::Bf16, ..Settings::new(7) };
    let results = on_mesh_with("tp=2", 1, settings, |rank| {
        let net = built::<Net>(rank, &sizes());
        let x: Stream = Tensor::from_fn(rank, &[8, 6, 8], |at| (at[0] + at[1] * at[2]) as f32);
        let deferred = x.scale(0.01).tanh();
        if rank.index() == 0 {
            rank.evaluate(|| net.model.norm.forward(&deferred)).to_local_vec();
        }
        (deferred.scale(0.77) + x).to_local_vec()
    });
    assert_eq!(results[0], results[1]);
}
