//! Rotary embeddings: scalings, partial heads and layouts against transformers, gradients, and shared tables.

use std::path::Path;

use meshwright::backend::{Category, RopeLayout};
use meshwright::checkpoint::hf::{HfConfig, LlamaConfig};
use meshwright::layout::AxisSet;
use meshwright::nn::{Layer, Rope, Sizes, build};
use meshwright::prelude::dims;
use meshwright::rotary::{Llama3Scaling, RopeParameters, RopeScaling, YarnScaling};
use meshwright::tensor::{Loss, Param, Rank, Tensor};
use meshwright::{forward, model};
use meshwright_tests::compare::{Report, distance};
use meshwright_tests::data::numbers;
use meshwright_tests::run::on_mesh;
use safetensors::SafeTensors;
use serde_json::{Value, json};

dims! {
    Batch @ data,
    Seq,
    Heads,
    HeadDim,
}

type Queries = Tensor<(Batch, Seq, Heads, HeadDim)>;

/// Largest difference of an element of order 1, of numbers that both sides round to f32.
const ROTATED: f32 = 1e-6;
/// Relative, by the norm.
const GRADIENT: f64 = 1e-6;

/// Two layers, which share their tables.
#[model]
struct Twice {
    gain: Param<(Heads, HeadDim)>,
    first: Rope<HeadDim>,
    second: Rope<HeadDim>,
}

#[forward]
impl Twice {
    fn forward(&self, x: &Queries) -> Queries {
        self.second.forward(&self.first.forward(&(x * &self.gain)))
    }
}

fn sizes(heads: usize, head_dim: usize, rope: &RopeParameters, layout: RopeLayout) -> Sizes {
    let mut sizes = Sizes::new().with(Heads, heads).with(HeadDim, head_dim);
    (sizes.rope, sizes.rope_layout) = (rope.clone(), layout);
    sizes
}

/// The fixture that `reference/rope_tables.py` writes.
struct Fixture {
    settings: Value,
    tensors: Vec<u8>,
}

impl Fixture {
    fn open() -> Fixture {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference/fixtures/rope");
        let settings = std::fs::read(folder.join("scalings.json")).unwrap();
        let tensors = std::fs::read(folder.join("expected.safetensors")).unwrap();
        Fixture { settings: serde_json::from_slice(&settings).unwrap(), tensors }
    }

    fn number(&self, key: &str) -> usize {
        self.settings[key].as_u64().unwrap() as usize
    }

    fn words(&self, name: &str) -> Vec<u32> {
        let tensors = SafeTensors::deserialize(&self.tensors).unwrap();
        let tensor = tensors.tensor(name).unwrap();
        let words = tensor.data().chunks_exact(4);
        words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.words(name).into_iter().map(f32::from_bits).collect()
    }

    /// Imports `parameters` as part of a `config.json`: of a Llama, or of a Phi-3, which may rotate parts of heads.
    fn import(&self, key: &str, parameters: &Value) -> RopeParameters {
        let folder = tempfile::tempdir().unwrap();
        let has_part = parameters.get("partial_rotary_factor").is_some();
        let config = json!({
            "model_type": if has_part { "phi3" } else { "llama" },
            "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
            "num_attention_heads": 4, "head_dim": self.number("head_dim"), "vocab_size": 10,
            "max_position_embeddings": self.number("max_position_embeddings"), key: parameters,
        });
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        LlamaConfig::read(folder.path(), &[]).unwrap().config.rope
    }
}

#[test]
fn every_scaling_rotates_as_in_transformers() {
    let fixture = Fixture::open();
    let positions = fixture.words("positions");
    let (seq, head_dim) = (fixture.number("seq"), fixture.number("head_dim"));
    let scalings = fixture.settings["scalings"].as_object().unwrap();
    assert_eq!(scalings.len(), 10);
    for (name, parameters) in scalings {
        let rope = fixture.import("rope_parameters", parameters);
        assert_eq!(fixture.import("rope_scaling", parameters), rope, "{name}");
        let rows = fixture.floats(&format!("{name}.x"));
        let heads = rows.len() / (2 * positions.len() * head_dim);
        let width = heads * head_dim;
        // The rows of the fixture at their positions, zeros between.
        let mut x = vec![0.0; 2 * seq * width];
        let row_of = |row: usize| {
            let (sample, position) = (row / positions.len(), positions[row % positions.len()]);
            (sample * seq + position as usize) * width
        };
        for (row, values) in rows.chunks_exact(width).enumerate() {
            x[row_of(row)..][..width].copy_from_slice(values);
        }
        for (layout, kind) in
            [(RopeLayout::HalfSplit, "half_split"), (RopeLayout::Interleaved, "interleaved")]
        {
            let expected = fixture.floats(&format!("{name}.{kind}"));
            on_mesh("1", 1, |rank| {
                let built =
                    build::<RopeOnly>(rank, &sizes(heads, head_dim, &rope, layout)).unwrap();
                let x: Queries = Tensor::from_block(rank, &[2, seq, heads, head_dim], &x);
                let rotated = built.model.rope.forward(&x).to_local_vec();
                for (row, expected) in expected.chunks_exact(width).enumerate() {
                    let found = &rotated[row_of(row)..][..width];
                    for (found, expected) in found.iter().zip(expected) {
                        let distance = (found - expected).abs();
                        assert!(
                            distance <= ROTATED * (1.0 + expected.abs()),
                            "{name}, {kind}, row {row}: {found}, not {expected}"
                        );
                    }
                }
            });
        }
    }
}

#[model]
struct RopeOnly {
    rope: Rope<HeadDim>,
}

#[forward]
impl RopeOnly {
    fn forward(&self, x: &Queries) -> Queries {
        self.rope.forward(x)
    }
}

/// Rotations are linear, so the gradient of `mean(weights * rotate(gain * x))` by `gain` follows from values alone: it
/// is the result for a gain with one element of 1, element by element.
#[test]
fn every_layout_has_the_gradient_of_its_values() {
    let yarn = RopeScaling::Yarn(YarnScaling::new(4.0, 16));
    let part = RopeParameters { partial_rotary_factor: 0.5, scaling: yarn, ..Default::default() };
    let mut report = Report::default();
    for (rope, layout) in [
        (RopeParameters::default(), RopeLayout::HalfSplit),
        (RopeParameters::default(), RopeLayout::Interleaved),
        (part.clone(), RopeLayout::HalfSplit),
        (part, RopeLayout::Interleaved),
    ] {
        for mesh in ["1", "dp=2"] {
            on_mesh(mesh, 1, |rank| {
                let built = build::<Twice>(rank, &sizes(2, 8, &rope, layout)).unwrap();
                let model = &built.model;
                let batch = rank.degree_of(AxisSet::DATA);
                let shape = [batch, 7, 2, 8];
                let x: Queries = numbers(rank, "x", &shape);
                let weights: Queries = numbers(rank, "weights", &shape);
                let gain = model.gain.handle();
                let loss = || Loss::mean_of(&(model.forward(&x) * &weights));
                let gradient = loss().backward().reduce().gather(gain);
                let slopes = (0..16).map(|index| {
                    let mut one = vec![0.0; 16];
                    one[index] = 1.0;
                    gain.write(&one);
                    loss().reduce().value() as f32
                });
                let slopes: Vec<f32> = slopes.collect();
                distance(&gradient, &slopes)
            })
            .into_iter()
            .for_each(|found| {
                report.note("gradient", format!("{layout:?}, {mesh}"), found, GRADIENT)
            });
        }
    }
    report.print();
}

#[test]
fn layers_share_their_tables() {
    on_mesh("1", 1, |rank| {
        let rope = RopeParameters::default();
        let [one, other] = [rope, RopeParameters::with_theta(500.0)]
            .map(|rope| build::<Twice>(rank, &sizes(2, 8, &rope, RopeLayout::HalfSplit)).unwrap());
        let table_bytes = |seq: usize| (2 * seq * 4 * size_of::<f32>()) as u64;
        let run = |model: &Twice, seq: usize| {
            let x: Queries = numbers(rank, "x", &[1, seq, 2, 8]);
            rank.evaluate(|| model.forward(&x));
        };
        let before = activations(rank);
        let held = || activations(rank) - before;
        run(&one.model, 256);
        assert_eq!(held(), table_bytes(256), "both layers have one table");
        run(&one.model, 256);
        assert_eq!(held(), table_bytes(256));
        run(&other.model, 256);
        assert_eq!(held(), 2 * table_bytes(256), "another base has another table");
        run(&one.model, 512);
        assert_eq!(held(), table_bytes(256) + table_bytes(512));
        drop(one);
        assert_eq!(held(), table_bytes(256));
        drop(other);
        assert_eq!(held(), 0);
    });
}

fn activations(rank: &Rank) -> u64 {
    let live = rank.allocator().live();
    live.into_iter().find(|(category, _)| *category == Category::Activations).unwrap().1 as u64
}

#[test]
fn wrong_parameters_are_problems_of_the_layer() {
    let llama3 = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 4.0,
        high_freq_factor: 1.0,
        original_positions: 8192,
    };
    on_mesh("1", 1, |rank| {
        for (head_dim, rope, expected) in [
            (7, RopeParameters::default(), "HeadDim = 7 is odd, but rotary embedding needs pairs"),
            (
                8,
                RopeParameters { partial_rotary_factor: 0.4, ..Default::default() },
                "HeadDim = 8: partial_rotary_factor 0.4 of a head of 8 elements rotates 3 of them",
            ),
            (
                8,
                RopeParameters { scaling: RopeScaling::Llama3(llama3), ..Default::default() },
                "HeadDim = 8: low_freq_factor is 4, not below the high_freq_factor of 1",
            ),
        ] {
            let sizes = sizes(2, head_dim, &rope, RopeLayout::HalfSplit);
            let error = build::<Twice>(rank, &sizes).err().expect("a problem").to_string();
            assert!(error.contains("`first`: ") && error.contains(expected), "{error}");
        }
    });
}
