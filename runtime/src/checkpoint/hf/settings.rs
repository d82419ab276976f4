//! Typed access to the keys of a `config.json`.

use serde_json::{Map, Value};

/// The keys of an object of `config.json`. A `null` counts as absent.
#[derive(Debug, Clone, Copy)]
pub struct HfSettings<'a>(&'a Map<String, Value>);

/// A value, or the problem with its key as a sentence that begins with the key.
type Result<T> = std::result::Result<T, String>;

impl<'a> HfSettings<'a> {
    /// Wraps the keys of an object.
    pub fn new(object: &'a Map<String, Value>) -> HfSettings<'a> {
        HfSettings(object)
    }

    /// Returns the value of a key, as in the file.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// Returns the names of all keys.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns a required size.
    ///
    /// # Errors
    /// A key that is missing, or not a whole number of at least 1.
    pub fn required(&self, key: &str) -> Result<usize> {
        self.count(key)?.ok_or_else(|| format!("{key} is missing"))
    }

    /// Returns a size.
    ///
    /// # Errors
    /// A value that is not a whole number of at least 1.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().filter(|count| (1..=u64::from(u32::MAX)).contains(count)) {
            Some(count) => Ok(Some(count as usize)),
            None => Err(format!("{key} must be a whole number of at least 1, not {value}")),
        }
    }

    /// Returns a number.
    ///
    /// # Errors
    /// A value that is not a number of at least 0.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64().filter(|number| *number >= 0.0) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("{key} must be a number of at least 0, not {value}")),
        }
    }

    /// Returns true or false.
    ///
    /// # Errors
    /// A value that is neither.
    pub fn switch(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(format!("{key} must be true or false, not {other}")),
        }
    }

    /// Returns a text.
    ///
    /// # Errors
    /// A value that is not a text.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("{key} must be text, not {other}")),
        }
    }

    /// Returns an object.
    ///
    /// # Errors
    /// A value that is not an object.
    pub fn object(&self, key: &str) -> Result<Option<HfSettings<'a>>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(HfSettings(object))),
            Some(other) => Err(format!("{key} must be an object, not {other}")),
        }
    }

    /// Refuses any text but those of `known`; the key may be absent.
    ///
    /// # Errors
    /// The unknown text, and the known ones.
    pub fn expect_text(&self, key: &str, known: &[&str]) -> Result<()> {
        match self.text(key)? {
            Some(text) if !known.contains(&text) => {
                let known = known.join("\" or \"");
                Err(format!("{key} is \"{text}\"; only \"{known}\" is supported"))
            }
            _ => Ok(()),
        }
    }
}
