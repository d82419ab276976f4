//! The family of a folder: `model_type` of its `config.json`, or the names of its classes.

use std::path::Path;

use serde_json::Value;

use super::config_text::parse_keys;
use super::{HfSettings, other_content};
use crate::checkpoint::{CheckpointError, files};

/// Reads the family of a model from a `config.json`, or from that of a folder: one of `known`.
///
/// # Errors
/// A file that is missing, not JSON or has a key twice, and another family.
pub fn read_model_type(
    path: &Path,
    known: &[&'static str],
) -> Result<&'static str, CheckpointError> {
    let path = other_content::find_config(path)?;
    let text = files::read_text(&path, files::MAX_JSON_BYTES)?;
    let found = parse_keys(&text).and_then(|keys| {
        let settings = HfSettings::new(&keys);
        match settings.text("model_type")? {
            Some(found) => known
                .iter()
                .find(|known| **known == found)
                .copied()
                .ok_or_else(|| format!("model_type \"{found}\" is {}", none_of(known))),
            None => family_of_classes(&settings, known)
                .ok_or_else(|| format!("model_type is missing; it is one of {}", known.join(", "))),
        }
    });
    found.map_err(|reason| CheckpointError::settings(&path, reason))
}

/// Returns the `model_type` of a `config.json`, or of that of a folder; `None` if it has none or cannot be read.
pub fn stated_model_type(path: &Path) -> Option<String> {
    let path = other_content::find_config(path).ok()?;
    let text = files::read_text(&path, files::MAX_JSON_BYTES).ok()?;
    Some(parse_keys(&text).ok()?.get("model_type")?.as_str()?.to_owned())
}

/// Returns the family of a folder, one of `known`. Without `model_type`, the classes decide, else it is the first one.
///
/// # Errors
/// The folder of another family, before its settings are read, since their names differ.
pub fn model_type_of(
    settings: &HfSettings<'_>,
    known: &[&'static str],
) -> Result<&'static str, String> {
    let Some(found) = settings.text("model_type")? else {
        return Ok(family_of_classes(settings, known).unwrap_or(known[0]));
    };
    known.iter().find(|known| **known == found).copied().ok_or_else(|| {
        format!(
            "model_type is \"{found}\", and this program trains {}; the program `train` takes each family of this \
             library, and the page \"Model families\" of the book says how to add one",
            with_article(&quoted(known))
        )
    })
}

/// Returns the family whose name is the longest beginning of the names of a folder's classes.
fn family_of_classes(settings: &HfSettings<'_>, known: &[&'static str]) -> Option<&'static str> {
    let names = architectures(settings);
    let is_of = |family: &&&str| {
        // The class of the text model alone, such as `Gemma3ForCausalLM` of `gemma3_text`, leaves out the word.
        let of_text = family.strip_suffix("_text").map(|whole| class_of(whole) + "forcausallm");
        let of_family = class_of(family);
        names.iter().any(|name| name.starts_with(&of_family) || Some(name) == of_text.as_ref())
    };
    known.iter().filter(is_of).max_by_key(|family| family.len()).copied()
}

/// States that a family is none of `known`, and the next step.
pub fn none_of(known: &[&str]) -> String {
    format!(
        "none of the families here: {}; a program with a family of its own lists it by `families!` (book, page \"Model \
         families\")",
        known.join(", ")
    )
}

/// Lists names for a message: `"a", "b" or "c"`.
pub fn quoted(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    match &quoted[..] {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.join(", "),
    }
}

/// Puts an indefinite article in front of the name of a family, which may be quoted.
pub fn with_article(name: &str) -> String {
    let is_vowel =
        name.trim_start_matches('"').starts_with(['a', 'e', 'i', 'o', 'A', 'E', 'I', 'O']);
    format!("{} {name}", if is_vowel { "an" } else { "a" })
}

/// Returns the beginning of the names of a family's classes, in lowercase.
pub fn class_of(model_type: &str) -> String {
    model_type.replace(['_', '-'], "").to_lowercase()
}

/// Returns the names of the classes of a folder, in lowercase.
pub fn architectures(settings: &HfSettings<'_>) -> Vec<String> {
    let found = settings.entries().find(|(key, _)| *key == "architectures");
    let names = found.and_then(|(_, found)| found.as_array()).into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_lowercase).collect()
}
