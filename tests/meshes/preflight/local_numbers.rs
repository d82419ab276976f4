//! Numbers of a rank in place of numbers of the batch or the sequence: each wrong program beside the right one.

use meshwright::layout::AxisSet;
use meshwright::prelude::*;
use meshwright::random;

use super::{Batch, Hidden, Ids, Net, SIZES, Seq, Stream, caught, id, net, passes, stream, train};

const MESHES: [&str; 5] = ["dp=2", "cp=2", "tp=2", "fsdp=2,cp=2", "dp=2,tp=2"];

/// Returns tokens and the tokens after them.
fn rows(rank: &Rank) -> [Ids; 2] {
    let data = AxisSet::DATA;
    let (own, first) = (SIZES[0] / rank.degree_of(data), rank.position(data));
    let first = first * SIZES[0] / rank.degree_of(data);
    [0, 1].map(|shift| {
        let ids: Vec<u32> = (first..first + own)
            .flat_map(|row| (0..SIZES[1]).map(move |position| id(row, position + shift)))
            .collect();
        Tokens::from_whole_rows(rank, &SIZES[..2], 0, &ids)
    })
}

fn token_loss(net: &Net, tokens: &Ids, targets: &Ids) -> Loss<(Batch, Seq)> {
    let x = net.embed.forward(tokens);
    net.head.loss(&net.down.forward(&net.up.forward(&x).silu()), targets)
}

#[test]
fn labels_shifted_after_the_cut() {
    passes("labels shifted in whole rows", &MESHES, |rank| {
        let [tokens, targets] = rows(rank);
        train(rank, |net, _| token_loss(net, &tokens, &targets))
    });
    caught("labels shifted in a block", &["cp=2", "dp=2,cp=2"], &["in step 1, along cp"], |rank| {
        let [tokens, _] = rows(rank);
        let extents = tokens.local_extents().to_vec();
        let block: Vec<(usize, usize)> = extents[0]
            .positions()
            .flat_map(|row| extents[1].positions().map(move |position| (row, position)))
            .collect();
        let mut shifted: Vec<u32> =
            block.iter().map(|(row, position)| id(*row, *position)).collect();
        let positions = extents[1].local;
        shifted.chunks_mut(positions).for_each(|row| row.rotate_left(1));
        let targets = Tokens::from_block(rank, &SIZES[..2], &shifted);
        train(rank, |net, _| token_loss(net, &tokens, &targets))
    });
}

#[test]
fn a_prompt_masked_by_local_positions() {
    let prompt = 3;
    passes("positions of the sequence", &MESHES, |rank| {
        train(rank, |net, _| {
            let x = net.down.forward(&net.up.forward(&stream(rank)).silu());
            let mask = x.like(|at| f32::from(u8::from(at[1] >= prompt)));
            Loss::mean_of(&(&x * &x * mask))
        })
    });
    caught("positions of a block", &["cp=2"], &["in step 1, along cp", "loss: differs"], |rank| {
        train(rank, |net, _| {
            let x = net.down.forward(&net.up.forward(&stream(rank)).silu());
            let [rows, positions, width] = [0, 1, 2].map(|dim| x.local_extents()[dim].local);
            let block: Vec<f32> = (0..rows * positions * width)
                .map(|index| f32::from(u8::from(index / width % positions >= prompt)))
                .collect();
            let mask: Stream = Tensor::from_block(rank, &SIZES, &block);
            Loss::mean_of(&(&x * &x * mask))
        })
    });
}

/// Each row is to be told from the others: its label is its index.
#[test]
fn labels_of_negatives_counted_from_zero() {
    let labels = |rank: &Rank, is_local: bool| -> Ids {
        let [tokens, _] = rows(rank);
        let extents = tokens.local_extents().to_vec();
        let of_row = |local: usize| if is_local { local } else { extents[0].index(local) } as u32;
        let block: Vec<u32> = (0..extents[0].local)
            .flat_map(|row| std::iter::repeat_n(of_row(row), extents[1].local))
            .collect();
        Tokens::from_block(rank, &SIZES[..2], &block)
    };
    passes("global rows", &MESHES, |rank| {
        let ([tokens, _], labels) = (rows(rank), labels(rank, false));
        train(rank, |net, _| token_loss(net, &tokens, &labels))
    });
    caught("local rows", &["dp=2", "fsdp=2"], &["in step 1, along", "loss: differs"], |rank| {
        let ([tokens, _], labels) = (rows(rank), labels(rank, true));
        train(rank, |net, _| token_loss(net, &tokens, &labels))
    });
}

/// Noise on the stream, from a generator that `seed` starts.
fn noisy(net: &Net, rank: &Rank, seed: impl Fn(&Rank) -> u64) -> Loss<(Batch, Seq, Hidden)> {
    let x = stream(rank);
    let number = |index: u64| (random::subkey(seed(rank), index) % 1000) as f32 / 1000.0;
    let block: Vec<f32> = (0..x.to_local_vec().len() as u64).map(number).collect();
    let noise: Stream = Tensor::from_block(rank, &SIZES, &block);
    let y = net.down.forward(&net.up.forward(&(x + noise)));
    Loss::mean_of(&(&y * &y))
}

#[test]
fn noise_of_ranks() {
    passes("noise by element", &MESHES, |rank| {
        train(rank, |net, _| {
            let number = |at: &[usize]| {
                let index = (at[0] * SIZES[1] + at[1]) * SIZES[2] + at[2];
                (random::subkey(5, index as u64) % 1000) as f32 / 1000.0
            };
            let noise: Stream = Tensor::from_fn(rank, &SIZES, number);
            let y = stream(rank) + noise;
            let y = net.down.forward(&net.up.forward(&y));
            Loss::mean_of(&(&y * &y))
        })
    });
    let parts = ["in step 1, along dp", "loss: differs"];
    caught("seeded by rank", &["dp=2", "dp=2,tp=2"], &parts, |rank| {
        train(rank, |net, _| noisy(net, rank, |rank| rank.position(AxisSet::DATA) as u64))
    });
    caught("seeded alike", &["dp=2"], &parts, |rank| train(rank, |net, _| noisy(net, rank, |_| 5)));
}

#[test]
fn local_counts() {
    caught("divided by local rows", &["dp=2"], &["in step 1, along dp", "loss: differs"], |rank| {
        train(rank, |net, _| {
            let y = net.down.forward(&net.up.forward(&stream(rank)));
            let rows = y.local_extents()[0].local as f32;
            Loss::mean_of(&(&y * &y * (1.0 / rows)))
        })
    });
    caught("divided by local features", &["tp=2"], &["in step 1, along tp"], |rank| {
        train(rank, |net, _| {
            let inner = net.up.forward(&stream(rank));
            let width = inner.local_extents()[2].local as f32;
            let y = net.down.forward(&(inner * (1.0 / width)));
            Loss::mean_of(&(&y * &y))
        })
    });
}

#[test]
fn an_initialization_by_the_fan_in_of_a_shard() {
    let run = |rank: &Rank, is_local: bool| {
        let built = net(rank)?;
        for param in built.params() {
            let extent = param.local_extents()[0];
            let fan_in = if is_local { extent.local } else { extent.global } as f32;
            let scaled = param.gather(rank).into_iter().map(|x| x / fan_in.sqrt());
            param.write_global(&scaled.collect::<Vec<_>>());
        }
        let mut observed = meshwright::testing::Observed::new(rank);
        observed.parameters(&built);
        Ok(observed)
    };
    passes("global fan-in", &["tp=2", "fsdp=2,tp=2"], |rank| run(rank, false));
    let parts = [
        "before the first step, along tp",
        "initial `down.weight`: differs",
        "initialization depends",
    ];
    caught("fan-in of a shard", &["tp=2"], &parts, |rank| run(rank, true));
}

#[test]
fn numbers_taken_to_the_host() {
    for (name, mesh, along) in [("rows", "dp=2", "along dp"), ("positions", "cp=2", "along cp")] {
        caught(name, &[mesh], &["in step 1", along], |rank| {
            train(rank, |net, _| {
                let y = net.down.forward(&net.up.forward(&stream(rank)));
                let local = y.to_local_vec();
                let mean = local.iter().map(|x| x.abs()).sum::<f32>() / local.len() as f32;
                // As a tensor of the positions of the rank: the same number in each of its elements.
                let block = vec![1.0 / mean; local.len()];
                let factors: Stream = Tensor::from_block(rank, &SIZES, &block);
                Loss::mean_of(&(&y * factors))
            })
        });
    }
    caught("a branch", &["dp=2"], &["in step 1, along dp"], |rank| {
        train(rank, |net, _| {
            let y = net.down.forward(&net.up.forward(&stream(rank)));
            let size = |numbers: Vec<f32>| numbers.into_iter().map(f32::abs).sum::<f32>();
            let is_large = size(y.to_local_vec()) > 0.5 * size(y.gather_to_vec());
            let y = if is_large { y.tanh() } else { y.silu() };
            Loss::mean_of(&(&y * &y))
        })
    });
}
