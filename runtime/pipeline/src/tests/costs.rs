//! Costs of stage-cut points: FLOPs, declared costs, measured times.

use crate::cut::ChainCosts;
use crate::{ChainOutline, StageCut, StageRequest, cut_stages};
use meshwright_core::nn::{
    Attention, Build, Builder, Embedding, Layers, Linear, LmHead, Sizes, Stack,
};
use meshwright_core::tensor::{Rank, ZeroStage};
use meshwright_macros::{dims, model};

use super::cut::field;
use super::fixture::on_ranks;

dims! { crate = meshwright_core; Vocab, Hidden, Heads, HeadDim }

#[model(crate = meshwright_core)]
#[expect(dead_code, reason = "the model is built, not run")]
struct Block {
    attention: Attention<Heads, Heads, HeadDim>,
    up: Linear<Hidden, Hidden>,
}

struct Tower;

impl Build for Tower {
    fn build(builder: &mut Builder<'_>) -> Tower {
        Embedding::<Vocab, Hidden>::build(&mut builder.field("embed"));
        Stack::<Block>::build(&mut builder.field("blocks"));
        let mut head = builder.field("head");
        head.tie("embed", Some("tied"));
        LmHead::<Hidden, Vocab>::build(&mut head);
        Tower
    }
}

fn tower(layers: usize) -> ChainOutline {
    ChainOutline {
        model: "Tower".to_owned(),
        fields: vec![field("embed", None), field("blocks", Some(layers))],
        last: vec![field("head", None)],
    }
}

fn sizes(layers: usize, vocab: usize) -> Sizes {
    let sizes = Sizes::new().with(Layers, layers).with(Vocab, vocab).with(Hidden, 4);
    sizes.with(Heads, 3).with(HeadDim, 5)
}

fn cut_tower(rank: &Rank, sizes: &Sizes, cut: &StageCut) -> Vec<usize> {
    let layers = sizes.get::<Layers>().unwrap();
    let request = StageRequest { placement: &[0, 1], cut, seq: 7 };
    let plan = cut_stages::<Tower>(rank, sizes, &tower(layers), &request).unwrap();
    plan.counts().to_vec()
}

/// A layer takes `6 * 16 + 12 * 15 * 7` FLOPs, and the head, tied or not, `6 * 4` for each token id.
#[test]
fn heads_count_where_they_run() {
    on_ranks("pp=2", ZeroStage::Replicated, |rank| {
        let layer = 6 * 16 + 12 * 15 * 7;
        for is_tied in [false, true] {
            for head_layers in 0..4 {
                let sizes = sizes(8, layer * head_layers / 24 + 1).with_flag("tied", is_tied);
                let counts = cut_tower(rank, &sizes, &StageCut::Auto);
                // The head costs a little more than so many layers.
                let expected = [[4, 4], [5, 3], [5, 3], [6, 2]][head_layers];
                assert_eq!(counts, expected, "a head of {head_layers} layers, tied: {is_tied}");
            }
        }
    });
}

#[test]
fn declared_costs_are_in_layers() {
    let flops = |path: &str| if path.starts_with("blocks.") { 10.0 } else { 3.0 };
    let mut chain = tower(3);
    let costs = |front, points, back| ChainCosts { front, points: Vec::from(points), back };
    assert_eq!(ChainCosts::new(&chain, &flops), costs(3.0, [10.0; 3], 3.0));
    chain.fields[0].cost = Some(1.5);
    chain.last[0].cost = Some(0.5);
    assert_eq!(ChainCosts::new(&chain, &flops), costs(15.0, [10.0; 3], 5.0));
    chain.fields[1].cost = Some(2.0);
    assert_eq!(ChainCosts::new(&chain, &flops), costs(15.0, [20.0; 3], 5.0));
    // Without a stack, a cost is relative to the average field, and without FLOPs, all are equal.
    let mut chain =
        ChainOutline { model: "Fields".to_owned(), fields: Vec::new(), last: Vec::new() };
    chain.fields = vec![field("a", None), field("b", None)];
    let costs = |points: [f64; 2]| ChainCosts { front: 0.0, points: Vec::from(points), back: 0.0 };
    assert_eq!(ChainCosts::new(&chain, &|_| 0.0), costs([1.0, 1.0]));
    chain.fields[0].cost = Some(2.0);
    assert_eq!(ChainCosts::new(&chain, &|_| 3.0), costs([6.0, 3.0]));
}

#[test]
fn measured_times_decide() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("times.json");
    std::fs::write(&path, r#"{"blocks.0": 9, "blocks.1": 2.5, "blocks.2": 2.5, "blocks.3": 4}"#)
        .unwrap();
    on_ranks("pp=2", ZeroStage::Replicated, |rank| {
        let cut = StageCut::Measured(path.clone());
        let sizes = sizes(4, 10).with_flag("tied", false);
        assert_eq!(cut_tower(rank, &sizes, &cut), [1, 3]);
    });
}
