//! Typed access to the keys of a `config.json`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::{Map, Value};

/// The keys of an object of `config.json`. A `null` counts as absent.
///
/// Keys that are never asked for are refused when a folder is opened ([`HfConfig::read`](super::HfConfig::read)), since
/// what they change is not known.
#[derive(Debug, Clone)]
pub struct HfSettings<'a> {
    object: &'a Map<String, Value>,
    /// Path of the object, with a dot at its end; empty for the whole file.
    path: String,
    /// Paths of the keys that were asked for, with a dot at the end of those whose own keys are.
    asked: Rc<RefCell<BTreeSet<String>>>,
}

/// Largest size.
const MOST: u64 = u32::MAX as u64;

/// A value, or the problem with its key as a sentence that begins with the key.
type Result<T> = std::result::Result<T, String>;

impl<'a> HfSettings<'a> {
    /// Wraps the keys of a file.
    pub fn new(object: &'a Map<String, Value>) -> HfSettings<'a> {
        HfSettings { object, path: String::new(), asked: Rc::default() }
    }

    /// Returns the value of a key, as in the file.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.ignore(&[key]);
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// Marks keys that change nothing here, whatever their values are, as known.
    pub fn ignore(&self, keys: &[&str]) {
        self.asked.borrow_mut().extend(keys.iter().map(|key| format!("{}{key}", self.path)));
    }

    /// Returns all keys and values as in the file; none counts as asked for.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.object.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Returns path and value of each key that nothing has asked for, in the order of the file.
    pub(super) fn unread(&self) -> Vec<(String, &'a Value)> {
        let mut unread = Vec::new();
        for (key, value) in self.object {
            let path = format!("{}{key}", self.path);
            let is_asked = |path: &str| self.asked.borrow().contains(path);
            match value {
                Value::Object(object) if is_asked(&format!("{path}.")) => {
                    unread.extend(self.inner(object, &path).unread());
                }
                _ if is_asked(&path) => {}
                _ => unread.push((path, value)),
            }
        }
        unread
    }

    /// Returns true if the file has a key at this path, with dots between the keys of objects; also if it is `null`.
    pub fn has(&self, path: &str) -> bool {
        let is_inside = |(key, value): (&String, &Value)| match (path.strip_prefix(key), value) {
            (Some(""), _) => true,
            (Some(rest), Value::Object(object)) => {
                rest.strip_prefix('.').is_some_and(|rest| self.inner(object, key).has(rest))
            }
            _ => false,
        };
        self.object.iter().any(is_inside)
    }

    fn inner(&self, object: &'a Map<String, Value>, path: &str) -> HfSettings<'a> {
        HfSettings { object, path: format!("{path}."), asked: Rc::clone(&self.asked) }
    }

    /// Returns a required size.
    ///
    /// # Errors
    /// A key that is missing, or not a whole number from 1 to `u32::MAX`.
    pub fn required(&self, key: &str) -> Result<usize> {
        self.count(key)?.ok_or_else(|| format!("{key} is missing"))
    }

    /// Returns a size.
    ///
    /// # Errors
    /// A value that is not a whole number from 1 to `u32::MAX`.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().filter(|count| (1..=MOST).contains(count)) {
            Some(count) => Ok(Some(count as usize)),
            None if value.as_f64().is_some_and(|number| number > MOST as f64) => {
                Err(format!("{key} is {value}; it can be at most {MOST}"))
            }
            None => Err(format!("{key} must be a whole number of at least 1, not {value}")),
        }
    }

    /// Returns a number.
    ///
    /// # Errors
    /// A value that is not a number of at least 0.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        self.get(key).map(|value| number_of(key, value)).transpose()
    }

    /// Returns a list of numbers.
    ///
    /// # Errors
    /// A value that is not a list, or has other elements than numbers of at least 0.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let Value::Array(items) = value else {
            return Err(format!("{key} must be a list of numbers, not {value}"));
        };
        let number = |(index, item)| number_of(&format!("{key}[{index}]"), item);
        items.iter().enumerate().map(number).collect::<Result<_>>().map(Some)
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
            Some(Value::Object(object)) => {
                self.ignore(&[&format!("{key}.")]);
                Ok(Some(self.inner(object, &format!("{}{key}", self.path))))
            }
            Some(other) => Err(format!("{key} must be an object, not {other}")),
        }
    }

    /// Refuses any text that is not in `known`; the key may be absent.
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

/// Returns the number of a key, or of an element of its list.
fn number_of(name: &str, value: &Value) -> Result<f64> {
    match value.as_f64().filter(|number| *number >= 0.0) {
        Some(large) if large > f64::from(f32::MAX) => {
            Err(format!("{name} is {value}; it can be at most {:e}", f32::MAX))
        }
        Some(number) => Ok(number),
        None => Err(format!("{name} must be a number of at least 0, not {value}")),
    }
}
