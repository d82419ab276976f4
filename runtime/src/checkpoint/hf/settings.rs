//! Typed access to the keys of a `config.json`.

use serde_json::{Map, Value};

/// The keys of an object of `config.json`; `null` is as good as absent.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a>(&'a Map<String, Value>);

/// What is wrong with a key, as a sentence that begins with its name.
type Result<T> = std::result::Result<T, String>;

impl<'a> Settings<'a> {
    /// The keys of this object.
    pub fn new(object: &'a Map<String, Value>) -> Settings<'a> {
        Settings(object)
    }

    /// The value of a key, as it stands in the file.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// A size that has to be there.
    ///
    /// # Errors
    /// When it is missing, or no whole number of at least 1.
    pub fn required(&self, key: &str) -> Result<usize> {
        self.count(key)?.ok_or_else(|| format!("{key} is missing"))
    }

    /// A size.
    ///
    /// # Errors
    /// When it is no whole number of at least 1.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().filter(|count| (1..=u64::from(u32::MAX)).contains(count)) {
            Some(count) => Ok(Some(count as usize)),
            None => Err(format!("{key} must be a whole number of at least 1, not {value}")),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// When it is none, or below 0.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64().filter(|number| *number >= 0.0) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("{key} must be a number of at least 0, not {value}")),
        }
    }

    /// True or false.
    ///
    /// # Errors
    /// When it is neither.
    pub fn switch(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(format!("{key} must be true or false, not {other}")),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// When it is none.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("{key} must be text, not {other}")),
        }
    }

    /// An object.
    ///
    /// # Errors
    /// When it is none.
    pub fn object(&self, key: &str) -> Result<Option<Settings<'a>>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Settings(object))),
            Some(other) => Err(format!("{key} must be an object, not {other}")),
        }
    }

    /// Refuses another text than one of `known`; absent is fine.
    ///
    /// # Errors
    /// The text that is not known, and which are.
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
