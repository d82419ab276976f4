//! The file that states how images, or sound, are prepared.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

/// Reads the keys of the `preprocessor_config.json` of a Hugging Face folder; `None` if it has no such file.
///
/// # Errors
/// A file that cannot be read or is no JSON object, and errors of `read`, with the file.
pub fn read_preprocessing<T>(
    folder: &Path,
    read: impl FnOnce(&Map<String, Value>) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let path = folder.join("preprocessor_config.json");
    let named = |reason: String| format!("{}: {reason}", path.display());
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(named(error.to_string())),
    };
    let keys: Value = serde_json::from_slice(&text).map_err(|error| named(error.to_string()))?;
    let keys = keys.as_object().ok_or_else(|| named("it is no JSON object".to_owned()))?;
    read(keys).map(Some).map_err(named)
}
