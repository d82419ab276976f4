//! Stacks whose weights have tensors of their own.

use std::path::Path;

use serde_json::{Value, json};

use super::{HfMapping, HfName, export_hf, import_hf};
use crate::checkpoint::TensorBox;
use crate::checkpoint::hf::{HfConfig, HfFolder, HfFormat, HfSettings};
use meshwright_comm::{CommError, launch};
use meshwright_core::layout::{Ep, Split, Stacked, Tp};
use meshwright_core::nn::{Build, Builder, RmsNorm, Sizes, build};
use meshwright_core::tensor::{Init, ParamRef, Rank, Settings, ZeroStage};
use meshwright_cpu::CpuBackend;
use meshwright_macros::{dims, model};

dims! { crate = meshwright_core; Experts, Hidden, Ffn }

/// Stacks that are split in different ways.
struct Experts3;

impl Build for Experts3 {
    fn build(builder: &mut Builder<'_>) -> Experts3 {
        builder.param::<Stacked<Split<Experts, (Ep, Tp)>, Hidden, Ffn>>("gate", Init::Zeros);
        builder.param::<Stacked<Split<Experts, (Ep, Tp)>, Hidden, Ffn>>("up", Init::Zeros);
        builder.param::<Stacked<Split<Experts, Ep>, Split<Ffn, Tp>, Hidden>>("down", Init::Zeros);
        Experts3
    }
}

#[model(crate = meshwright_core)]
#[expect(dead_code, reason = "the model is not computed")]
struct Tiny {
    norm: RmsNorm<Hidden>,
    blocks: [Experts3; 2],
}

const NORM: HfName = HfName::same("norm.weight", "norm");
const GATE: HfName = HfName::stacked("blocks.*.gate", "h.*.experts.*.w1");
const UP: HfName = HfName::stacked("blocks.*.up", "h.*.experts.*.w3");
const DOWN: HfName = HfName::stacked("blocks.*.down", "h.*.experts.*.w2");
const NAMES: &[HfName] = &[NORM, GATE, UP, DOWN];
/// Gate and up of an expert are in one tensor.
const FUSED: &[HfName] = &[
    NORM,
    HfName::stacked("blocks.*.gate", "h.*.experts.*.w13").fused(),
    HfName::stacked("blocks.*.up", "h.*.experts.*.w13").fused(),
    DOWN,
];

fn params(rank: &Rank) -> Vec<ParamRef> {
    let sizes = Sizes::new().with(Experts, 4).with(Hidden, 6).with(Ffn, 10);
    build::<Tiny>(rank, &sizes).unwrap().params()
}

fn on_mesh<T: Send>(mesh: &str, body: impl Fn(&Rank, &[ParamRef]) -> T + Sync) -> Vec<T> {
    let run = |comms| {
        let settings = Settings { zero: ZeroStage::Parameters, ..Settings::new(0) };
        let backend = Box::new(CpuBackend::new(1).expect("a thread starts"));
        let rank = Rank::with_settings(comms, backend, settings);
        Ok::<T, CommError>(body(&rank, &params(&rank)))
    };
    launch(&mesh.parse().expect("a mesh"), run).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a number for each element of a stack.
fn value(stack: usize, expert: usize, input: usize, output: usize) -> f32 {
    (stack * 1000 + expert * 100 + input * 10 + output) as f32
}

#[test]
fn each_weight_has_a_transposed_tensor() {
    on_mesh("ep=2", |rank, params| {
        let mapping = HfMapping::new(NAMES, params).unwrap();
        let tensors = mapping.shapes();
        assert_eq!(tensors.len(), 1 + 2 * 3 * 4);
        assert_eq!(tensors[2], ("h.0.experts.1.w1".to_owned(), vec![10, 6]));
        assert_eq!(tensors[12], ("h.0.experts.3.w2".to_owned(), vec![6, 10]));
        assert_eq!(tensors[24], ("h.1.experts.3.w2".to_owned(), vec![6, 10]));
        for (expert, tensor) in mapping.tensors()[1..5].iter().enumerate() {
            let [(slot, param)] = tensor.parts.as_slice() else { panic!("one part") };
            assert_eq!((param.path(), slot.weight()), ("blocks.0.gate", Some(expert)));
            assert_eq!(slot.is_held(), expert / 2 == rank.index());
            assert_eq!(slot.local_box(), TensorBox::whole(&[10, 6]));
        }
    });
}

#[test]
fn fused_weights_share_a_tensor() {
    on_mesh("1", |_, params| {
        let mapping = HfMapping::new(FUSED, params).unwrap();
        let tensors = mapping.shapes();
        assert_eq!(tensors.len(), 1 + 2 * 2 * 4);
        assert_eq!(tensors[1], ("h.0.experts.0.w13".to_owned(), vec![20, 6]));
        let paths: Vec<_> =
            mapping.tensors()[2].parts.iter().map(|(_, param)| param.path()).collect();
        assert_eq!(paths, ["blocks.0.gate", "blocks.0.up"]);
    });
}

#[test]
fn entries_that_fit_no_stack_are_refused() {
    on_mesh("1", |_, params| {
        let refusal = |name| {
            let names = [name, GATE, UP, DOWN, NORM];
            HfMapping::new(&names, params).err().unwrap().to_string()
        };
        assert_eq!(
            refusal(HfName::stacked("norm.weight", "norm.*")),
            "`HF_NAMES` maps the weights of a stack at `norm.weight`, which is a single weight; give it an entry \
             `HfName::same` or `HfName::transposed`"
        );
        assert_eq!(
            refusal(HfName::stacked("blocks.*.gate", "h.*.w1")),
            "`HF_NAMES` maps the stack `blocks.0.gate` to `h.*.w1`, in which 1 `*` stand for 2 numbers: the numbers \
             of the path, and at last that of each weight"
        );
        let text = refusal(HfName::stacked("blocks.0.gate", "h.*.experts.*.w1"));
        assert!(text.contains("in which 2 `*` stand for 1 numbers"), "{text}");
        let text = refusal(HfName::stacked("blocks.0.gate", "h.1.experts.*.w1"));
        assert!(text.contains("maps both `blocks.0.gate` and `blocks.1.gate` to"), "{text}");
    });
}

struct TinyConfig;

impl HfConfig for TinyConfig {
    const MODEL_TYPE: &'static str = "tiny";

    fn from_settings(_: &HfSettings<'_>) -> Result<TinyConfig, String> {
        Ok(TinyConfig)
    }

    fn to_json(&self) -> Value {
        json!({ "model_type": "tiny" })
    }

    fn layers(&self) -> (&'static str, usize) {
        ("layers", 2)
    }
}

/// Returns the global parameters of known numbers: each stack `[expert, input, output]`.
fn known(params: &[ParamRef]) -> Vec<Vec<f32>> {
    let of_param = |(index, param): (usize, &ParamRef)| {
        let [experts, inputs, outputs] = param.sizes()[..] else {
            return vec![0.5; param.global_len()];
        };
        let of_input = |at: usize| {
            (0..outputs).map(move |output| value(index, at / inputs, at % inputs, output))
        };
        (0..experts * inputs).flat_map(of_input).collect()
    };
    params.iter().enumerate().map(of_param).collect()
}

fn export(rank: &Rank, params: &[ParamRef], names: &[HfName], to: &Path) {
    let shapes = HfMapping::new(names, params).unwrap().shapes();
    export_hf(rank, to, &HfFormat::new(&TinyConfig, shapes), names, params).unwrap();
}

/// Each rank imports its own weights, and an export has equal bytes from every mesh.
#[test]
fn stacks_are_imported_and_exported_on_any_mesh() {
    for names in [NAMES, FUSED] {
        let first = tempfile::tempdir().unwrap();
        on_mesh("1", |rank, params| {
            for (param, values) in params.iter().zip(known(params)) {
                param.write_global(&values);
            }
            export(rank, params, names, first.path());
        });
        let bytes = |folder: &Path| std::fs::read(folder.join("model.safetensors")).unwrap();
        let expected = bytes(first.path());
        for mesh in ["1", "ep=2", "tp=2", "ep=2,tp=2", "ep=4", "fsdp=2,ep=2", "dp=2,tp=2"] {
            let second = tempfile::tempdir().unwrap();
            on_mesh(mesh, |rank, params| {
                let (_, folder) = HfFolder::open::<TinyConfig>(first.path(), &[]).unwrap();
                folder.check_tensors(&HfMapping::new(names, params).unwrap().shapes()).unwrap();
                import_hf(&folder, names, params).unwrap();
                for (param, values) in params.iter().zip(known(params)) {
                    assert_eq!(param.gather(rank), values, "{} on {mesh}", param.path());
                }
                export(rank, params, names, second.path());
            });
            assert!(bytes(second.path()) == expected, "exported from {mesh}");
        }
    }
}

/// Reads tensors of the export alone.
#[test]
fn exported_weights_are_those_of_their_experts() {
    use crate::checkpoint::TensorSource;
    let dir = tempfile::tempdir().unwrap();
    on_mesh("ep=2,tp=2", |rank, params| {
        for (param, values) in params.iter().zip(known(params)) {
            param.write_global(&values);
        }
        export(rank, params, FUSED, dir.path());
    });
    let (_, folder) = HfFolder::open::<TinyConfig>(dir.path(), &[]).unwrap();
    let read = |name: &str, shape: [usize; 2]| {
        folder.read(name, &shape, &TensorBox::whole(&shape)).unwrap()
    };
    // Parameters are numbered from the norm on: gate, up and down of block 0 are 1, 2 and 3.
    let fused = read("h.0.experts.2.w13", [20, 6]);
    assert_eq!(fused[3 * 6 + 5], value(1, 2, 5, 3));
    assert_eq!(fused[(10 + 3) * 6 + 5], value(2, 2, 5, 3));
    let down = read("h.1.experts.3.w2", [6, 10]);
    assert_eq!(down[4 * 10 + 7], value(6, 3, 7, 4));
}
