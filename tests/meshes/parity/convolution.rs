//! Shifts and convolutions along sequences that are whole, split, distributed over cp, or both, against one rank.

use std::panic::{AssertUnwindSafe, catch_unwind};

use meshwright::layout::{Dim, Shape};
use meshwright::nn::Layers;
use meshwright::prelude::*;
use meshwright_tests::data::{Batches, PackedData, TokenData, numbers};
use meshwright_tests::models::{
    convolutional, distributed_convolutional, plain_convolutional, recomputed_convolutional,
};
use meshwright_tests::run::{Setup, on_mesh};

use super::table::check;

/// Sequences whose shortest ranges are as long as the halos, on some meshes.
const DATA: TokenData = TokenData { batch: 4, seq: 26, vocab: 29, masked: true };

/// Creates the settings for the dims of a module.
macro_rules! setup {
    ($module:ident) => {{
        let mut sizes = Sizes::new()
            .with($module::Hidden, 12)
            .with($module::Heads, 12)
            .with($module::HeadDim, 2)
            .with($module::Vocab, DATA.vocab)
            .with(Layers, 2);
        sizes.init_std = 0.3;
        Setup { steps: 3, ..Setup::new(sizes) }
    }};
}

/// Compares a module's model on meshes with one rank.
macro_rules! check_model {
    ($module:ident, $meshes:expr, $data:expr) => {
        check(
            stringify!($module),
            $meshes,
            &setup!($module),
            |model: &$module::Convolutional, rank, turn| {
                let (tokens, targets) = $data.block(rank, turn);
                model.loss(&tokens, &targets)
            },
        )
    };
}

const OVER_TP: [&str; 4] = ["tp=2", "tp=4", "dp=2,tp=2", "fsdp=2,tp=3"];
const OVER_CP: [&str; 7] =
    ["tp=2", "cp=2", "cp=3", "cp=4", "cp=2,tp=2", "cp=2,tp=3", "fsdp=2,cp=2,tp=2"];

#[test]
fn split_sequences() {
    check_model!(convolutional, &OVER_TP, DATA);
}

#[test]
fn whole_sequences() {
    check_model!(plain_convolutional, &["tp=2", "dp=2,tp=2"], DATA);
}

#[test]
fn distributed_sequences() {
    check_model!(distributed_convolutional, &OVER_CP, DATA);
}

#[test]
fn recomputed_layers_of_distributed_sequences() {
    check_model!(recomputed_convolutional, &["cp=2", "tp=2", "cp=2,tp=2"], DATA);
}

#[test]
fn documents_of_distributed_sequences() {
    check_model!(distributed_convolutional, &["tp=2", "cp=2", "cp=2,tp=3"], PackedData(DATA));
}

dims! { Batch @ data, Seq, Long @ cp, Hidden, Ffn, Mel }

/// Returns each element as a function of its index, which is not zero.
fn numbered(index: &[usize]) -> f32 {
    index.iter().fold(1.0, |number, index| 30.0 * number + *index as f32)
}

/// Compares shifts of a tensor on a mesh with their definition.
fn check_shifts<S: Shape>(
    (rank, mesh): (&Rank, &str),
    shifts: &[isize],
    shift: impl Fn(&Tensor<S>, isize) -> Tensor<S>,
    dim: usize,
    sizes: &[usize],
) {
    let x: Tensor<S> = Tensor::from_fn(rank, sizes, numbered);
    for by in shifts {
        let moved = |index: &[usize]| {
            let from = index[dim] as isize - by;
            let mut index = index.to_vec();
            index[dim] = from as usize;
            if (0..sizes[dim] as isize).contains(&from) { numbered(&index) } else { 0.0 }
        };
        let expected: Tensor<S> = Tensor::from_fn(rank, sizes, moved);
        let got = shift(&x, *by);
        assert_eq!(got.to_local_vec(), expected.to_local_vec(), "{by} on {mesh}");
    }
}

/// Shifts along each dim of a tensor follow their definition on every mesh, as far as halos reach.
#[test]
fn shifts_are_as_defined() {
    let sizes = [4, 25, 3];
    let near = [0, 1, -1, 2, -2];
    for mesh in ["1", "tp=2", "tp=3", "cp=2", "cp=3", "cp=2,tp=2", "cp=2,tp=3", "fsdp=2,cp=2,tp=2"]
    {
        on_mesh(mesh, 1, |rank| {
            let on = (rank, mesh);
            type Whole = (Batch, Seq, Hidden);
            let far = [1, -1, 7, 24, -24, 25, 40, -40];
            check_shifts::<Whole>(on, &far, |x, by| x.shift(Seq, by), 1, &sizes);
            check_shifts::<Whole>(on, &far, |x, by| x.shift(Hidden, by), 2, &sizes);
            type Halved = (Batch, Split<Seq, Tp>, Hidden);
            check_shifts::<Halved>(on, &near, |x, by| x.shift(Seq, by), 1, &sizes);
            type Distributed = (Batch, Long, Hidden);
            check_shifts::<Distributed>(on, &near, |x, by| x.shift(Long, by), 1, &sizes);
            type Both = (Batch, Split<Long, Tp>, Hidden);
            check_shifts::<Both>(on, &near, |x, by| x.shift(Long, by), 1, &sizes);
        });
    }
}

/// A halo that is longer than the shortest range is refused on all ranks, with the dim and the sizes.
#[test]
fn long_halos_are_refused_on_every_rank() {
    let sizes = [2, 21, 2];
    let refused = |mesh: &str, body: &(dyn Fn(&Rank) + Sync), expected: &str| {
        let messages = on_mesh(mesh, 1, |rank| {
            let panic = catch_unwind(AssertUnwindSafe(|| body(rank))).expect_err("it is refused");
            panic.downcast_ref::<String>().expect("a message").clone()
        });
        for message in messages {
            assert_eq!(message, expected, "{mesh}");
        }
    };
    let split = |rank: &Rank| {
        numbers::<(Batch, Split<Seq, Tp>, Hidden)>(rank, "x", &sizes).shift(Seq, -6);
    };
    refused(
        "tp=4",
        &split,
        "`Tensor::shift` reads 6 elements of `Seq` next to those that a rank holds, but the shortest range that a rank \
         holds has 5: `Seq` = 21 is distributed over the 4 ranks of tp; use fewer ranks of tp, a longer `Seq`, or \
         read at \
         most 5 elements",
    );
    let distributed = |rank: &Rank| {
        let mut sizes = Sizes::new().with(Hidden, 2);
        sizes.init_std = 0.1;
        let conv = build::<Short>(rank, &sizes).expect("the sizes are right").model;
        conv.conv.forward(&numbers::<(Batch, Long, Hidden)>(rank, "x", &[2, 21, 2]));
    };
    refused(
        "cp=3",
        &distributed,
        "`conv.weight` reads 4 elements of `Long` next to those that a rank holds, but the shortest range that a rank \
         holds has \
         3: `Long` = 21 is distributed over the 3 ranks of cp in zig-zag order; use fewer ranks of cp, a longer \
         `Long`, or \
         read at most 3 elements",
    );
}

/// A convolution alone.
#[model]
struct Short {
    conv: CausalConv<Hidden, 5>,
}

/// Convolutions along whole sequences, in each style.
#[model]
struct Encoder {
    plain: Conv1d<Mel, Hidden, 3, 1, 1>,
    bias: Bias<Hidden>,
    #[sharded(tp = "col")]
    col: Conv1d<Hidden, Ffn, 3, 2, 1>,
    #[sharded(tp = "col")]
    col_bias: Bias<Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    row: Conv1d<Ffn, Hidden, 2>,
    #[sharded(tp = "row")]
    sum: Conv1d<Ffn, Hidden, 2>,
    last: Conv1d<Hidden, Hidden, 4, 3, 2>,
}

impl Encoder {
    fn forward(&self, x: &Tensor<(Batch, Seq, Mel)>) -> Tensor<(Batch, Seq, Hidden)> {
        let hidden = self.bias.forward(&self.plain.forward(x)).gelu();
        let inner = self.col_bias.forward(&self.col.forward(&hidden)).gelu();
        let scattered: Tensor<(Batch, Split<Seq, Tp>, Hidden)> = self.row.forward(&inner);
        self.last.forward(&(self.sum.forward(&inner).tanh() + scattered.gather(Seq)))
    }
}

const FRAMES: [usize; 3] = [4, 23, 5];

fn encoder_sizes() -> Sizes {
    let mut sizes = Sizes::new().with(Mel, 5).with(Hidden, 6).with(Ffn, 8);
    sizes.init_std = 0.4;
    sizes
}

#[test]
fn convolutions_of_whole_sequences() {
    let setup = Setup { steps: 3, ..Setup::new(encoder_sizes()) };
    let meshes = ["tp=2", "tp=4", "dp=2", "fsdp=2", "dp=2,tp=2"];
    check("encoder", &meshes, &setup, |model: &Encoder, rank, _| {
        Loss::mean_of(&model.forward(&numbers(rank, "frames", &FRAMES)).square())
    });
}

/// Convolves frames `[samples, positions, channels]`, as `conv1d` of PyTorch is defined.
fn conv1d(
    x: &[Vec<Vec<f64>>],
    weight: &[f32],
    outputs: usize,
    [taps, stride, padding]: [usize; 3],
) -> Vec<Vec<Vec<f64>>> {
    let of_sample = |sample: &Vec<Vec<f64>>| -> Vec<Vec<f64>> {
        let count = (sample.len() + 2 * padding - taps) / stride + 1;
        let sum = |position: usize, output: usize| -> f64 {
            let read = (0..taps).filter_map(|tap| {
                let frame = sample.get((position * stride + tap).checked_sub(padding)?)?;
                let term = |(channel, x): (usize, &f64)| {
                    x * f64::from(weight[(channel * taps + tap) * outputs + output])
                };
                Some(frame.iter().enumerate().map(term).sum::<f64>())
            });
            read.sum()
        };
        (0..count).map(|at| (0..outputs).map(|output| sum(at, output)).collect()).collect()
    };
    x.iter().map(of_sample).collect()
}

/// The first and the last convolution follow the definition.
#[test]
fn convolutions_are_as_defined() {
    on_mesh("1", 1, |rank| {
        let built = build::<Encoder>(rank, &encoder_sizes()).expect("the sizes are right");
        let weight = |name: &str| {
            let param = built.params().into_iter().find(|param| param.path() == name);
            param.expect("the convolution has a weight").to_local_vec()
        };
        let nested = |x: &[f32], [positions, channels]: [usize; 2]| -> Vec<Vec<Vec<f64>>> {
            let frame = |x: &[f32]| x.iter().copied().map(f64::from).collect();
            x.chunks(positions * channels)
                .map(|sample| sample.chunks(channels).map(frame).collect())
                .collect()
        };
        let close = |got: &[f32], expected: &[Vec<Vec<f64>>]| {
            let expected: Vec<f64> = expected.iter().flatten().flatten().copied().collect();
            assert_eq!(got.len(), expected.len());
            for (got, expected) in got.iter().zip(expected) {
                assert!((f64::from(*got) - expected).abs() < 1e-5, "{got} instead of {expected}");
            }
        };
        let frames: Tensor<(Batch, Seq, Mel)> = numbers(rank, "frames", &FRAMES);
        let x = nested(&frames.to_local_vec(), [23, 5]);
        let got = built.model.plain.forward(&frames);
        assert_eq!(got.sizes(), [4, 23, 6]);
        close(&got.to_local_vec(), &conv1d(&x, &weight("plain.weight"), 6, [3, 1, 1]));
        let hidden: Tensor<(Batch, Seq, Hidden)> = numbers(rank, "hidden", &[4, 11, 6]);
        let x = nested(&hidden.to_local_vec(), [11, 6]);
        let got = built.model.last.forward(&hidden);
        assert_eq!(got.sizes(), [4, 4, 6]);
        close(&got.to_local_vec(), &conv1d(&x, &weight("last.weight"), 6, [4, 3, 2]));
    });
}

/// A causal convolution and its gradients follow the definition within each document.
#[test]
fn documents_are_kept_apart() {
    const SEQ: usize = 26;
    on_mesh("1", 1, |rank| {
        let mut sizes = Sizes::new().with(Hidden, 3);
        sizes.init_std = 0.4;
        let built = build::<Short>(rank, &sizes).expect("the sizes are right");
        let data = PackedData(TokenData { batch: 4, seq: SEQ, vocab: 7, masked: false });
        let turn = meshwright_tests::data::Turn { step: 0, index: 0, count: 1 };
        let (tokens, _) = data.block::<(Batch, Seq)>(rank, turn);
        let x: Tensor<(Batch, Seq, Hidden)> = numbers(tokens.rank(), "x", &[4, SEQ, 3]);
        let factors: Tensor<(Batch, Seq, Hidden)> = numbers(tokens.rank(), "factors", &[4, SEQ, 3]);
        let y = built.model.conv.forward(&x);
        let gradients = Loss::mean_of(&(&y * &factors)).backward().reduce();
        let param = built.params().swap_remove(0);
        let (numbers, factors, weight) =
            (x.to_local_vec(), factors.to_local_vec(), param.to_local_vec());
        let (got, dweight) = (y.to_local_vec(), gradients.gather(&param));
        let mut expected = vec![0.0f64; weight.len()];
        for row in 0..4 {
            let starts = data.starts(row);
            for (position, channel) in
                (0..SEQ).flat_map(|at| (0..3).map(move |channel| (at, channel)))
            {
                let mut sum = 0.0;
                for distance in 0..5.min(position - starts[position] as usize + 1) {
                    let read = f64::from(numbers[(row * SEQ + position - distance) * 3 + channel]);
                    let at = (row * SEQ + position) * 3 + channel;
                    sum += read * f64::from(weight[channel * 5 + 4 - distance]);
                    expected[channel * 5 + 4 - distance] += read * f64::from(factors[at]);
                }
                let got = f64::from(got[(row * SEQ + position) * 3 + channel]);
                assert!((got - sum).abs() < 1e-5, "row {row}, position {position}: {got}, {sum}");
            }
        }
        for (got, expected) in dweight.iter().zip(expected) {
            let expected = expected / (4 * SEQ * 3) as f64;
            assert!((f64::from(*got) - expected).abs() < 1e-6, "{got} instead of {expected}");
        }
    });
}

/// Running sums along a sequence that several ranks hold.
#[model]
struct Sums {
    scale: Param<(Hidden,)>,
    bias: Bias<Hidden>,
}

impl Sums {
    fn loss<S>(
        &self,
        x: &Tensor<(Batch, S, Hidden)>,
        sum: RunningSum<S>,
    ) -> Loss<(Batch, S, Hidden)>
    where
        S: Dim,
        (Batch, S, Hidden): Shape,
    {
        let sums = sum(&self.bias.forward(&(x * &self.scale)));
        Loss::mean_of(&(sums * 0.1).tanh().square())
    }
}

type RunningSum<S> = fn(&Tensor<(Batch, S, Hidden)>) -> Tensor<(Batch, S, Hidden)>;

/// Running sums of integers are exact, and gradients are those of one rank.
#[test]
fn running_sums() {
    let sizes = [4, 25, 3];
    let meshes = ["tp=2", "tp=3", "cp=2", "cp=3", "cp=2,tp=2", "cp=2,tp=3", "fsdp=2,cp=2,tp=2"];
    for mesh in meshes {
        on_mesh(mesh, 1, |rank| {
            let number = |index: &[usize]| ((index[0] * 7 + index[1] * 5 + index[2]) % 11) as f32;
            let sum = |index: &[usize]| -> f32 {
                (0..=index[1]).map(|at| number(&[index[0], at, index[2]])).sum()
            };
            type Halved = (Batch, Split<Seq, Tp>, Hidden);
            let got = Tensor::<Halved>::from_fn(rank, &sizes, number).across().cumsum(Seq);
            let expected = Tensor::<Halved>::from_fn(rank, &sizes, sum);
            assert_eq!(got.to_local_vec(), expected.to_local_vec(), "split on {mesh}");
            type Distributed = (Batch, Long, Hidden);
            let got = Tensor::<Distributed>::from_fn(rank, &sizes, number).across().cumsum(Long);
            let expected = Tensor::<Distributed>::from_fn(rank, &sizes, sum);
            assert_eq!(got.to_local_vec(), expected.to_local_vec(), "distributed on {mesh}");
        });
    }
    let setup = Setup { steps: 2, ..Setup::new(Sizes::new().with(Hidden, 3)) };
    check("running sums", &meshes, &setup, |model: &Sums, rank, _| {
        model.loss::<Split<Long, Tp>>(&numbers(rank, "x", &sizes), |x| x.across().cumsum(Long))
    });
}
