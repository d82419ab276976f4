//! `config.json` of each family with random alterations: reading never panics, and refuses by one message that names a
//! key.

use std::panic::{AssertUnwindSafe, catch_unwind};

use meshwright::checkpoint::hf::HfConfig;
use meshwright::models::{BertClassifier, BertMaskedLm, ModernBertClassifier, ModernBertMaskedLm};
use meshwright::rotary::RotaryFrequencies;
use meshwright::train::{Family, FamilyModel, LanguageModel};
use serde_json::{Map, Value, json};

use super::Case;
use super::families::{OfFamily, config_of, each_case};
use super::mutations::write_config;

const ALTERATIONS: u64 = 1000;

struct Fuzz;

#[test]
fn altered_configurations_are_read_or_refused_by_key() {
    each_case(&Fuzz);
}

#[test]
fn altered_configurations_of_encoders_are_read_or_refused_by_key() {
    check::<BertMaskedLm>("bert_masked");
    check::<BertClassifier>("bert_texts");
    check::<ModernBertMaskedLm>("modernbert_masked");
    check::<ModernBertClassifier>("modernbert_texts");
}

impl OfFamily for Fuzz {
    fn run<M: LanguageModel>(&self, name: &str) {
        check::<M>(name);
    }
}

/// Reads altered configurations of a case.
pub(super) fn check<M: FamilyModel>(name: &str) {
    let original = config_of(&Case::open(name).folder);
    let known = keys_of(&Value::Object(original.clone()));
    let folder = tempfile::tempdir().unwrap();
    let (mut read, mut mistakes) = (0, Vec::new());
    for seed in 0..ALTERATIONS {
        let mut random = Random(seed);
        let mut config = original.clone();
        for _ in 0..=random.below(4) / 3 {
            alter(&mut config, &mut random);
        }
        let config = Value::Object(config);
        write_config(folder.path(), &config);
        let result = catch_unwind(AssertUnwindSafe(|| read_all::<M>(folder.path())));
        match result {
            Ok(Ok(())) => read += 1,
            Ok(Err(message)) => {
                // A key that is missing is of the original only.
                let keys = [keys_of(&config), known.clone()].concat();
                let names_key = keys.iter().any(|key| message.contains(key.as_str()));
                if message.lines().count() != 1 || !names_key {
                    mistakes.push(format!("seed {seed}: {message}"));
                }
            }
            Err(_) => mistakes.push(format!("seed {seed}: a panic by {config}")),
        }
    }
    assert!(mistakes.is_empty(), "{name}:\n{}", mistakes.join("\n"));
    // Neither does a mistake of this test make all of them be refused.
    assert!((ALTERATIONS / 20..ALTERATIONS).contains(&read), "{name}: {read} are read");
}

/// Reads a folder, and everything that follows from its configuration before memory is allocated.
///
/// # Panics
/// If the configuration that is written is another one.
fn read_all<M: FamilyModel>(folder: &std::path::Path) -> Result<(), String> {
    let read = || M::Config::read(folder, &[]).map_err(|error| error.to_string());
    let config = read()?.config;
    let sizes = M::dim_sizes(&config);
    for seq in [16, 1 << 20] {
        // Numbers for heads of other widths are refused.
        if let Ok(rope) = RotaryFrequencies::new(&sizes.rope, 8, seq) {
            let mut numbers = rope.per_position.iter().chain([&rope.magnitude]);
            let are_finite = numbers.all(|number| (*number as f32).is_finite());
            assert!(are_finite, "{:?}: {rope:?}", sizes.rope);
        }
    }
    M::tensor_names(&config);
    config.outline();
    let written = config.to_json();
    write_config(folder, &written);
    match read() {
        Ok(again) => assert_eq!(again.config.to_json(), written, "read again"),
        Err(error) => panic!("what is written is refused: {error}"),
    }
    Ok(())
}

/// Changes, adds or removes a key of the file or of an object in it.
fn alter(object: &mut Map<String, Value>, random: &mut Random) {
    let keys: Vec<String> = object.keys().cloned().collect();
    let key = &keys[random.below(keys.len())];
    if let Some(Value::Object(inner)) = object.get_mut(key)
        && !inner.is_empty()
        && random.below(4) > 0
    {
        return alter(inner, random);
    }
    match random.below(8) {
        0 => drop(object.remove(key)),
        1 => drop(object.insert(format!("{key}_of_mine"), json!(1.5))),
        _ => drop(object.insert(key.clone(), value(&object[key], random))),
    }
}

/// Returns another value of a key.
fn value(old: &Value, random: &mut Random) -> Value {
    let any = [
        json!(null),
        json!(true),
        json!(false),
        json!(-1),
        json!(0),
        json!(1),
        json!(2),
        json!(3),
        json!(7),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(0.5),
        json!(-0.5),
        json!(1e-300),
        json!(1e300),
        json!(1e38),
        json!(1e19),
        json!(1e9),
        json!(1_000_000_000u64),
        json!(1u64 << 32),
        json!(1e-8),
        json!(""),
        json!("silu"),
        json!("yarn"),
        json!("sliding_attention"),
        json!([]),
        json!([0]),
        json!([1.0, -2.0]),
        json!(["full_attention", null]),
        json!({}),
        json!({ "factor": 2.0 }),
        json!([[[]]]),
        json!({ "rope_type": "linear" }),
        json!(vec!["sliding_attention"; 3]),
        json!(65_536),
    ];
    match (old, random.below(3)) {
        (Value::Number(number), 0) => {
            let factor = [-1.0, 0.5, 1.5, 2.0, 3.0, 1e6][random.below(6)];
            let number = number.as_f64().unwrap_or(0.0) * factor;
            if number.fract() == 0.0 { json!(number as i64) } else { json!(number) }
        }
        (Value::Array(items), 0) => {
            let mut items = items.clone();
            if let (Some(last), 0) = (items.pop(), random.below(2)) {
                items.extend([last.clone(), last]);
            }
            Value::Array(items)
        }
        (Value::Object(_), 0) => json!({ "sliding_attention": { "rope_theta": 10.0 } }),
        (Value::String(_), 0) => json!("another"),
        _ => any[random.below(any.len())].clone(),
    }
}

/// Returns all keys of a value, also those of objects inside.
fn keys_of(value: &Value) -> Vec<String> {
    match value {
        Value::Object(object) => object
            .iter()
            .flat_map(|(key, value)| [vec![key.clone()], keys_of(value)].concat())
            .collect(),
        _ => Vec::new(),
    }
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % bound as u64) as usize
    }
}
