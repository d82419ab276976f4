//! The text of a `config.json`: an object without a key that is there twice.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses the keys of a `config.json`.
///
/// # Errors
/// Text that is not a JSON object, and keys that are there twice: readers differ in the value that they take.
pub fn parse_keys(text: &[u8]) -> Result<Map<String, Value>, String> {
    let keys = serde_json::from_slice(text).map_err(|error| format!("not JSON: {error}"))?;
    refuse_twice(text)?;
    Ok(keys)
}

/// Refuses JSON with an object that has a key twice.
///
/// # Errors
/// The first such key, with the path of its object and its line.
pub fn refuse_twice(text: &[u8]) -> Result<(), String> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let checked = UniqueKeys { path: String::new() }.deserialize(&mut reader);
    checked.map_err(|error| format!("{error}; leave one of them out"))
}

/// A value at a path, whose objects have each key once.
struct UniqueKeys {
    path: String,
}

impl<'de> DeserializeSeed<'de> for UniqueKeys {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(()) = items.next_element_seed(UniqueKeys { path: self.path.clone() })? {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            let separator = if self.path.is_empty() { "" } else { "." };
            let path = format!("{}{separator}{key}", self.path);
            if !seen.insert(key) {
                return Err(A::Error::custom(format_args!(
                    "the key \"{path}\" is there a second time"
                )));
            }
            entries.next_value_seed(UniqueKeys { path })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_there_twice_are_refused_by_path_and_line() {
        let refused = |text: &str| parse_keys(text.as_bytes()).unwrap_err();
        assert_eq!(
            refused("{\"a\": 1,\n\"b\": {\"a\": 2},\n\"a\": 1}"),
            "the key \"a\" is there a second time at line 3 column 3; leave one of them out"
        );
        let nested = refused("{ \"rope\": { \"list\": [{ \"x\": null, \"x\": true }] } }");
        assert!(nested.starts_with("the key \"rope.list.x\" is there a second time"), "{nested}");
        assert!(refused("[1]").starts_with("not JSON: "));
        assert!(refused("{ \"a\": 1, \"a\": }").starts_with("not JSON: "));
        let keys = parse_keys(b"{ \"a\": [-1, 2.5, \"x\"], \"b\": { \"a\": {} } }").unwrap();
        assert_eq!(keys.len(), 2);
    }
}
