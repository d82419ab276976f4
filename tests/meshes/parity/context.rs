//! A model without attention whose sequence is distributed over cp, against one rank.

use meshwright::layout::{AxisId, AxisSet, Split, Tp};
use meshwright::nn::{Layers, Sizes, build};
use meshwright::tensor::Tensor;
use meshwright_tests::data::{TokenData, Turn, numbers};
use meshwright_tests::models::token_mlp::{Batch, Ffn, Hidden, Positions, Seq, TokenMlp, Vocab};
use meshwright_tests::run::{Setup, on_mesh};

use super::sharding::variants;
use super::table::{check, check_each};

/// Sequences that do not divide into the chunks of any of the meshes.
const DATA: TokenData = TokenData { batch: 16, seq: 11, vocab: 29, masked: true };

fn setup() -> Setup {
    let mut sizes = Sizes::new()
        .with(Hidden, 24)
        .with(Ffn, 32)
        .with(Vocab, DATA.vocab)
        .with(Positions, DATA.seq + 2)
        .with(Layers, 2);
    sizes.init_std = 0.2;
    sizes.dropout = 0.25;
    Setup::new(sizes)
}

#[test]
fn every_mesh_of_a_distributed_sequence() {
    let meshes = [
        "cp=2",
        "cp=3",
        "cp=4",
        "cp=2,tp=2",
        "dp=2,cp=2",
        "fsdp=2,cp=2",
        "dp=2,cp=2,tp=2",
        "ep=2,cp=2,tp=2",
    ];
    check("token MLP", &meshes, &setup(), |model: &TokenMlp, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}

#[test]
fn every_stage_of_a_distributed_sequence() {
    let setup = Setup { steps: 3, ..setup() };
    let meshes = &["fsdp=2,cp=2", "dp=2,fsdp=2,cp=2", "fsdp=2,cp=2,tp=2"];
    check_each(&setup, variants("token MLP", &setup, meshes), |model: &TokenMlp, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}

#[test]
fn parameters_after_a_mean_over_the_sequence() {
    let meshes = ["cp=2", "cp=4", "cp=2,tp=2", "dp=2,cp=2"];
    check("pool", &meshes, &setup(), |model: &TokenMlp, rank, _| {
        model.pooled_loss(&numbers(rank, "x", &[4, 5, 24]))
    });
}

/// A gradient is summed once, over all ranks that have other tokens, and not along `cp` by itself.
#[test]
fn gradients_are_summed_over_data_and_cp() {
    let [data, cp] = [AxisSet::DATA, AxisSet::of(AxisId::Cp)];
    let found = on_mesh("dp=2,cp=2", 1, |rank| {
        let built = build::<TokenMlp>(rank, &setup().sizes).unwrap();
        let (tokens, targets) = DATA.block(rank, Turn { step: 0, index: 0, count: 1 });
        let gradients = built.model.loss(&tokens, &targets).backward().reduce();
        assert!(gradients.norm() > 0.0);
        let elements: usize = built.params().iter().map(|param| param.global_len()).sum();
        (elements as u64, rank.comms().bytes_by_axes())
    });
    for (elements, sent) in found {
        let over = |chosen: &dyn Fn(AxisSet) -> bool| -> u64 {
            sent.iter().filter(|(axes, _)| chosen(**axes)).map(|(_, bytes)| bytes).sum()
        };
        let of_all =
            over(&|axes| !axes.intersection(cp).is_empty() && !axes.intersection(data).is_empty());
        // An all-reduce over four ranks sends 2 * 3/4 of the f32 elements.
        assert!(of_all >= elements * 4 * 2 * 3 / 4, "{sent:?} of {elements} elements");
        let along_cp =
            over(&|axes| !axes.intersection(cp).is_empty() && axes.intersection(data).is_empty());
        assert!(along_cp < elements, "{sent:?} of {elements} elements");
    }
}

/// A gather is the inverse of a slice, in both directions of both.
#[test]
fn gather_is_the_inverse_of_slice() {
    type X = Tensor<(Batch, Seq, Hidden)>;
    const SIZES: [usize; 3] = [6, 11, 5];
    let name = "x";
    let expected =
        on_mesh("1", 1, |rank| numbers::<(Batch, Seq, Hidden)>(rank, name, &SIZES).gather_to_vec());
    let meshes =
        ["tp=2", "tp=3", "cp=2,tp=2", "cp=2,tp=3", "cp=4,tp=2", "dp=2,tp=2", "fsdp=2,cp=2,tp=2"];
    for mesh in meshes {
        on_mesh(mesh, 1, |rank| {
            let x: X = numbers(rank, name, &SIZES);
            assert_eq!(x.gather_to_vec(), expected[0], "{mesh}");
            let own = x.to_local_vec();
            let of_seq = x.slice(Seq, Tp);
            let made: Tensor<(Batch, Split<Seq, Tp>, Hidden)> = numbers(rank, name, &SIZES);
            assert_eq!(of_seq.to_local_vec(), made.to_local_vec(), "{mesh}");
            assert_eq!(of_seq.gather_to_vec(), expected[0], "{mesh}");
            assert_eq!(of_seq.gather(Seq).to_local_vec(), own, "{mesh}");
            let of_batch = x.slice(Batch, Tp);
            let made: Tensor<(Split<Batch, Tp>, Seq, Hidden)> = numbers(rank, name, &SIZES);
            assert_eq!(of_batch.to_local_vec(), made.to_local_vec(), "{mesh}");
            assert_eq!(of_batch.gather_to_vec(), expected[0], "{mesh}");
            assert_eq!(of_batch.gather(Batch).to_local_vec(), own, "{mesh}");
        });
    }
}
