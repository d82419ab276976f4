//! Segments from a model's attributes and from a run's override, and policies that are refused.
#![expect(dead_code, reason = "the models are built, not run")]

use crate::nn::builder::declare;
use crate::nn::{
    Attention, Build, Builder, Built, Layer, Layers, Linear, RecomputeOverride, RmsNorm, Rope,
    Sizes, Stack,
};
use crate::tensor::{CheckpointedSegment, Rank, SavePolicy, Tensor};
use meshwright_comm::RankComms;
use meshwright_cpu::CpuBackend;
use meshwright_macros::{dims, forward, model};
use meshwright_mesh::MeshShape;

dims! { crate = crate; Batch @ data, Seq, Hidden, Heads, HeadDim, Inner }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model(crate = crate)]
struct Attn {
    q: Linear<Hidden, (Heads, HeadDim)>,
    k: Linear<Hidden, (Heads, HeadDim)>,
    v: Linear<Hidden, (Heads, HeadDim)>,
    rope: Rope<HeadDim>,
    core: Attention<Heads, Heads, HeadDim>,
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward(crate = crate)]
impl Attn {
    fn forward(&self, x: &Stream) -> Stream {
        let q = self.rope.forward(&self.q.forward(x));
        let k = self.rope.forward(&self.k.forward(x));
        self.o.forward(&self.core.forward(&(q, k, self.v.forward(x))))
    }
}

#[model(crate = crate)]
struct Block {
    norm: RmsNorm<Hidden>,
    attn: Attn,
}

#[forward(crate = crate)]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.attn.forward(&self.norm.forward(x))
    }
}

#[model(crate = crate)]
struct Plain {
    blocks: Stack<Block>,
}

#[model(crate = crate)]
struct Each {
    #[recompute(save = [attn.core, norm], offload)]
    blocks: Stack<Block>,
}

#[model(crate = crate)]
struct Pairs {
    #[recompute(every = 2, save = [attn.q])]
    blocks: Stack<Block>,
}

#[model(crate = crate)]
struct Root {
    #[recompute(every = "sqrt")]
    blocks: Stack<Block>,
    #[recompute(save = [attn])]
    last: Block,
}

#[model(crate = crate)]
struct Row {
    #[recompute]
    inner: Stack<RmsNorm<Hidden>, Inner>,
}

#[model(crate = crate)]
struct Rows {
    rows: Stack<Row>,
}

fn sizes() -> Sizes {
    Sizes::new().with(Hidden, 8).with(Heads, 2).with(HeadDim, 4).with(Layers, 5).with(Inner, 2)
}

fn overridden(by: &str) -> Sizes {
    let by: RecomputeOverride = by.parse().expect("a way to recompute");
    let mut sizes = sizes();
    sizes.recompute = Some(by);
    sizes
}

fn on_rank<M: Build>(sizes: &Sizes) -> Result<Built<M>, Vec<String>> {
    let backend = CpuBackend::new(1).expect("a backend of one thread starts");
    let rank = Rank::new(RankComms::unattended(MeshShape::SINGLE), Box::new(backend), 1);
    declare::<M>(&rank, sizes).map_err(|error| error.problems)
}

fn built<M: Build>(sizes: &Sizes) -> M {
    on_rank(sizes).unwrap_or_else(|problems| panic!("{problems:?}")).model
}

/// The checkpointed segments of a stack, after checking that the segments cover all layers.
fn regions<M, N>(stack: &Stack<M, N>) -> Vec<CheckpointedSegment> {
    let layers: Vec<usize> =
        stack.segments.iter().flat_map(|segment| segment.layers.clone()).collect();
    assert_eq!(layers, (0..stack.layers().len()).collect::<Vec<_>>());
    stack.segments.iter().filter_map(|segment| segment.checkpointed.as_deref().cloned()).collect()
}

fn paths<M, N>(stack: &Stack<M, N>) -> Vec<String> {
    regions(stack).into_iter().map(|region| region.path).collect()
}

fn under(paths: &[&str]) -> SavePolicy {
    SavePolicy::Under(paths.iter().map(|path| (*path).to_owned()).collect())
}

#[test]
fn attributes_group_layers_into_segments() {
    let each = regions(&built::<Each>(&sizes()).blocks);
    assert_eq!(each.len(), 5);
    let third = CheckpointedSegment {
        path: "blocks.2".to_owned(),
        keep: under(&["blocks.2.attn.core", "blocks.2.norm"]),
        offload: true,
    };
    assert_eq!(each[2], third);

    let pairs = regions(&built::<Pairs>(&sizes()).blocks);
    let expected = [
        ("blocks.0-1", under(&["blocks.0.attn.q", "blocks.1.attn.q"])),
        ("blocks.2-3", under(&["blocks.2.attn.q", "blocks.3.attn.q"])),
        ("blocks.4", under(&["blocks.4.attn.q"])),
    ];
    let expected = expected.map(|(path, keep)| CheckpointedSegment {
        path: path.to_owned(),
        keep,
        offload: false,
    });
    assert_eq!(pairs, expected);

    let root = built::<Root>(&sizes());
    assert_eq!(paths(&root.blocks), ["blocks.0-2", "blocks.3-4"]);
    let last = root.last.segment.as_deref();
    let expected = CheckpointedSegment {
        path: "last".to_owned(),
        keep: under(&["last.attn"]),
        offload: false,
    };
    assert_eq!(last, Some(&expected));
    assert!(paths(&built::<Plain>(&sizes()).blocks).is_empty());
}

#[test]
fn an_override_applies_to_outer_stacks_only() {
    for (by, expected) in [
        ("none", vec![]),
        ("full", vec!["blocks.0", "blocks.1", "blocks.2", "blocks.3", "blocks.4"]),
        ("every=3", vec!["blocks.0-2", "blocks.3-4"]),
        ("every=9", vec!["blocks.0-4"]),
        ("sqrt", vec!["blocks.0-2", "blocks.3-4"]),
    ] {
        let root = built::<Root>(&overridden(by));
        assert_eq!(paths(&root.blocks), expected, "{by}");
        assert_eq!(root.last.segment, None, "{by}");
        let regions = regions(&built::<Each>(&overridden(by)).blocks);
        let plain =
            regions.iter().all(|region| region.keep == SavePolicy::Nothing && !region.offload);
        assert!(plain, "{by}: {regions:?}");
        assert_eq!(paths(&built::<Plain>(&overridden(by)).blocks), expected, "{by}");
    }
    let rows = built::<Rows>(&sizes()).rows;
    assert!(paths(&rows).is_empty());
    assert_eq!(paths(&rows.layers()[1].inner), ["rows.1.inner.0", "rows.1.inner.1"]);
    let rows = built::<Rows>(&overridden("every=5")).rows;
    assert_eq!(paths(&rows), ["rows.0-4"]);
    assert!(paths(&rows.layers()[1].inner).is_empty());
}

#[test]
fn attention_is_recomputed_with_its_inputs() {
    let attn = regions(&built::<Plain>(&overridden("attn")).blocks);
    assert_eq!(attn.len(), 5);
    let leads = ["core", "k", "q", "rope", "v"].map(|field| format!("blocks.3.attn.{field}"));
    let fourth = CheckpointedSegment {
        path: "blocks.3".to_owned(),
        keep: SavePolicy::AllBut(leads.into()),
        offload: false,
    };
    assert_eq!(attn[3], fourth);
}

#[test]
fn an_override_that_applies_to_nothing_is_refused() {
    #[model(crate = crate)]
    struct Flat {
        block: Block,
    }
    for by in ["full", "every=2", "sqrt"] {
        let problems = on_rank::<Flat>(&overridden(by)).err();
        let expected = format!("`recompute = {by}` applies to nothing: the model has no `Stack`");
        assert_eq!(problems, Some(vec![expected]));
    }
    assert!(on_rank::<Flat>(&overridden("none")).is_ok());
    let problems = on_rank::<Rows>(&overridden("attn")).err();
    let expected =
        "`recompute = attn` applies to nothing: the model has no `Attention` inside a `Stack`";
    assert_eq!(problems, Some(vec![expected.to_owned()]));
}

#[test]
fn saved_fields_of_a_type_parameter_are_checked() {
    #[model(crate = crate)]
    struct Many<L: 'static> {
        #[recompute(save = [attn.cor, attn.q.weight, norm, mlp])]
        layers: Stack<L>,
    }
    let problems = on_rank::<Many<Block>>(&sizes()).err();
    let expected = [
        "`layers`: `save = [attn.cor]` names nothing: `attn` has the fields `q`, `k`, `v`, `rope`, `core`, `o`",
        "`layers`: `save = [attn.q.weight]` names nothing: `attn.q` has no fields",
        "`layers`: `save = [mlp]` names nothing: the layer has the fields `norm`, `attn`",
    ];
    assert_eq!(problems, Some(expected.map(str::to_owned).into()));
}

#[test]
fn groups_of_no_layers_are_refused() {
    struct ByHand;
    impl Build for ByHand {
        fn build(builder: &mut Builder<'_>) -> Self {
            let policy = super::RecomputePolicy {
                grouping: super::Grouping::Every(0),
                ..Default::default()
            };
            <Stack<Block>>::build(builder.field("blocks").recompute(policy));
            ByHand
        }
    }
    let problems = on_rank::<ByHand>(&sizes()).err();
    let expected = "`blocks`: `every = 0`: a segment has at least one layer";
    assert_eq!(problems, Some(vec![expected.to_owned()]));
}

#[test]
fn a_model_that_contains_itself_is_refused() {
    #[model(crate = crate)]
    struct Tree {
        norm: RmsNorm<Hidden>,
        children: Stack<Tree>,
    }
    let problems = on_rank::<Tree>(&sizes()).err().unwrap_or_default();
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert!(problem.starts_with("`children.*.children`: is a stack of `"), "{problem}");
    assert!(problem.contains("a model cannot contain itself"), "{problem}");
}
