//! The gradient of every operation against finite differences, and of losses against formulas, on one rank.

mod shapes;

use meshwright::backend::Category;
use meshwright::layout::{AxisSet, Shape, Tp};
use meshwright::model;
use meshwright::nn::{AttentionOptions, Built, Layer, Linear, NormOptions, Padding, Sizes, build};
use meshwright::tensor::function::apply;
use meshwright::tensor::{
    Gradients, Loss, Mask, Param, ParamRef, Rank, Reduced, Targets, Tensor, Tokens,
};
use meshwright_examples::gated_norm::GatedNorm;
use meshwright_tests::compare::{Report, distance, scalar_distance};
use meshwright_tests::data::numbers;
use meshwright_tests::models::operations::{
    Batch, Buckets, Ffn, HeadDim, Heads, Hidden, KvHeads, Memory, Operations, Seq, Stream, Vocab,
};
use meshwright_tests::run::on_mesh;

const SEQ: usize = 5;
const HIDDEN: usize = 6;
const VOCAB: usize = 7;

/// Step of the finite differences, whose error is proportional to its fourth power, plus rounding divided by it.
const STEP: f32 = 1.0 / 32.0;
/// Relative, by the norm of a parameter's gradient. Seen: 3e-5.
const DIFFERENCES: f64 = 1e-4;
/// Relative, against a formula in f64.
const FORMULA: f64 = 1e-6;

/// An operation: its name, and a function that probes its result.
type Operation = (&'static str, fn(&Operations, &Stream, &Stream) -> Probe);

/// All operations, applied to two inputs.
const OPERATIONS: &[Operation] = &[
    ("silu", |_, x, _| probe(&x.silu())),
    ("gelu", |_, x, _| probe(&x.gelu())),
    ("gelu_tanh", |_, x, _| probe(&x.gelu_tanh())),
    ("tanh", |_, x, _| probe(&x.tanh())),
    ("exp", |_, x, _| probe(&x.exp())),
    ("sigmoid", |_, x, _| probe(&x.sigmoid())),
    ("softplus", |_, x, _| probe(&x.softplus())),
    ("square", |_, x, _| probe(&x.square())),
    ("log", |_, x, _| probe(&(x.square() + 1.0).log())),
    ("sqrt", |_, x, _| probe(&(x.square() + 1.0).sqrt())),
    ("rsqrt", |_, x, _| probe(&(x.square() + 1.0).rsqrt())),
    ("recip", |_, x, _| probe(&(x.square() + 2.0).recip())),
    ("abs and clamp", |_, x, _| probe(&((x + 3.0).abs() * (x - 3.0).abs() + x.clamp(-3.0, 3.0)))),
    ("sin and cos", |_, x, y| probe(&((x * 2.0).sin() * (y * 2.0).cos()))),
    ("powers", |_, x, y| probe(&((x.square() + 1.0).pow(1.5) * (y.square() + 1.0).pow(-0.5)))),
    ("maximum and minimum", |_, x, y| {
        // Far from equal, so that small changes do not exchange them.
        let x = x + x.like(|at| if (at[1] + at[2]) % 2 == 0 { 4.0 } else { -4.0 });
        probe(&(x.maximum(y) * x.minimum(&(y + 0.2)) + x.maximum(0.1)))
    }),
    ("chosen by a mask", |_, x, y| {
        let positive = x.gt(0.0) & x.lt(2.0);
        // A root that is NaN where it is not chosen.
        probe(&(positive.choose(&(x * y.exp()).sqrt(), &(y * x)) * y))
    }),
    ("masked by values and positions", |ops, x, y| {
        let masked = x.masked(&Mask::causal(Seq, Hidden), -0.5) * y;
        probe(&masked.masked(&!ops.gain.tensor().ge(0.3), 0.7))
    }),
    ("repeated along leading dims", |ops, x, y| {
        probe(&(x * (ops.gain.tensor() * 0.3).tanh() * y + ops.other.tensor().square()))
    }),
    ("repeated along trailing dims", |_, x, y| {
        let (of_tokens, of_samples) = ((x * y).mean(Hidden), y.mean(Seq));
        let scaled = x * (&of_tokens + 1.0).tanh() + of_samples.square();
        probe(&(scaled.clone() - scaled.mean(Hidden)))
    }),
    ("a number for all", |_, x, y| {
        let number = (x * y).mean(Hidden).mean(Seq).mean(Batch).all_reduce();
        probe(&((x * number.exp() - y) / (number.square() + 1.0)))
    }),
    ("more repeated operands than one kernel takes", |ops, x, y| {
        let (a, b) = ((x * 2.0).mean(Seq), y.mean(Hidden));
        let (c, d) =
            (x.mean(Hidden).mean(Batch).all_reduce(), y.mean(Seq).mean(Batch).all_reduce());
        let e = y.mean(Seq).mean(Hidden);
        probe(&((x * &a + &b) * (y * &c - &d) * &e + x.mul_along(&b).add_along(&ops.gain.tensor())))
    }),
    ("softmax", |_, x, y| probe(&(x.softmax() * y))),
    ("scale", |_, x, _| probe(&x.scale(-1.5))),
    ("relu", |_, x, _| probe(&x.scale(8.0).relu())),
    ("add", |_, x, y| probe(&(x + y))),
    ("sub", |_, x, y| probe(&(x - y))),
    ("mul", |_, x, y| probe(&(x * y))),
    ("div", |_, x, y| probe(&(x / (y.square() + 2.0)))),
    ("numbers divided and divisors", |_, x, y| probe(&(2.0 / (x.square() + 2.0) + y / 0.7))),
    ("numbers whose reciprocals are not normal", |_, x, y| {
        let quotient = (y.scale(1e30) / 1e38).scale(1e8);
        probe(&(quotient + 2e38 / (x.square() + 2.0).scale(1e38)))
    }),
    ("assignments", |ops, x, y| {
        let mut z = x.clone();
        z += y;
        z *= x;
        z -= &ops.gain;
        z /= 1.5;
        z /= y.square() + 2.0;
        probe(&z)
    }),
    ("x + x and x * x", |_, x, _| probe(&(x + x * x))),
    ("x + x", |_, x, _| probe(&(x + x))),
    ("x - x * x - x", |_, x, _| probe(&(x - x * x - x))),
    ("expressions that are read several times", |ops, x, y| {
        let t = (x * &ops.gain + &ops.gain).tanh();
        let u = &t * &t + &t - (y + y);
        probe(&(&u * &u + (&t + &u).silu() * &ops.gain + t))
    }),
    ("dropout that is read twice", |ops, x, y| {
        let z = ops.dropout.forward(&(x * y));
        probe(&(&z * &z + z))
    }),
    ("swiglu", |_, x, y| probe(&(x.silu() * y))),
    ("long expression", |_, x, y| {
        let mut z = x.clone();
        for _ in 0..5 {
            z = (&z * y).tanh() + x - z.scale(0.5).silu();
        }
        probe(&z)
    }),
    ("add a parameter", |ops, x, _| probe(&(x + &ops.gain))),
    ("subtract a parameter", |ops, x, _| probe(&(x - &ops.gain))),
    ("multiply by a parameter", |ops, x, y| probe(&(x * &ops.gain * y))),
    ("divide by a parameter", |ops, x, y| probe(&(x / &ops.gain * y))),
    ("a function of a parameter", |ops, x, y| probe(&(x * (y * 0.0 + &ops.gain).tanh()))),
    ("add a matrix", |ops, x, y| probe(&(x * y + &ops.other))),
    ("bias", |ops, x, y| probe(&(ops.bias.forward(&x.tanh()) * y))),
    ("dropout", |ops, x, y| probe(&ops.dropout.forward(&(x * y)))),
    ("rms_norm", |ops, x, _| probe(&ops.rms_norm.forward(x))),
    ("rms_norm with an offset", |ops, x, _| probe(&ops.offset_norm.forward(x))),
    ("layer_norm", |ops, x, _| probe(&ops.layer_norm.forward(x))),
    ("norms around which their input passes", |ops, x, y| {
        let z = x + ops.rms_norm.forward(x) * y;
        probe(&(&z + ops.layer_norm.forward(&z).tanh()))
    }),
    ("linear", |ops, x, _| probe(&ops.linear.forward(x))),
    ("contract", |ops, x, y| probe(&(x * y).contract(&ops.matrix))),
    ("sum", |_, x, y| probe(&(x * y).sum(Seq))),
    ("mean", |_, x, y| probe(&(x * y).mean(Hidden))),
    ("sum and mean over two dims", |_, x, y| {
        let z = x * y;
        probe(&(z.sum((Hidden, Seq)) * z.mean((Seq, Hidden))))
    }),
    ("mean over two dims apart", |_, x, y| probe(&(x * y).mean((Batch, Hidden)).all_reduce())),
    ("max and min", |_, x, y| {
        let (x, y) = (apart(&(x * y)), apart(x));
        probe(&(x.max(Hidden) * x.min(Hidden) + y.max(Hidden)))
    }),
    ("max over another dim", |_, x, y| probe(&(apart(&(x * y)).max(Seq) * apart(x).min(Seq)))),
    ("var", |_, x, y| probe(&((x * y).var(Hidden)))),
    ("var over another dim", |_, x, y| probe(&((x * y).var(Seq)))),
    ("norm", |_, x, y| probe(&((x + y).norm(Hidden)))),
    ("norm over another dim", |_, x, y| probe(&((x + y).norm(Seq)))),
    ("log_sum_exp", |_, x, y| probe(&((x * y).log_sum_exp(Hidden)))),
    ("log_sum_exp over another dim", |_, x, y| probe(&((x * y).log_sum_exp(Seq)))),
    ("softmax over another dim", |_, x, y| probe(&(x.softmax_over(Seq) * y))),
    ("softmax over the last dim", |_, x, y| probe(&(x.softmax_over(Hidden) * y))),
    ("log_softmax", |_, x, y| probe(&(x.log_softmax() * y + x.log_softmax_over(Seq)))),
    ("across", |_, x, y| {
        let z = apart(&(x * y)).slice(Seq, Tp) * 0.25;
        let columns = z.across().max(Seq) * z.across().min(Seq) + z.across().log_sum_exp(Seq);
        probe(&(columns + z.across().var(Seq) + z.across().norm(Seq)))
    }),
    ("softmaxes across", |_, x, y| {
        let (x, y) = (x.slice(Seq, Tp), y.slice(Seq, Tp));
        let z = x.across().softmax_over(Seq) * &y + x.across().log_softmax_over(Seq);
        probe(&z.gather(Seq))
    }),
    ("sum over samples", |_, x, y| probe(&(x * y).sum(Batch).all_reduce())),
    ("gather and slice", |ops, x, _| {
        probe(&x.slice(Seq, Tp).silu().gather(Seq).contract(&ops.matrix))
    }),
    ("shifts", |_, x, y| probe(&(x.shift(Seq, 2) * y + x.shift(Hidden, -1) + y.shift(Seq, -9)))),
    ("causal convolution", |ops, x, y| probe(&(ops.causal_conv.forward(&(x * y)) * x))),
    ("convolution", |ops, x, y| probe(&ops.conv1d.forward(&(x * y)))),
    ("rope", |ops, x, _| probe(&ops.rope.forward(&ops.q.forward(x)))),
    ("rope without heads", |ops, x, _| probe(&ops.rope.forward(&ops.q.forward(x).sum(Heads)))),
    ("attention", |ops, x, y| {
        let (q, k, v) = (ops.q.forward(x), ops.k.forward(y), ops.v.forward(&(x * y)));
        probe(&ops.o.forward(&ops.attention.forward(&(q, k, v))))
    }),
    ("attention with window, cap and scale", |ops, x, y| {
        let (q, k, v) = (ops.q.forward(x), ops.k.forward(y), ops.v.forward(&(x * y)));
        probe(&ops.windowed.forward(&(q, k, v)))
    }),
    ("attention with dropped weights", |ops, x, y| {
        let (q, k, v) = (ops.q.forward(x), ops.k.forward(y), ops.v.forward(&(x * y)));
        probe(&ops.dropped.forward(&(q, k, v, &ops.relative)))
    }),
    ("attention with wide values and sinks", |ops, x, y| {
        let (q, k, v) = (ops.q.forward(x), ops.k.forward(y), ops.wide_v.forward(&(x * y)));
        probe(&ops.wide.forward(&(q, k, v, &ops.sinks)))
    }),
    ("attention with linear biases", |ops, x, y| {
        let (q, k, v) = (ops.q.forward(x), ops.k.forward(y), ops.v.forward(&(x * y)));
        probe(&ops.attention.forward(&(q, k, v, (&ops.alibi, &ops.sinks))))
    }),
    ("attention with padding and learned biases", |ops, x, y| {
        let (q, k, v) = (ops.q.forward(x), ops.k.forward(y), ops.v.forward(&(x * y)));
        let padding =
            Padding::<(Batch, Seq)>::from_block(x.rank(), 1, std::slice::from_ref(&(1..4)));
        probe(&ops.bidirectional.forward(&(q, k, v, (padding, &ops.relative, &ops.sinks))))
    }),
    ("causal attention with learned biases", |ops, x, y| {
        let (q, k, v) = (ops.q.forward(x), ops.k.forward(y), ops.v.forward(&(x * y)));
        probe(&ops.attention.forward(&(q, k, v, &ops.relative)))
    }),
    ("cross attention", |ops, x, _| {
        let memory: Tensor<(Batch, Memory, Hidden)> = numbers(x.rank(), "memory", &[1, 3, HIDDEN]);
        let (k, v) = (ops.k.forward(&memory), ops.v.forward(&memory.scale(-0.5)));
        probe(&ops.bidirectional.forward(&(ops.q.forward(x), k, v)))
    }),
    ("embedding", |ops, x, _| probe(&(ops.embed.forward(&tokens(x.rank())) * x))),
    ("head", |ops, x, _| probe(&ops.head.logits(x))),
    ("log-probabilities of targets", |ops, x, _| {
        let targets = [3, Targets::<()>::IGNORED, 0, 6, 1];
        let targets: Targets<(Batch, Seq)> = Targets::from_block(x.rank(), &[1, SEQ], &targets);
        probe(&ops.head.log_probs(x, &targets))
    }),
    ("user-defined function", |ops, x, y| {
        probe(&apply(GatedNorm::new("gated_norm", 1e-5), (x, y), (&ops.gain,)))
    }),
];

/// Moves the elements along each dim apart, so that small changes do not exchange the largest or the smallest.
fn apart(x: &Stream) -> Stream {
    let rank = |index: &[usize]| ((3 * index[1] + 5 * index[2]) % 7) as f32;
    x + x.like(|index| 4.0 * rank(index))
}

/// The result of an operation, reduced to a scalar by position-dependent weights.
struct Probe {
    value: f64,
    backward: Box<dyn FnOnce() -> Gradients<Reduced>>,
}

fn probe<S: Shape>(result: &Tensor<S>) -> Probe {
    let weights: Tensor<S> = numbers(result.rank(), "weights", &result.sizes());
    let terms = result.to_local_vec().into_iter().zip(weights.to_local_vec());
    let sum: f64 = terms.map(|(value, weight)| f64::from(value) * f64::from(weight)).sum();
    let value = sum / weights.to_local_vec().len() as f64;
    let result = result.clone();
    let backward = move || Loss::mean_of(&(result * weights)).backward().reduce();
    Probe { value, backward: Box::new(backward) }
}

#[test]
fn every_operation_has_the_gradient_of_its_values() {
    on_mesh("1", 1, |rank| {
        let mut report = Report::default();
        let built = model(rank);
        for (name, operation) in OPERATIONS.iter().chain(shapes::SHAPES) {
            let ops = &built.model;
            let apply = || operation(ops, &stream(rank, &ops.input), &stream(rank, &ops.other));
            let gradients = (apply().backward)();
            for param in built.params() {
                let differences = differences(&param, || apply().value);
                let gradient = gradients.gather(&param);
                let label = format!("{name}, `{}`", param.path());
                let distance = distance(&gradient, &differences);
                report.note("gradient", label, distance, DIFFERENCES);
            }
        }
        report.print();
    });
}

/// The backward kernel of a norm accumulates into the existing gradient of its input. The result is bitwise equal to
/// that of separate kernels, as with another operation between the norm and its input.
#[test]
fn norms_accumulate_gradients_bitwise_equal() {
    on_mesh("1", 1, |rank| {
        let built = model(rank);
        let ops = &built.model;
        let rms = |x: &Stream| ops.rms_norm.forward(x);
        let layer = |x: &Stream| ops.layer_norm.forward(x);
        let apart = |x: &Stream| x.scale(1.0);
        type Form<'a> = &'a dyn Fn(&Stream) -> Stream;
        let forms: [(&str, Form<'_>, Form<'_>); 5] = [
            ("nothing else", &|x| rms(x), &|x| rms(&apart(x))),
            ("around it", &|x| x + rms(x), &|x| x + rms(&apart(x))),
            ("around one with a mean", &|x| x + layer(x), &|x| x + layer(&apart(x))),
            ("two norms", &|x| rms(x) + layer(x), &|x| rms(&apart(x)) + layer(&apart(x))),
            ("around two norms", &|x| x + rms(x) + layer(x), &|x| {
                x + rms(&apart(x)) + layer(&apart(x))
            }),
        ];
        for (name, form, of_passes) in forms {
            let gradients = |form: Form<'_>| {
                let gradients = (probe(&form(&stream(rank, &ops.input))).backward)();
                built.params().iter().map(|param| gradients.gather(param)).collect::<Vec<_>>()
            };
            let (got, expected) = (gradients(form), gradients(of_passes));
            for (param, (got, expected)) in built.params().iter().zip(got.iter().zip(&expected)) {
                assert_eq!(got, expected, "{name}, `{}`", param.path());
            }
        }
    });
}

#[test]
fn cross_entropy_gradients_match_the_formula() {
    on_mesh("1", 1, |rank| {
        let built = model(rank);
        let ops = &built.model;
        let targets = [3, Targets::<()>::IGNORED, 0, 6, Targets::<()>::IGNORED];
        let block = Targets::<(Batch, Seq)>::from_block(rank, &[1, SEQ], &targets);
        let weight = built.params().into_iter().find(|param| param.path() == "head.weight");
        let weight = weight.expect("the head has a weight");
        let (loss, dx, dweight) =
            cross_entropy(&ops.input.handle().to_local_vec(), &weight.to_local_vec(), &targets);

        let mut report = Report::default();
        let mut check = |name: &str, got: Loss<(Batch, Seq)>, count: u64| {
            let mean = got.reduce();
            assert_eq!(mean.count(), count, "{name}");
            report.note("loss", name, scalar_distance(mean.value(), loss), FORMULA);
            let gradients = got.backward().reduce();
            let got = gradients.gather(ops.input.handle());
            report.note("gradient of the input", name, distance(&got, &dx), FORMULA);
            let got = gradients.gather(&weight);
            report.note("gradient of the weight", name, distance(&got, &dweight), FORMULA);
        };
        let fused = || ops.head.loss(&stream(rank, &ops.input), &block);
        let apart = || ops.loss.forward(&ops.head.logits(&stream(rank, &ops.input)), &block);
        check("fused", fused(), 3);
        check("apart", apart(), 3);
        // Twice the sum and twice the count have the same mean.
        check("both", fused() + apart(), 6);
        report.print();
    });
}

#[test]
fn discarded_gradients_are_replaced_by_the_next() {
    on_mesh("dp=2", 1, |rank| {
        let built = model(rank);
        let ops = &built.model;
        let backward = || {
            let x = stream(rank, &ops.input) * stream(rank, &ops.other);
            Loss::mean_of(&x).backward()
        };
        let expected = backward().reduce().gather(ops.input.handle());
        backward().discard();
        assert_eq!(backward().reduce().gather(ops.input.handle()), expected);
    });
}

/// A column-parallel layer, whose input enters a tensor-parallel region.
#[model]
struct Up {
    input: Param<(Seq, Hidden)>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
}

#[test]
fn evaluation_contributes_no_gradient() {
    on_mesh("tp=2", 1, |rank| {
        let sizes = Sizes::new().with(Seq, SEQ).with(Hidden, HIDDEN).with(Ffn, 4);
        let built = build::<Up>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
        let model = &built.model;
        let apply = |x: &Stream| model.up.forward(x).sum(Ffn).all_reduce().softmax();
        let gradient = |result: &Tensor<(Batch, Seq)>| {
            let loss = Loss::mean_of(&(result * result));
            loss.backward().reduce().gather(model.input.handle())
        };
        let expected = gradient(&apply(&stream(rank, &model.input)));
        assert!(expected.iter().any(|slope| *slope != 0.0));

        let x = stream(rank, &model.input);
        let evaluated = rank.evaluate(|| apply(&x));
        let recorded = apply(&x);
        assert_eq!(evaluated.to_local_vec(), recorded.to_local_vec());
        assert_eq!(gradient(&recorded), expected);

        let x = stream(rank, &model.input);
        let constant = rank.evaluate(|| x.sum(Hidden));
        assert!(gradient(&constant).iter().all(|slope| *slope == 0.0));
    });
}

fn model(rank: &Rank) -> Built<Operations> {
    let mut sizes = Sizes::new()
        .with(Seq, SEQ)
        .with(Hidden, HIDDEN)
        .with(Ffn, 4)
        .with(Heads, 4)
        .with(KvHeads, 2)
        .with(HeadDim, 4)
        .with(Vocab, VOCAB)
        .with(Buckets, 4)
        .with_norm("offset_norm", NormOptions { eps: 1e-3, offset: 1.0 })
        .with_attention(
            "windowed",
            AttentionOptions {
                windows: vec![Some(3)],
                soft_cap: Some(0.7),
                scale: Some(0.9),
                ..AttentionOptions::default()
            },
        );
    let dropped = AttentionOptions { dropout: 0.4, ..AttentionOptions::default() };
    sizes = sizes.with_attention("dropped", dropped);
    sizes.init_std = 0.5;
    sizes.attention.max_distance = 3;
    sizes.dropout = 0.3;
    let built = build::<Operations>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
    for param in built.params() {
        // Far from zero, where the derivative of ReLU jumps.
        let moved = param.to_local_vec().into_iter().map(|x| x + 0.25f32.copysign(x));
        param.write(&moved.collect::<Vec<_>>());
    }
    built
}

/// Makes a parameter one sample of each data rank.
fn stream(rank: &Rank, param: &Param<(Seq, Hidden)>) -> Stream {
    let ranks = rank.degree_of(AxisSet::DATA);
    Tensor::from_block(rank, &[ranks, SEQ, HIDDEN], &[1.0; SEQ * HIDDEN]) * param
}

fn tokens(rank: &Rank) -> Tokens<(Batch, Seq)> {
    Tokens::from_block(rank, &[1, SEQ], &[1, 4, 4, 0, 6])
}

/// Returns the derivative by each element: `(8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h`.
fn differences(param: &ParamRef, value: impl Fn() -> f64) -> Vec<f32> {
    let start = param.to_local_vec();
    let at = |index: usize, element: f32| {
        let mut moved = start.clone();
        moved[index] = element;
        param.write(&moved);
        value()
    };
    let one = |index: usize| {
        let element = start[index];
        let across = |step: f32| at(index, element + step) - at(index, element - step);
        let derivative = (8.0 * across(STEP) - across(2.0 * STEP)) / (12.0 * f64::from(STEP));
        param.write(&start);
        derivative as f32
    };
    (0..param.local_len()).map(one).collect()
}

/// Returns the mean cross-entropy of the logits `x · weightᵀ`, and its derivatives by `x` and `weight`.
fn cross_entropy(x: &[f32], weight: &[f32], targets: &[u32]) -> (f64, Vec<f32>, Vec<f32>) {
    let (mut loss, mut dx, mut dweight) = (0.0, vec![0.0f64; x.len()], vec![0.0f64; weight.len()]);
    let counted = || targets.iter().enumerate().filter(|(_, target)| (**target as usize) < VOCAB);
    let count = counted().count() as f64;
    for (row, target) in counted() {
        let x = &x[row * HIDDEN..][..HIDDEN];
        let dot = |id: usize| -> f64 {
            let weight = &weight[id * HIDDEN..][..HIDDEN];
            x.iter().zip(weight).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum()
        };
        let exps: Vec<f64> = (0..VOCAB).map(|id| dot(id).exp()).collect();
        let total: f64 = exps.iter().sum();
        loss += (total.ln() - dot(*target as usize)) / count;
        for (id, exp) in exps.iter().enumerate() {
            let is_target = if id == *target as usize { 1.0 } else { 0.0 };
            let dlogit = (exp / total - is_target) / count;
            for (i, x) in x.iter().enumerate() {
                dx[row * HIDDEN + i] += dlogit * f64::from(weight[id * HIDDEN + i]);
                dweight[id * HIDDEN + i] += dlogit * f64::from(*x);
            }
        }
    }
    let narrow = |wide: Vec<f64>| wide.into_iter().map(|x| x as f32).collect();
    (loss, narrow(dx), narrow(dweight))
}

/// Losses that are never differentiated, outside of `evaluate`.
#[test]
fn unused_forward_passes_take_no_lasting_memory() {
    on_mesh("1", 1, |rank| {
        let built = model(rank);
        let forward = || {
            let ops = &built.model;
            let x = ops.layer_norm.forward(&stream(rank, &ops.input));
            drop(Loss::mean_of(&ops.linear.forward(&x.tanh())));
        };
        let live_after_one = || {
            forward();
            let live = rank.allocator().live();
            let of_activations = live.filter(|(category, _)| *category == Category::Activations);
            of_activations.map(|(_, bytes)| bytes).sum::<usize>()
        };
        let peak_of = |passes: usize| (0..passes).map(|_| live_after_one()).max().unwrap();
        let (first, later) = (peak_of(50), peak_of(500));
        assert!(later <= first, "{later} bytes in later passes, {first} in the first ones");
    });
}

#[test]
fn a_dropped_model_frees_its_memory() {
    let allocators = on_mesh("1", 1, |rank| {
        let built = model(rank);
        let x = stream(rank, &built.model.input);
        let _ = Loss::mean_of(&x).backward().reduce();
        std::sync::Arc::clone(rank.allocator())
    });
    for (category, bytes) in allocators[0].live() {
        assert_eq!(bytes, 0, "{}", category.name());
    }
}
