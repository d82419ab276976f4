//! Losses of heads with options, and reductions, against PyTorch: `reference/loss_cases.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use meshwright::layout::Shape;
use meshwright::nn::{Built, Sizes, build};
use meshwright::prelude::*;
use meshwright::tensor::{Reduced, Weights};
use meshwright_tests::compare::{Report, distance, scalar_distance};
use meshwright_tests::run::on_mesh;
use safetensors::SafeTensors;

dims! { Batch @ data, Seq, Hidden, Vocab }

const SEQ: usize = 6;
const HIDDEN: usize = 5;
const VOCAB: usize = 11;
const TEMPERATURE: f32 = 2.0;

// Relative to f64. Seen: 2e-7 and 6e-7.
const VALUE: f64 = 1e-6;
const GRADIENT: f64 = 3e-6;

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Net {
    x: Param<(Seq, Hidden)>,
    teacher_x: Param<(Seq, Hidden)>,
    head: LmHead<Hidden, Vocab>,
    teacher: LmHead<Hidden, Vocab>,
    loss: CrossEntropy<Vocab>,
}

type Fixture = BTreeMap<String, Vec<f32>>;

fn fixture() -> Fixture {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("reference/fixtures/losses/losses.safetensors");
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let floats = |bytes: &[u8]| {
        bytes.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect()
    };
    tensors.tensors().into_iter().map(|(name, tensor)| (name, floats(tensor.data()))).collect()
}

/// Builds the net with the operands of the fixture.
fn net(rank: &Rank, fixture: &Fixture, options: HeadOptions, has_bias: bool) -> Built<Net> {
    let mut sizes = Sizes::new()
        .with(Seq, SEQ)
        .with(Hidden, HIDDEN)
        .with(Vocab, VOCAB)
        .with_optional("head.bias", has_bias);
    sizes.head = options;
    let built = build::<Net>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
    for param in built.params() {
        let name = match param.path() {
            "head.weight" => "weight",
            "head.bias" => "bias",
            "teacher.weight" => "teacher",
            path => path,
        };
        param.write(&fixture[name]);
    }
    built
}

fn stream(rank: &Rank, param: &Param<(Seq, Hidden)>) -> Stream {
    Tensor::from_block(rank, &[1, SEQ, HIDDEN], &[1.0; SEQ * HIDDEN]) * param
}

fn targets(rank: &Rank, fixture: &Fixture) -> Targets<(Batch, Seq)> {
    let id = |id: &f32| if *id < 0.0 { Targets::<()>::IGNORED } else { *id as u32 };
    let ids: Vec<u32> = fixture["targets"].iter().map(id).collect();
    Targets::from_block(rank, &[1, SEQ], &ids)
}

/// Compares the gradients of a loss.
fn check_gradients(
    report: &mut Report,
    fixture: &Fixture,
    case: &str,
    net: &Built<Net>,
    loss: Loss<(Batch, Seq)>,
) {
    let gradients = loss.backward().reduce();
    for (path, name) in [("x", "dx"), ("head.weight", "dweight"), ("head.bias", "dbias")] {
        let Some(param) = net.params().into_iter().find(|param| param.path() == path) else {
            continue;
        };
        let expected = &fixture[&format!("{case}.{name}")];
        let distance = distance(&gradients.gather(&param), expected);
        report.note("gradient", format!("{case}, {path}"), distance, GRADIENT);
    }
}

fn options(soft_cap: Option<f32>, label_smoothing: f32, z_loss: f32) -> HeadOptions {
    HeadOptions { soft_cap, label_smoothing, z_loss, f32_logits: false }
}

#[test]
fn heads_with_options_agree_with_pytorch() {
    let fixture = fixture();
    let cases = [
        ("plain", options(None, 0.0, 0.0), false),
        ("bias", options(None, 0.0, 0.0), true),
        ("soft_cap", options(Some(2.0), 0.0, 0.0), false),
        ("label_smoothing", options(None, 0.2, 0.0), false),
        ("z_loss", options(None, 0.0, 0.05), false),
        ("all_options", options(Some(2.0), 0.1, 0.05), true),
    ];
    on_mesh("1", 1, |rank| {
        let mut report = Report::default();
        for (case, options, has_bias) in cases {
            let net = net(rank, &fixture, options, has_bias);
            let (model, targets) = (&net.model, targets(rank, &fixture));
            let x = || stream(rank, &model.x);
            let fused = || model.head.loss(&x(), &targets);
            let apart = || model.loss.forward(&model.head.logits(&x()), &targets);
            for (form, loss) in [("fused", fused()), ("apart", apart())] {
                let expected = f64::from(fixture[&format!("{case}.value")][0]);
                let got = loss.reduce().value();
                report.note(
                    "loss",
                    format!("{case}, {form}"),
                    scalar_distance(got, expected),
                    VALUE,
                );
                check_gradients(&mut report, &fixture, case, &net, loss);
            }

            let case = format!("{case}.log_probs");
            let weights: Weights<(Batch, Seq)> =
                Weights::from_block(rank, &[1, SEQ], &fixture["weights"]);
            let log_probs = model.head.log_probs(&x(), &targets);
            let expected = &fixture[&format!("{case}.value")];
            report.note("value", &case, distance(&log_probs.to_local_vec(), expected), VALUE);
            let loss = Loss::weighted_mean(&-log_probs, &weights);
            check_gradients(&mut report, &fixture, &case, &net, loss);
        }
        report.print();
    });
}

#[test]
fn divergences_agree_with_pytorch() {
    let fixture = fixture();
    let cases = [
        ("plain", options(None, 0.0, 0.0), false),
        ("soft_cap", options(Some(2.0), 0.0, 0.0), false),
        ("all_options", options(Some(2.0), 0.1, 0.05), true),
    ];
    on_mesh("1", 1, |rank| {
        let mut report = Report::default();
        for (case, options, has_bias) in cases {
            let net = net(rank, &fixture, options, has_bias);
            let model = &net.model;
            let (x, teacher_x) = (stream(rank, &model.x), stream(rank, &model.teacher_x));
            let kl = model.head.kl(&x, &model.teacher, &teacher_x, TEMPERATURE);
            let case = format!("{case}.kl");
            let expected = &fixture[&format!("{case}.value")];
            report.note("value", &case, distance(&kl.to_local_vec(), expected), VALUE);
            check_gradients(&mut report, &fixture, &case, &net, Loss::mean_of(&kl));
        }
        report.print();
    });
}

/// The product with factors that increase evenly from -1 to 2.
fn product<S: Shape>(x: &Tensor<S>) -> Loss<S> {
    let len: usize = x.sizes().iter().product();
    let factor = |at: usize| -1.0 + 3.0 * at as f32 / (len - 1) as f32;
    let factors: Vec<f32> = (0..len).map(factor).collect();
    Loss::mean_of(&(x * Tensor::<S>::from_block(x.rank(), &x.sizes(), &factors)))
}

#[test]
fn reductions_agree_with_pytorch() {
    let fixture = fixture();
    on_mesh("1", 1, |rank| {
        let net = net(rank, &fixture, HeadOptions::default(), false);
        let x = || stream(rank, &net.model.x);
        let mut report = Report::default();
        let mut check = |name: &str, value: Vec<f32>, gradients: Gradients<Reduced>| {
            let expected = |of: &str| &fixture[&format!("{name}.{of}")];
            report.note("value", name, distance(&value, expected("value")), VALUE);
            let dx = gradients.gather(net.model.x.handle());
            report.note("gradient", name, distance(&dx, expected("dx")), GRADIENT);
        };
        macro_rules! check {
            ($($name:literal: $method:ident;)*) => {$(
                let (rows, cols) = (x().$method(Seq), x().$method(Hidden));
                check(concat!($name, "_0"), rows.to_local_vec(), product(&rows).backward().reduce());
                check(concat!($name, "_1"), cols.to_local_vec(), product(&cols).backward().reduce());
            )*};
        }
        check! {
            "amax": max;
            "amin": min;
            "var": var;
            "norm": norm;
            "logsumexp": log_sum_exp;
            "softmax": softmax_over;
            "log_softmax": log_softmax_over;
        }
        report.print();
    });
}
