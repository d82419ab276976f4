//! Examples: what a task makes rows of, with fields by name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One example of a source: fields by name, such as those of an object of a JSONL file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Example {
    fields: Vec<(String, Field)>,
    /// The folder that paths in the fields are relative to.
    folder: Option<Arc<Path>>,
}

/// The value of a field of an [`Example`].
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// No value.
    Null,
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Number(f64),
    /// Values in order.
    List(Vec<Field>),
    /// Bytes, such as those of a file of an image.
    Bytes(Vec<u8>),
    /// Fields by name.
    Object(Example),
}

/// Examples that can be read in any order: a row follows from its number alone, on every mesh and after every resumed
/// run.
///
/// Ranks read from several threads.
pub trait ExampleSource: Send + Sync {
    /// Returns the name in messages, metrics and checkpoints, such as the path of a file.
    fn name(&self) -> &str;

    /// Returns the number of examples.
    fn examples(&self) -> u64;

    /// Returns a text that differs for other examples, such as a hash: a run is refused to resume with another one.
    fn fingerprint(&self) -> String;

    /// Reads the example `index`, below [`examples`](Self::examples).
    ///
    /// # Errors
    /// An example that cannot be read, in a message that names its place, such as the line. The run ends after the step
    /// before.
    fn read(&self, index: u64) -> io::Result<Example>;
}

impl Example {
    /// Creates an example of these fields.
    pub fn new(fields: impl IntoIterator<Item = (String, Field)>) -> Example {
        Example { fields: fields.into_iter().collect(), folder: None }
    }

    /// Returns the example with a folder that paths in its fields are relative to.
    #[must_use]
    pub fn in_folder(self, folder: Arc<Path>) -> Example {
        Example { folder: Some(folder), ..self }
    }

    /// Returns the path that `path` in one of the fields names.
    pub fn resolved(&self, path: &str) -> PathBuf {
        self.folder.as_ref().map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
    }

    /// Returns the names of the fields, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| &**name)
    }

    /// Returns a field; `None` if the example does not have it, or it is null.
    pub fn get(&self, name: &str) -> Option<&Field> {
        let field = self.fields.iter().find(|(own, _)| own == name);
        field.map(|(_, field)| field).filter(|field| **field != Field::Null)
    }

    /// Returns a field.
    ///
    /// # Errors
    /// A field that the example does not have, in a message with those that it has.
    pub fn field(&self, name: &str) -> Result<&Field, String> {
        self.get(name).ok_or_else(|| {
            if self.names().any(|own| own == name) {
                return format!("`{name}` is null");
            }
            let names: Vec<String> = self.names().map(|name| format!("`{name}`")).collect();
            match &names[..] {
                [] => format!("there is no field `{name}`, and no other one"),
                _ => format!("there is no field `{name}`; the fields are {}", names.join(", ")),
            }
        })
    }

    /// Returns the text of a field.
    ///
    /// # Errors
    /// As [`field`](Self::field), and a value that is no text.
    pub fn text(&self, name: &str) -> Result<&str, String> {
        match self.field(name)? {
            Field::Text(text) => Ok(text),
            other => Err(format!("`{name}` is {}, but has to be a text", other.kind())),
        }
    }

    /// Returns the whole number of a field.
    ///
    /// # Errors
    /// As [`field`](Self::field), and a value that is no whole number.
    pub fn integer(&self, name: &str) -> Result<i64, String> {
        match self.field(name)? {
            Field::Integer(number) => Ok(*number),
            other => Err(format!("`{name}` is {}, but has to be a whole number", other.kind())),
        }
    }

    /// Returns the number of a field.
    ///
    /// # Errors
    /// As [`field`](Self::field), and a value that is no number.
    pub fn number(&self, name: &str) -> Result<f64, String> {
        number_of(name, self.field(name)?)
    }

    /// Returns the numbers of a list.
    ///
    /// # Errors
    /// As [`field`](Self::field), and a value that is no list of numbers.
    pub fn numbers(&self, name: &str) -> Result<Vec<f64>, String> {
        match self.field(name)? {
            Field::List(list) => list.iter().map(|field| number_of(name, field)).collect(),
            other => Err(format!("`{name}` is {}, but has to be a list of numbers", other.kind())),
        }
    }

    /// Returns the bytes of a field.
    ///
    /// # Errors
    /// As [`field`](Self::field), and a value that is no bytes.
    pub fn bytes(&self, name: &str) -> Result<&[u8], String> {
        match self.field(name)? {
            Field::Bytes(bytes) => Ok(bytes),
            other => Err(format!("`{name}` is {}, but has to be bytes", other.kind())),
        }
    }

    /// Returns the fields of an object.
    ///
    /// # Errors
    /// As [`field`](Self::field), and a value that is no object.
    pub fn object(&self, name: &str) -> Result<&Example, String> {
        match self.field(name)? {
            Field::Object(object) => Ok(object),
            other => Err(format!("`{name}` is {}, but has to be an object", other.kind())),
        }
    }
}

fn number_of(name: &str, field: &Field) -> Result<f64, String> {
    match field {
        Field::Integer(number) => Ok(*number as f64),
        Field::Number(number) => Ok(*number),
        other => Err(format!("`{name}` is {}, but has to be a number", other.kind())),
    }
}

impl Field {
    /// Describes the kind of the value in a message.
    pub fn kind(&self) -> &'static str {
        match self {
            Field::Null => "null",
            Field::Text(_) => "a text",
            Field::Integer(_) => "a whole number",
            Field::Number(_) => "a number",
            Field::List(_) => "a list",
            Field::Bytes(_) => "bytes",
            Field::Object(_) => "an object",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_their_kind() {
        let list = Field::List(vec![Field::Integer(1), Field::Number(0.5)]);
        let fields =
            [("text", Field::Text("a".into())), ("label", Field::Integer(3)), ("at", list)];
        let fields = fields.map(|(name, field)| (name.to_owned(), field));
        let example = Example::new(fields.into_iter().chain([("none".to_owned(), Field::Null)]));
        assert_eq!(example.text("text"), Ok("a"));
        assert_eq!((example.integer("label"), example.number("label")), (Ok(3), Ok(3.0)));
        assert_eq!(example.numbers("at"), Ok(vec![1.0, 0.5]));
        assert_eq!(example.get("none"), None);
        assert_eq!(example.text("none").unwrap_err(), "`none` is null");
        let missing = example.text("body").unwrap_err();
        assert_eq!(
            missing,
            "there is no field `body`; the fields are `text`, `label`, `at`, `none`"
        );
        let wrong = example.integer("text").unwrap_err();
        assert_eq!(wrong, "`text` is a text, but has to be a whole number");
        assert_eq!(example.bytes("at").unwrap_err(), "`at` is a list, but has to be bytes");
    }
}
