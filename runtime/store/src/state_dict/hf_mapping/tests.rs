//! Tests of the mapping of parameters to tensors.

use super::*;
use crate::checkpoint::TensorBox;
use meshwright_comm::RankComms;
use meshwright_core::__internal::declare;
use meshwright_core::layout::{Ep, Split, Stacked};
use meshwright_core::nn::{Build, Builder, Embedding, LmHead, RmsNorm, Sizes};
use meshwright_core::tensor::{Init, Rank};
use meshwright_cpu::CpuBackend;
use meshwright_macros::{dims, model};

dims! { crate = meshwright_core; Vocab, Hidden, Experts }

struct Twins;

impl Build for Twins {
    fn build(builder: &mut Builder<'_>) -> Twins {
        RmsNorm::<Hidden>::build(&mut builder.field("first"));
        RmsNorm::<Hidden>::build(&mut builder.field("second"));
        LmHead::<Hidden, Vocab>::build(&mut builder.field("head"));
        Twins
    }
}

struct Stack;

impl Build for Stack {
    fn build(builder: &mut Builder<'_>) -> Stack {
        builder.param::<Stacked<Split<Experts, Ep>, Hidden, Vocab>>("weight", Init::Zeros);
        Stack
    }
}

const HEAD: HfName = HfName::transposed("head.weight", "lm_head");

fn sizes() -> Sizes {
    Sizes::new().with(Vocab, 10).with(Hidden, 4).with(Experts, 6)
}

fn params<M: Build>(mesh: &str) -> Vec<ParamRef> {
    params_of::<M>(mesh, &sizes())
}

fn params_of<M: Build>(mesh: &str, sizes: &Sizes) -> Vec<ParamRef> {
    let comms = RankComms::unattended(mesh.parse().unwrap());
    let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
    declare::<M>(&rank, sizes).unwrap().params()
}

fn shapes(first: HfName, second: HfName) -> Result<Vec<(String, Vec<usize>)>, String> {
    let params = params::<Twins>("1");
    let mapping = HfMapping::new(&[first, second, HEAD], &params);
    mapping.map(|mapping| mapping.shapes()).map_err(|error| error.to_string())
}

#[test]
fn shapes_follow_from_names_and_parameters() {
    let [a, b] = ["a", "b"].map(str::to_owned);
    let first = HfName::same("first.weight", "a");
    let found = shapes(first, HfName::same("second.weight", "b")).unwrap();
    assert_eq!(found[..2], [(a.clone(), vec![4]), (b, vec![4])]);
    assert_eq!(found[2].0, "lm_head");
    let found = shapes(first.fused(), HfName::same("second.weight", "a").fused()).unwrap();
    assert_eq!(found[0], (a, vec![8]));
    assert_eq!(found.len(), 2);
}

/// Each weight of a stack is transposed, and a rank reads the weights of its experts.
#[test]
fn stacked_weights_are_three_dims() {
    let params = params::<Stack>("ep=2");
    let value =
        |expert: usize, input: usize, output: usize| (expert * 100 + input * 10 + output) as f32;
    for (name, is_transposed) in
        [(HfName::same("weight", "w"), false), (HfName::transposed("weight", "w"), true)]
    {
        let names = [name];
        let mapping = HfMapping::new(&names, &params).unwrap();
        let [tensor] = mapping.tensors() else { panic!("one tensor") };
        let [(slot, param)] = tensor.parts.as_slice() else { panic!("one part") };
        assert_eq!(tensor.shape, if is_transposed { [6, 10, 4] } else { [6, 4, 10] });
        let held = if is_transposed { [3, 10, 4] } else { [3, 4, 10] };
        // An unattended rank is the last one.
        assert_eq!(slot.local_box(), TensorBox::new(&[3, 0, 0], &held));
        let all = |experts: usize, is_transposed: bool| {
            let (rows, cols) = if is_transposed { (10, 4) } else { (4, 10) };
            let element = move |index: usize| {
                let (row, col) = (index / cols % rows, index % cols);
                let (input, output) = if is_transposed { (col, row) } else { (row, col) };
                value(index / (rows * cols), input, output)
            };
            (0..experts * rows * cols).map(element).collect::<Vec<_>>()
        };
        let mut block = vec![0.0; param.local_len()];
        slot.copy_to_param(&all(3, is_transposed), &mut block);
        assert_eq!(block, all(3, false));
        let mut exported = vec![0.0; 6 * 40];
        slot.unsharded().copy_to_tensor(&all(6, false), &mut exported);
        assert_eq!(exported, all(6, is_transposed));
    }
}

/// Elements that one entry maps to one tensor would overwrite each other in it.
#[test]
fn an_entry_is_one_part_of_a_fused_tensor() {
    #[model(crate = meshwright_core)]
    #[expect(dead_code, reason = "the model is declared only")]
    struct Heads {
        heads: [LmHead<Hidden, Vocab>; 2],
    }
    let params = params::<Heads>("1");
    let of_both = [HfName::same("heads.*.weight", "a").fused()];
    let text = HfMapping::new(&of_both, &params).err().unwrap().to_string();
    let both = "`HF_NAMES` maps both `heads.0.weight` and `heads.1.weight` to the same part of";
    assert!(text.contains(both), "{text}");
    let of_each = ["heads.0.weight", "heads.1.weight"].map(|path| HfName::same(path, "a").fused());
    let mapping = HfMapping::new(&of_each, &params).unwrap();
    assert_eq!(mapping.tensors().len(), 1);
}

/// Optional and tied fields have entries that no parameter has, so these alone are no mistake.
#[test]
fn misspelled_paths_are_named() {
    #[model(crate = meshwright_core)]
    #[expect(dead_code, reason = "the model is declared only")]
    struct Tied {
        embed: Embedding<Vocab, Hidden>,
        norms: [RmsNorm<Hidden>; 2],
        extra: Option<RmsNorm<Hidden>>,
        #[tied(embed)]
        head: LmHead<Hidden, Vocab>,
    }
    let params = params_of::<Tied>("1", &sizes().with_optional("extra", false));
    let of_absent = [HfName::same("extra.weight", "extra"), HfName::same("head.weight", "lm_head")];
    let problem = |embed: &'static str, norms: &'static str| {
        let own = [HfName::same(embed, "wte"), HfName::same(norms, "h.*.norm")];
        let names = [&own[..], &of_absent].concat();
        HfMapping::new(&names, &params).err().map(|error| error.to_string())
    };
    assert_eq!(problem("embed.weight", "norms.*.weight"), None);
    let missing = |path: &str, hint: &str| {
        Some(format!(
            "`{path}` has no entry in the model's `HF_NAMES`, so it can be neither imported nor exported{hint}"
        ))
    };
    let meant = |entry: &str, name: &str, path: &str| {
        format!(
            "; its entry `{entry}`, for the tensor `{name}`, is that of no parameter: did you mean `{path}`?"
        )
    };
    for typed in ["embd.weight", "embed.wieght", "ebmed.weight", "embed.weights", "embed"] {
        let hint = meant(typed, "wte", "embed.weight");
        assert_eq!(problem(typed, "norms.*.weight"), missing("embed.weight", &hint), "{typed}");
    }
    for typed in ["norm.*.weight", "norms.weight", "norms.*.wight", "norms.*"] {
        let hint = meant(typed, "h.*.norm", "norms.*.weight");
        assert_eq!(problem("embed.weight", typed), missing("norms.0.weight", &hint), "{typed}");
    }
    assert_eq!(problem("wte", "norms.*.weight"), missing("embed.weight", ""));
    assert_eq!(problem("embed.weight", "norms.0.weight"), missing("norms.1.weight", ""));
    // The second entry of a path is that of no parameter either.
    let names = ["norms.*.weight", "norms.*.weight"].map(|path| HfName::same(path, "h.*.norm"));
    let twice = HfMapping::new(&names, &params).err().unwrap().to_string();
    assert_eq!(Some(twice), missing("embed.weight", ""));
}

#[test]
fn tensors_are_shared_only_if_fused() {
    let (first, second) = (HfName::same("first.weight", "a"), HfName::same("second.weight", "a"));
    for (first, second) in [(first, second), (first.fused(), second), (first, second.fused())] {
        let text = shapes(first, second).unwrap_err();
        assert!(text.contains("maps both `first.weight` and `second.weight` to"), "{text}");
    }
    let text = shapes(first.fused(), HfName::same("head.weight", "a").fused()).unwrap_err();
    assert!(text.contains("`second.weight` has no entry in the model's `HF_NAMES`"), "{text}");
}
