//! Import and export of rotary parameters in `config.json`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{HfSettings, read_rope, write_rope};
use meshwright_core::rotary::{
    Llama3Scaling, LongRopeScaling, RopeParameters, RopeScaling, YarnScaling,
};

/// Heads of 64 elements, made for 4096 positions.
fn read(config: &Value) -> Result<RopeParameters, String> {
    let Value::Object(config) = config else { panic!("{config} is an object") };
    read_rope(&HfSettings::new(config), 10_000.0, 64, 4096)
}

fn scaled(scaling: RopeScaling) -> RopeParameters {
    RopeParameters { theta: 5e5, scaling, ..RopeParameters::default() }
}

fn llama3() -> RopeScaling {
    RopeScaling::Llama3(Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_positions: 8192,
    })
}

fn long_rope(pairs: usize, attention_factor: Option<f64>) -> RopeScaling {
    let divisors = |step: f64| (0..pairs).map(|pair| 1.0 + step * pair as f64).collect();
    RopeScaling::LongRope(Arc::new(LongRopeScaling {
        short: divisors(0.01),
        long: divisors(2.0),
        original_positions: 1024,
        factor: 4.0,
        attention_factor,
    }))
}

#[test]
fn parameters_survive_export_and_import() {
    let yarn = YarnScaling::new(4.0, 1024);
    for scaling in [
        RopeScaling::Default,
        RopeScaling::Linear { factor: 2.5 },
        RopeScaling::Dynamic { factor: 2.0, trained_positions: 4096 },
        RopeScaling::Yarn(yarn),
        RopeScaling::Yarn(YarnScaling {
            attention_factor: Some(1.5),
            beta_fast: 30.0,
            beta_slow: 2.0,
            mscale: Some(1.0),
            mscale_all_dim: Some(0.5),
            truncate: false,
            ..yarn
        }),
        llama3(),
        long_rope(32, None),
        long_rope(8, Some(1.25)),
    ] {
        let of_parts: &[f64] = match &scaling {
            RopeScaling::LongRope(scaling) if scaling.short.len() == 32 => &[1.0],
            RopeScaling::LongRope(_) => &[0.25],
            _ => &[1.0, 0.25],
        };
        for &partial_rotary_factor in of_parts {
            let parameters = RopeParameters { partial_rotary_factor, ..scaled(scaling.clone()) };
            let mut config = Map::new();
            write_rope(&parameters, &mut config);
            let is_scaled = scaling != RopeScaling::Default;
            assert_eq!(config.contains_key("rope_scaling"), is_scaled, "{scaling:?}");
            assert_eq!(read(&Value::Object(config.clone())), Ok(parameters.clone()), "{config:?}");
            // One of the two forms suffices.
            for form in ["rope_parameters", "rope_scaling"].into_iter().filter(|_| is_scaled) {
                let mut config = config.clone();
                config.remove(form);
                assert_eq!(read(&Value::Object(config)), Ok(parameters.clone()), "without {form}");
            }
        }
    }
}

#[test]
fn both_spellings_of_real_files_are_understood() {
    // Llama 3.1 before version 5 of `transformers`.
    let found = read(&json!({ "rope_theta": 500000.0, "rope_scaling": { "factor": 8.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3" } }));
    assert_eq!(found, Ok(scaled(llama3())));
    let found = read(&json!({ "rope_scaling": { "type": "linear", "factor": 4 } }));
    let linear = RopeScaling::Linear { factor: 4.0 };
    assert_eq!(found, Ok(RopeParameters { scaling: linear, ..RopeParameters::default() }));
    // The name that is newer, and the top level, go first.
    let found = read(&json!({ "original_max_position_embeddings": 512, "rope_theta": 5e5,
        "rope_parameters": { "type": "linear", "rope_type": "yarn", "factor": null,
            "original_max_position_embeddings": 1024, "beta_fast": null } }));
    assert_eq!(found, Ok(scaled(RopeScaling::Yarn(YarnScaling::new(8.0, 512)))));
    // Without a length of its own, that of the model.
    let found =
        read(&json!({ "rope_theta": 5e5, "rope_scaling": { "type": "yarn", "factor": 2 } }));
    assert_eq!(found, Ok(scaled(RopeScaling::Yarn(YarnScaling::new(2.0, 4096)))));
    let found =
        read(&json!({ "rope_theta": 5e5, "rope_scaling": { "type": "dynamic", "factor": 2 } }));
    let dynamic = RopeScaling::Dynamic { factor: 2.0, trained_positions: 4096 };
    assert_eq!(found, Ok(scaled(dynamic)));
    let found = read(&json!({ "partial_rotary_factor": 0.5, "rope_parameters": {} }));
    let part = RopeParameters { partial_rotary_factor: 0.5, ..RopeParameters::default() };
    assert_eq!(found, Ok(part));
}

/// Phi-3 has the original length at the top level, and no factor.
#[test]
fn long_rope_of_phi_3_has_a_factor_by_its_lengths() {
    let divisors = vec![1.5; 32];
    let found = read(&json!({ "original_max_position_embeddings": 1024,
        "rope_scaling": { "type": "longrope", "short_factor": divisors, "long_factor": divisors } }));
    let Ok(RopeParameters { scaling: RopeScaling::LongRope(scaling), .. }) = found else {
        panic!("{found:?}")
    };
    assert_eq!((scaling.original_positions, scaling.factor), (1024, 4.0));
    assert_eq!(scaling.attention_factor, None);
}

#[test]
fn parameters_that_cannot_be_followed_are_refused() {
    for (config, reason) in [
        (
            json!({ "rope_parameters": { "rope_type": "longrope", "short_factor": [1.0] } }),
            "rope_parameters.long_factor is missing",
        ),
        (
            json!({ "rope_parameters": { "rope_type": "longrope", "short_factor": [1.0], "long_factor": [1] } }),
            "rope_parameters.short_factor has 1 numbers, but a head has 32 rotated pairs",
        ),
        (
            json!({ "rope_parameters": { "rope_type": "longrope", "short_factor": [1.0, "2"] } }),
            "rope_parameters.short_factor[1] must be a number of at least 0, not \"2\"",
        ),
        (
            json!({ "rope_scaling": { "type": "longrope", "short_factor": 1.0, "long_factor": 2.0 } }),
            "rope_scaling.short_factor must be a list of numbers, not 1.0",
        ),
        (
            json!({ "rope_parameters": { "rope_type": "xpos", "scale_base": 512 } }),
            "rope_parameters.rope_type is \"xpos\"; only \"default\", \"linear\", \"dynamic\", \"yarn\", \
             \"llama3\" and \"longrope\" are supported",
        ),
        (json!({ "rope_scaling": { "type": "xpos" } }), "rope_scaling.rope_type is \"xpos\"; only"),
        (
            json!({ "rope_scaling": { "factor": 2 } }),
            "rope_scaling.rope_type is missing, but factor is given; name the scaling, one of \"default\", \"linear\"",
        ),
        (
            json!({ "rope_parameters": { "rope_theta": 5e5, "low_freq_factor": 1 } }),
            "rope_parameters.rope_type is missing, but low_freq_factor is given",
        ),
        (json!({ "rope_scaling": { "type": 3 } }), "rope_scaling.type must be text, not 3"),
        (json!({ "rope_scaling": { "type": "linear" } }), "rope_scaling.factor is missing"),
        (
            json!({ "rope_scaling": { "type": "linear", "factor": 0.5 } }),
            "rope_scaling.factor must be a number of at least 1, not 0.5",
        ),
        (
            json!({ "rope_scaling": { "type": "linear", "factor": -1 } }),
            "rope_scaling.factor must be a number of at least 0, not -1",
        ),
        (
            json!({ "rope_parameters": { "rope_type": "llama3", "factor": 8, "low_freq_factor": 1 } }),
            "rope_parameters.high_freq_factor is missing",
        ),
        (
            json!({ "rope_parameters": { "rope_type": "yarn", "factor": 8, "truncate": 1 } }),
            "rope_parameters.truncate must be true or false, not 1",
        ),
        (
            json!({ "rope_parameters": { "partial_rotary_factor": 0.3 } }),
            "rope_parameters.partial_rotary_factor 0.3 of a head of 64 elements rotates 19 of them",
        ),
        (
            json!({ "partial_rotary_factor": 1.5 }),
            "partial_rotary_factor must be above 0 and at most 1, not 1.5",
        ),
        (
            json!({ "rope_theta": 1e4, "rope_parameters": { "rope_theta": 5e5 },
                "rope_scaling": { "type": "linear", "factor": 2 } }),
            "rope_parameters and rope_scaling differ; leave one of them out",
        ),
        (
            json!({ "rope_theta": 1e4, "rope_parameters": { "rope_theta": 5e5 } }),
            "rope_theta is 10000, but rope_parameters.rope_theta is 500000; leave one of them out",
        ),
        (
            json!({ "partial_rotary_factor": 1, "rope_scaling": { "partial_rotary_factor": 0.5 } }),
            "partial_rotary_factor is 1, but rope_scaling.partial_rotary_factor is 0.5; leave one",
        ),
        // Numbers of the top level, beside an object without them.
        (json!({ "rope_theta": 0, "rope_parameters": {} }), "rope_theta must be above 0, not 0"),
        (
            json!({ "partial_rotary_factor": 2, "rope_scaling": { "type": "linear", "factor": 2 } }),
            "partial_rotary_factor must be above 0 and at most 1, not 2",
        ),
        (
            json!({ "rope_parameters": { "rope_type": "yarn", "factor": 2, "beta_fast": {} } }),
            "rope_parameters.beta_fast must be a number of at least 0, not {}",
        ),
        (
            json!({ "rope_parameters": { "rope_type": "dynamic", "factor": 1e19 } }),
            "rope_parameters.factor must be at most 1000000, not 1e19",
        ),
        (
            json!({ "rope_parameters": { "rope_type": "yarn", "factor": 2, "mscale": 1e9 } }),
            "rope_parameters.mscale must be a number from 0 to 100, not 1000000000.0",
        ),
        (
            json!({ "rope_parameters": { "rope_type": "longrope", "short_factor": [1e300] } }),
            "rope_parameters.short_factor[0] is 1e+300; it can be at most 3.4028235e38",
        ),
        (
            json!({ "rope_parameters": { "rope_type": "default", "mrope_section": [1, 2] } }),
            "rope_parameters.mrope_section is given, but positions of several dims are not",
        ),
        (
            json!({ "rope_parameters": { "full_attention": { "rope_type": "default" } } }),
            "rope_parameters.full_attention is an object, but rotary parameters of their own for",
        ),
    ] {
        let found = read(&config).unwrap_err();
        assert!(found.starts_with(reason), "{config}: {found}");
    }
}
