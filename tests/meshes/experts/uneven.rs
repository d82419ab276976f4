//! Uneven and empty groups of rows: experts and ranks that no token has chosen.

use meshwright::layout::{AxisId, AxisSet};
use meshwright::nn::{RecomputeOverride, Sizes, build};
use meshwright::prelude::*;
use meshwright::random;
use meshwright::tensor::Settings;
use meshwright_tests::compare::{Report, Tensors, assert_same_bits};
use meshwright_tests::run::{on_mesh, on_mesh_with};

dims! { Batch @ data, Seq, Hidden, Ffn, Experts, TopK }

type Stream = Tensor<(Batch, Seq, Hidden)>;
type ExpertTokens = Tensor<(Routed<(Batch, Seq), Split<Experts, Ep>>, Hidden)>;

#[model]
struct Networks {
    #[sharded(ep = "experts")]
    up: GroupedLinear<Experts, Hidden, Ffn>,
    norm: RmsNorm<Ffn>,
    gain: Param<(Ffn,)>,
    dense: Linear<Ffn, Ffn>,
    #[sharded(ep = "experts")]
    down: GroupedLinear<Experts, Ffn, Hidden>,
}

#[forward]
impl Networks {
    fn forward(&self, x: &ExpertTokens) -> ExpertTokens {
        let inside = self.norm.forward(&self.up.forward(x).silu()) * &self.gain;
        self.down.forward(&(&inside + self.dense.forward(&inside)))
    }
}

#[model]
struct Moe {
    before: Linear<Hidden, Hidden>,
    router: Router<Hidden, Experts, TopK>,
    #[recompute]
    experts: Networks,
}

#[forward]
impl Moe {
    fn forward(&self, x: &Stream) -> Stream {
        let x = self.before.forward(x);
        let routing = self.router.forward(&x);
        &x + routing.combine(&self.experts.forward(&routing.dispatch(&x, Ep)))
    }
}

/// Two layers. The second is recomputed with its router.
#[model]
struct Net {
    first: Moe,
    #[recompute]
    second: Moe,
}

impl Net {
    fn loss(&self, x: &Stream) -> Loss<(Batch, Seq)> {
        let y = self.second.forward(&self.first.forward(x));
        Loss::mean_of(&y.square().mean(Hidden))
    }
}

const EXPERTS: usize = 8;

fn sizes(chosen: usize) -> Sizes {
    let mut sizes =
        Sizes::new().with(Hidden, 6).with(Ffn, 5).with(Experts, EXPERTS).with(TopK, chosen);
    sizes.init_std = 0.5;
    sizes
}

/// Returns inputs; with `skew`, all of them are nearly the same, so that all tokens choose the same experts.
fn input(rank: &Rank, skew: bool) -> Stream {
    Tensor::from_fn(rank, &[8, 3, 6], |index| {
        let [row, position, col] = [index[0], index[1], index[2]];
        let seed = random::key((row * 100 + position * 10 + col) as u64, "x");
        let noise = (seed % 1000) as f32 / 500.0 - 1.0;
        if skew { 1.0 + col as f32 / 4.0 + 1e-3 * noise } else { noise }
    })
}

/// Returns the loss, the gradients of all parameters, and the choices of each expert on each rank.
fn run(mesh: &str, sizes: &Sizes, settings: Settings, skew: bool) -> (f64, Tensors, Vec<Vec<u32>>) {
    let mut outcomes = on_mesh_with(mesh, 1, settings, |rank| {
        let net = build::<Net>(rank, sizes).unwrap_or_else(|error| panic!("{error}"));
        let x = input(rank, skew);
        let routing = net.model.first.router.forward(&net.model.first.before.forward(&x));
        let loss = net.model.loss(&x);
        let value = loss.reduce().value();
        let gradients = loss.backward().reduce();
        let gather = |param: &meshwright::tensor::ParamRef| gradients.gather(param);
        let gradients: Tensors =
            net.params().iter().map(|param| (param.path().to_owned(), gather(param))).collect();
        (value, gradients, routing.local_counts().to_vec())
    });
    let counts = outcomes.iter().map(|(_, _, counts)| counts.clone()).collect();
    let (value, gradients, _) = outcomes.swap_remove(0);
    (value, gradients, counts)
}

const MESHES: [&str; 5] = ["ep=2", "ep=4", "ep=8", "dp=2,ep=4", "fsdp=2,ep=2"];

#[track_caller]
fn check(what: &str, chosen: usize, skew: bool) {
    let (settings, sizes) = (Settings::new(7), sizes(chosen));
    let (loss, gradients, counts) = run("1", &sizes, settings, skew);
    if skew {
        let used = counts[0].iter().filter(|count| **count > 0).count();
        assert_eq!(used, chosen, "all tokens choose the same experts: {counts:?}");
    }
    let mut report = Report::default();
    for mesh in MESHES {
        let (got, of_mesh, _) = run(mesh, &sizes, settings, skew);
        let label = format!("{what} on {mesh}");
        report.scalars("loss", &label, &[got], &[loss], 1e-6);
        report.tensors("gradient", &label, &of_mesh, &gradients, 1e-5);
    }
    report.print();
}

#[test]
fn ranks_without_rows_take_part() {
    check("all tokens to one expert", 1, true);
    check("all tokens to two experts", 2, true);
}

#[test]
fn every_expert_may_be_chosen() {
    check("each token to all experts", EXPERTS, false);
    check("each token to three experts", 3, false);
}

/// Recomputation routes the same tokens to the same experts, in every precision.
#[test]
fn recomputation_keeps_the_bits() {
    for compute in [meshwright::backend::DType::F32, meshwright::backend::DType::Bf16] {
        for mesh in ["1", "ep=2", "ep=4"] {
            let settings = Settings { compute, ..Settings::new(7) };
            let mut sizes = sizes(2);
            let (loss, gradients, _) = run(mesh, &sizes, settings, false);
            sizes.recompute = Some(RecomputeOverride::Off);
            let (other, of_other, _) = run(mesh, &sizes, settings, false);
            assert_eq!(loss.to_bits(), other.to_bits(), "{mesh}, {compute}");
            assert_same_bits(&format!("{mesh}, {compute}"), &gradients, &of_other);
        }
    }
}

#[test]
fn bf16_is_near_f32() {
    let (loss, gradients, _) = run("1", &sizes(2), Settings::new(7), false);
    let settings = Settings { compute: meshwright::backend::DType::Bf16, ..Settings::new(7) };
    let mut report = Report::default();
    for mesh in ["1", "ep=4"] {
        let (got, of_mesh, _) = run(mesh, &sizes(2), settings, false);
        report.scalars("loss", mesh, &[got], &[loss], 2e-2);
        report.tensors("gradient", mesh, &of_mesh, &gradients, 8e-2);
    }
    report.print();
}

/// Tensors with the same rows are combined; one routing dispatches several tensors.
#[test]
fn one_routing_dispatches_several_tensors() {
    let both = on_mesh("ep=2", 1, |rank| {
        let net = build::<Net>(rank, &sizes(2)).unwrap_or_else(|error| panic!("{error}"));
        let x = input(rank, false);
        let routing = net.model.first.router.forward(&x);
        let [rows, twice] = [&x, &(&x * 2.0)].map(|x| routing.dispatch(x, Ep));
        let one = routing.combine(&(&rows + &twice));
        let other = routing.combine(&(&rows * 3.0));
        let whole = routing.combine(&(routing.group(&x) * 3.0));
        [one, other, whole].map(|y| y.to_local_vec())
    });
    for [one, other, whole] in both {
        for ((one, other), whole) in one.iter().zip(&other).zip(&whole) {
            assert!((one - other).abs() < 1e-5 && (one - whole).abs() < 1e-5);
        }
    }
}

/// Rows for experts of the same rank are not sent, and others once each way.
#[test]
fn dispatch_sends_the_rows_of_other_experts() {
    const RANKS: usize = 4;
    let of_ranks = on_mesh("ep=4", 1, |rank| {
        let net = build::<Net>(rank, &sizes(2)).unwrap_or_else(|error| panic!("{error}"));
        let x = input(rank, false);
        let routing = net.model.first.router.forward(&x);
        // The first exchange gathers the numbers of rows.
        let _ = routing.dispatch(&x, Ep);
        let group = rank.group(AxisSet::of(AxisId::Ep));
        let sent = || group.comm_bytes();
        let before = sent();
        let rows = routing.dispatch(&x, Ep);
        let dispatched = sent() - before;
        let _ = routing.combine(&rows).to_local_vec();
        let share = EXPERTS / RANKS;
        let own = rank.index() * share..(rank.index() + 1) * share;
        let elsewhere = routing.local_counts().iter().enumerate();
        let elsewhere = elsewhere.filter(|(expert, _)| !own.contains(expert));
        let rows: u32 = elsewhere.map(|(_, count)| count).sum();
        (dispatched, sent() - before - dispatched, u64::from(rows) * 6 * 4)
    });
    let [mut combined, mut expected] = [0; 2];
    for (dispatched, back, rows) in of_ranks {
        assert_eq!(dispatched, rows);
        combined += back;
        expected += rows;
    }
    assert!(expected > 0 && combined == expected, "{combined} bytes and not {expected}");
}
