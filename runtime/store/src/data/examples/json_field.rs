//! Values of JSON as fields of examples.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::data::{Example, Field};

/// Reads the object of a line, which has to be all of it.
///
/// # Errors
/// Text that is no JSON object, and an object that is followed by something else.
pub fn read_object(line: &[u8]) -> Result<Example, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let example = json.deserialize_map(OfObject)?;
    json.end()?;
    Ok(example)
}

/// Reads an object; of two values with the same name, the last one stays.
struct OfObject;

impl<'de> Visitor<'de> for OfObject {
    type Value = Example;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Example, A::Error> {
        let mut fields: Vec<(String, Field)> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let OfValue(field) = map.next_value()?;
            match fields.iter_mut().find(|(known, _)| *known == name) {
                Some((_, earlier)) => *earlier = field,
                None => fields.push((name, field)),
            }
        }
        Ok(Example::new(fields))
    }
}

/// A value of any kind. `true` is 1, and `false` 0.
struct OfValue(Field);

impl<'de> Deserialize<'de> for OfValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<OfValue, D::Error> {
        from.deserialize_any(OfAny).map(OfValue)
    }
}

struct OfAny;

impl<'de> Visitor<'de> for OfAny {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Field, E> {
        Ok(Field::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Field, E> {
        Ok(Field::Integer(i64::from(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Field, E> {
        Ok(Field::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Field, E> {
        Ok(i64::try_from(value).map_or(Field::Number(value as f64), Field::Integer))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Field, E> {
        Ok(Field::Number(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Field, E> {
        Ok(Field::Text(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Field, E> {
        Ok(Field::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Field, A::Error> {
        let mut list = Vec::new();
        while let Some(OfValue(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Field::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Field, A::Error> {
        OfObject.visit_map(map).map(Field::Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_kind() {
        let line = br#"{"a": -3, "b": 18446744073709551615, "c": 1e-1, "d": true, "e": [null, "x"],
                        "f": {"g": "\u00e9"}, "a": 4}"#;
        let example = read_object(line).unwrap();
        assert_eq!(example.names().collect::<Vec<_>>(), ["a", "b", "c", "d", "e", "f"]);
        assert_eq!((example.integer("a"), example.integer("d")), (Ok(4), Ok(1)));
        assert_eq!((example.number("b"), example.number("c")), (Ok(u64::MAX as f64), Ok(0.1)));
        let list = Field::List(vec![Field::Null, Field::Text("x".into())]);
        assert_eq!(example.get("e"), Some(&list));
        assert_eq!(example.object("f").unwrap().text("g"), Ok("é"));
    }

    #[test]
    fn other_text_is_refused() {
        for line in ["[1]", "3", "{\"a\": 1} x", "{\"a\": NaN}", "{\"a\"", ""] {
            assert!(read_object(line.as_bytes()).is_err(), "{line}");
        }
        let nested = format!("{{\"a\": {}{}}}", "[".repeat(1 << 16), "]".repeat(1 << 16));
        let text = read_object(nested.as_bytes()).unwrap_err().to_string();
        assert!(text.contains("recursion limit"), "{text}");
    }
}
