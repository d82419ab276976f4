//! Stages against the whole model: parameters, owners, memory, and parameters of other stages.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{StageCut, StageRequest, build_stages, cut_stages};
use meshwright_backend::Category;
use meshwright_core::layout::{AxisId, AxisSet};
use meshwright_core::nn::{Built, build};
use meshwright_core::tensor::{ParamRef, Rank, ZeroStage};

use super::fixture::{
    TestModel, TinyGpt2, TinyLlama, build_tiny, on_ranks, placement, plan_of, sizes,
};

const PP: AxisSet = AxisSet::of(AxisId::Pp);

/// Returns the bits of all parameters that this rank owns, by path.
fn owned_bits<M>(built: &Built<M>, rank: &Rank) -> BTreeMap<String, Vec<u32>> {
    let owned = built.params().into_iter().filter(ParamRef::is_owned);
    let bits = |param: ParamRef| {
        let values = param.gather(rank).into_iter().map(f32::to_bits).collect();
        (param.path().to_owned(), values)
    };
    owned.map(bits).collect()
}

fn check_parameters<M: TestModel>(mesh: &str, zero: ZeroStage, is_tied: bool) {
    let whole = on_ranks("1", zero, |rank| {
        owned_bits(&build::<M>(rank, &sizes(4, is_tied)).unwrap(), rank)
    });
    let stages = on_ranks(mesh, zero, |rank| {
        let built = build_tiny::<M>(rank, is_tied);
        assert_eq!(built.params().len(), whole[0].len());
        (rank.position(PP), owned_bits(&built, rank))
    });
    let mut owners: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (position, owned) in &stages {
        assert!(!owned.is_empty(), "{mesh}");
        for (path, bits) in owned {
            assert_eq!(bits, &whole[0][path], "{mesh}: {path}");
            owners.entry(path).or_default().push(*position);
        }
    }
    let ranks = stages.iter().map(|(position, _)| position).max().unwrap() + 1;
    for path in whole[0].keys() {
        let mut found = owners[path.as_str()].clone();
        found.sort_unstable();
        found.dedup();
        let expected = match path.as_str() {
            "embed.weight" if is_tied => vec![0, ranks - 1],
            "embed.weight" | "positions.weight" | "positions" => vec![0],
            "norm.gain" | "norm.weight" | "norm.bias" | "gain" | "head.weight" => vec![ranks - 1],
            _ => vec![found[0]],
        };
        assert_eq!(found, expected, "{mesh}: owners of {path}");
    }
}

#[test]
fn stages_equal_the_whole_model() {
    for mesh in ["pp=2", "pp=4", "pp=2,fsdp=2", "pp=2,tp=2", "pp=3,dp=2"] {
        check_parameters::<TinyLlama>(mesh, ZeroStage::Parameters, false);
        check_parameters::<TinyLlama>(mesh, ZeroStage::Optimizer, true);
        check_parameters::<TinyGpt2>(mesh, ZeroStage::Gradients, true);
    }
}

#[test]
fn a_v_shape_owns_tied_parameters_once() {
    let owned = on_ranks("pp=2", ZeroStage::Replicated, |rank| {
        let (sizes, cut) = (sizes(4, true), "even".parse::<StageCut>().unwrap());
        let request = StageRequest { placement: &placement(2, 4, true), cut: &cut, seq: 5 };
        let plan = cut_stages::<TinyLlama>(rank, &sizes, &TinyLlama::chain(4), &request).unwrap();
        assert_eq!(plan.stages_of_rank(0), [0, 3]);
        assert_eq!(plan.stages_of_rank(1), [1, 2]);
        let built = build_stages::<TinyLlama>(rank, &sizes, &plan).unwrap();
        let embed = &built.params()[0];
        assert_eq!(embed.unit().owners().unwrap().stages(), [0, 3]);
        assert_eq!(embed.unit().owners().unwrap().ranks(), [0]);
        built.units.iter().map(|unit| unit.name().to_owned()).collect::<Vec<_>>()
    });
    assert_eq!(owned[0], ["embed", "blocks.0", "blocks.3", "norm"]);
    assert_eq!(owned[1], ["blocks.1", "blocks.2"]);
}

/// Parameters and gradients belong to the owned units, and none to other stages.
#[test]
fn only_owned_units_take_memory() {
    for (mesh, is_tied) in [("pp=2", false), ("pp=2", true), ("pp=4", false)] {
        on_ranks(mesh, ZeroStage::Replicated, |rank| {
            let built = build_tiny::<TinyLlama>(rank, is_tied);
            let elements: usize = built.units.iter().map(|unit| unit.len()).sum();
            let live: BTreeMap<Category, usize> = rank.allocator().live().collect();
            assert_eq!(live[&Category::Parameters], 4 * elements);
            assert_eq!(live[&Category::Gradients], 4 * elements);
            assert_eq!(rank.units().len(), built.units.len());
            assert!(rank.units().iter().all(|unit| unit.is_owned()));
        });
    }
}

#[test]
fn parameters_of_other_stages_are_not_read() {
    let texts = on_ranks("pp=2", ZeroStage::Replicated, |rank| {
        let built = build_tiny::<TinyLlama>(rank, false);
        let params = built.params();
        let other = params.iter().find(|param| !param.is_owned()).unwrap();
        assert!(other.owned().is_empty());
        let block = vec![0.0; other.local_len()];
        let uses: [&dyn Fn(); 6] = [
            &|| drop(other.to_local_vec()),
            &|| drop(other.gather(rank)),
            &|| drop(other.owned_values()),
            &|| drop(other.read(AxisSet::NONE)),
            &|| other.write(&block),
            &|| other.write_global(&block),
        ];
        let texts = uses.map(|body| {
            let caught = catch_unwind(AssertUnwindSafe(body)).unwrap_err();
            caught.downcast_ref::<String>().unwrap().clone()
        });
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
        texts[0].clone()
    });
    assert_eq!(
        texts[0],
        "`blocks.2.norm.weight` is owned by pipeline stage 1 at pp = 1: the rank at pp = 0 has neither its values nor \
         its gradient; use it in the forward pass of its stage, put `#[tied(..)]` on a field of its own in each other \
         stage that uses it, and elsewhere ask `ParamRef::is_owned`"
    );
    assert!(texts[1].starts_with("`embed.weight` is owned by pipeline stage 0 at pp = 0: "));
}

/// Numbers that ranks along `pp` write to parameters of their own stages are not compared with each other.
#[test]
fn stages_write_their_own_parameters() {
    on_ranks("pp=2,tp=2", ZeroStage::Replicated, |rank| {
        let built = build_tiny::<TinyLlama>(rank, true);
        for param in built.params().iter().filter(|param| param.is_owned()) {
            let number = param.global_len() as f32;
            param.write(&vec![number; param.local_len()]);
            param.write_global(&vec![number + 1.0; param.global_len()]);
        }
        rank.compare_declared_values();
    });
}

#[test]
fn ranks_compare_their_plans() {
    let run = catch_unwind(|| {
        on_ranks("pp=2", ZeroStage::Replicated, |rank| {
            let sizes = sizes(4, false);
            let counts = if rank.index() == 0 { vec![1, 3] } else { vec![2, 2] };
            let request =
                StageRequest { placement: &[0, 1], cut: &StageCut::Counts(counts), seq: 5 };
            let chain = TinyLlama::chain(4);
            let plan = cut_stages::<TinyLlama>(rank, &sizes, &chain, &request).unwrap();
            let built = build_stages::<TinyLlama>(rank, &sizes, &plan).unwrap();
            rank.compare_declared_values();
            drop(built);
        });
    });
    let text = run.unwrap_err();
    let text = text.downcast_ref::<String>().unwrap();
    assert!(text.contains("the pipeline stages of a model"), "{text}");
}

#[test]
fn plans_are_for_one_mesh() {
    let plan = on_ranks("pp=2", ZeroStage::Replicated, |rank| {
        plan_of::<TinyLlama>(rank, &sizes(4, false))
    });
    on_ranks("pp=4", ZeroStage::Replicated, |rank| {
        let error = build_stages::<TinyLlama>(rank, &sizes(4, false), &plan[0]).err().unwrap();
        assert_eq!(error.problems, ["--mesh: pp=4, but the plan is for pp=2"]);
    });
}
