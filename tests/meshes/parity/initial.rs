//! Initial values by field.

use meshwright::models::gpt2::{Gpt2, Gpt2Config};
use meshwright::nn::{LoraOptions, Sizes, build};
use meshwright::prelude::*;
use meshwright::tensor::ParamRef;
use meshwright_tests::data::TokenData;
use meshwright_tests::models::kinds::{Ffn, Hidden, Kinds, Vocab};
use meshwright_tests::models::small_sizes;

const DATA: TokenData = TokenData { batch: 4, seq: 8, vocab: 61, masked: false };

/// Returns the global values of each parameter, or the problems.
fn values<M: Build>(mesh: &str, sizes: &Sizes) -> Result<Vec<(String, Vec<f32>)>, String> {
    let found = meshwright::run_on(mesh, 0, |rank| {
        let built = build::<M>(rank, sizes).map_err(|error| error.to_string());
        let values = |param: &ParamRef| (param.path().to_owned(), param.gather(rank));
        Ok(built.map(|built| built.params().iter().map(values).collect()))
    });
    found.unwrap().remove(0)
}

fn of<'a>(values: &'a [(String, Vec<f32>)], path: &str) -> &'a [f32] {
    let found = values.iter().find(|(known, _)| known == path);
    &found.unwrap_or_else(|| panic!("no {path}")).1
}

fn std(values: &[f32]) -> f32 {
    let squares: f32 = values.iter().map(|value| value * value).sum();
    (squares / values.len() as f32).sqrt()
}

#[track_caller]
fn assert_close(found: f32, expected: f32) {
    assert!((found / expected - 1.0).abs() < 0.06, "{found} instead of {expected}");
}

#[test]
fn attributes_and_sizes_set_initial_values() {
    let sizes = small_sizes::<Kinds>(&DATA, 4);
    let one = values::<Kinds>("1", &sizes).unwrap();
    let all = |path: &str, number: f32| of(&one, path).iter().all(|value| *value == number);
    assert!(all("norm.weight", 0.5) && all("norm.bias", 1.0));
    assert_close(std(of(&one, "blocks.0.up.weight")), 0.2);
    assert_close(std(of(&one, "blocks.2.down.weight")), 0.2 / 8f32.sqrt());
    assert_close(std(of(&one, "blocks.1.down.weight")), 0.2);
    // A uniform distribution: of the pair's bias, too.
    for (path, bound) in
        [("blocks.1.up.0.weight", 0.3), ("blocks.1.up.1.bias", 0.3), ("head.weight", 0.4)]
    {
        let values = of(&one, path);
        let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        assert!(largest <= bound && largest > 0.9 * bound, "{path}: {largest}");
        assert!((std(values) / (bound / 3f32.sqrt()) - 1.0).abs() < 0.2, "{path}");
    }
    for mesh in ["tp=2", "fsdp=2", "dp=2,tp=2"] {
        assert_eq!(values::<Kinds>(mesh, &sizes).unwrap(), one, "{mesh}");
    }
}

#[test]
fn sizes_precede_attributes_and_inner_names_outer_ones() {
    let sizes = small_sizes::<Kinds>(&DATA, 4)
        .with_init("blocks", Init::Constant(2.0))
        .with_init("blocks.down", Init::Zeros)
        .with_init("down", Init::Ones)
        .with_init("norm.bias", Init::Constant(3.0));
    let found = values::<Kinds>("1", &sizes).unwrap();
    let all = |path: &str, number: f32| of(&found, path).iter().all(|value| *value == number);
    assert!(all("blocks.0.up.weight", 2.0) && all("blocks.1.up.0.weight", 2.0));
    assert!(all("blocks.0.down.weight", 0.0) && all("blocks.3.down.weight", 0.0));
    // The norms of the layers, too.
    assert!(all("norm.bias", 3.0) && all("blocks.1.norm.bias", 3.0) && all("norm.weight", 0.5));
}

#[model]
#[expect(dead_code, reason = "it is only built")]
struct Named {
    #[init(bia = zeros)]
    norm: LayerNorm<Hidden>,
    #[init(zeros)]
    dropout: Dropout,
    #[init(gain = ones)]
    up: Linear<Hidden, Ffn>,
}

#[test]
fn wrong_initial_values_are_problems() {
    let plain = Sizes::new().with(Hidden, 8).with(Ffn, 8).with(Vocab, 9);
    let text = values::<Named>("1", &plain).unwrap_err();
    assert_eq!(
        text,
        "the model cannot be built, for 3 reasons:\n  - `dropout`: `#[init(..)]` applies to nothing: the field has no \
         parameters\n  - `norm`: `#[init(bia = ..)]` applies to nothing: its parameters are `bias`, `weight`\n  - \
         `up`: \
         `#[init(gain = ..)]` applies to nothing: its parameters are `weight`"
    );
    let problem = |field: &str, init: Init| {
        let text = values::<Kinds>("1", &small_sizes::<Kinds>(&DATA, 4).with_init(field, init))
            .unwrap_err();
        text.strip_prefix("the model cannot be built: ").unwrap_or(&text).to_owned()
    };
    assert_eq!(
        problem("embd", Init::Zeros),
        "`Sizes::with_init(\"embd\", ..)` applies to nothing: the model has no parameter of this name, or in a field \
         of \
         it"
    );
    let range = "a finite number of at least 0";
    for (init, text) in [
        (Init::Normal(-0.5), format!("are `Normal(-0.5)`, but the standard deviation is {range}")),
        (
            Init::Normal(f32::NAN),
            format!("are `Normal(NaN)`, but the standard deviation is {range}"),
        ),
        (Init::Uniform(-1.0), format!("are `Uniform(-1.0)`, but the bound is {range}")),
        (
            Init::Constant(f32::INFINITY),
            "are `Constant(inf)`, but the constant is a finite number".to_owned(),
        ),
    ] {
        assert_eq!(problem("embed", init), format!("`embed.weight`: its initial values {text}"));
    }
    assert_eq!(
        problem("embed", Init::NormalExceptRow { std: 0.1, row: 61 }),
        "`embed.weight`: its initial values have zeros in row 61, beyond its 61 rows"
    );
}

#[model]
struct Padded {
    #[init(constant(1.5))]
    embed: Embedding<Vocab, Hidden>,
    #[tied(embed, when = "tie")]
    #[init(ones)]
    head: LmHead<Hidden, Vocab>,
}

/// The row of the padding stays zeros, and a tied field begins as its target.
#[test]
fn padding_rows_begin_as_zeros() {
    let sizes =
        Sizes::new().with(Hidden, 8).with(Vocab, 9).with_padding(Vocab, 4).with_flag("tie", true);
    for mesh in ["1", "fsdp=2"] {
        let found = values::<Padded>(mesh, &sizes).unwrap();
        let expected: Vec<f32> = (0..72).map(|i| if i / 8 == 4 { 0.0 } else { 1.5 }).collect();
        assert_eq!(found, [("embed.weight".to_owned(), expected)]);
    }
    let tied = values::<Padded>("1", &sizes.clone().with_init("head", Init::Zeros)).unwrap_err();
    assert_eq!(
        tied,
        "the model cannot be built: `Sizes::with_init(\"head\", ..)` applies to nothing: `head.weight` is tied, and \
         begins as `embed.weight`: name that"
    );
    let untied = values::<Padded>("1", &sizes.with_flag("tie", false)).unwrap();
    assert!(of(&untied, "head.weight").iter().all(|value| *value == 1.0));
}

/// Neither attributes nor names of a layer set the initial values of its adapter.
#[test]
fn adapters_begin_as_nothing() {
    let lora =
        LoraOptions { rank: 2, alpha: 4.0, targets: vec!["down".to_owned()], train: Vec::new() };
    let mut sizes = small_sizes::<Kinds>(&DATA, 2).with_init("blocks.down", Init::Ones);
    sizes.lora = Some(lora);
    let found = values::<Kinds>("1", &sizes).unwrap();
    let all = |path: &str, number: f32| of(&found, path).iter().all(|value| *value == number);
    for layer in 0..2 {
        assert!(all(&format!("blocks.{layer}.down.weight"), 1.0));
        assert!(all(&format!("blocks.{layer}.down.lora_b.weight"), 0.0));
        assert_close(
            std(of(&found, &format!("blocks.{layer}.down.lora_a.weight"))),
            1.0 / 144f32.sqrt(),
        );
    }
    let named = values::<Kinds>("1", &sizes.with_init("lora_b", Init::Constant(2.0))).unwrap();
    assert!(of(&named, "blocks.0.down.lora_b.weight").iter().all(|value| *value == 2.0));
}

/// GPT-2 scales the weights that write to the residual stream (section 2.3 of the paper, and `_init_weights` in
/// transformers).
#[test]
fn gpt2_scales_its_residual_projections() {
    let config = Gpt2Config { layers: 8, ..gpt2_config() };
    let found = values::<Gpt2>("1", &Gpt2::sizes(&config)).unwrap();
    let scaled = 0.02 / 16f32.sqrt();
    for (path, expected) in [
        ("embed.weight", 0.02),
        ("positions.weight", 0.02),
        ("blocks.0.attn.q.weight", 0.02),
        ("blocks.7.mlp.up.weight", 0.02),
        ("blocks.0.attn.o.weight", scaled),
        ("blocks.7.mlp.down.weight", scaled),
    ] {
        assert_close(std(of(&found, path)), expected);
    }
    for (path, values) in &found {
        let number = if path.ends_with("norm.weight") { 1.0 } else { 0.0 };
        let is_constant = path.ends_with(".bias") || path.contains("norm");
        assert!(!is_constant || values.iter().all(|value| *value == number), "{path}");
    }
}

fn gpt2_config() -> Gpt2Config {
    Gpt2Config {
        hidden: 32,
        ffn: 128,
        layers: 2,
        heads: 4,
        vocab: 61,
        positions: 32,
        norm_eps: 1e-5,
        dropout: Default::default(),
        bos: serde_json::Value::Null,
        eos: serde_json::Value::Null,
    }
}
