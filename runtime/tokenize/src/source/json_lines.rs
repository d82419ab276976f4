//! JSONL: an object per line, with the text of a document at a key.

use std::fmt;
use std::io::{BufRead, BufReader, Read};

use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use meshwright_store::data::FileProblem;

use super::{Record, Records, TokenizeError, read_error};

/// Most bytes of a line, which is held in memory.
const MAX_LINE: u64 = 256 << 20;

/// Most keys that a message names.
const MAX_NAMED: usize = 8;

/// The lines of a file.
pub struct JsonLines {
    reader: BufReader<Box<dyn Read>>,
    key: String,
    name: String,
    line: Vec<u8>,
    number: u64,
}

impl JsonLines {
    pub fn new(reader: Box<dyn Read>, key: &str, name: String) -> JsonLines {
        let reader = BufReader::with_capacity(1 << 18, reader);
        JsonLines { reader, key: key.to_owned(), name, line: Vec::new(), number: 0 }
    }

    /// Reads the next line, without white space around it.
    fn next_line(&mut self) -> Result<Option<&[u8]>, TokenizeError> {
        self.line.clear();
        self.number += 1;
        let mut limited = self.reader.by_ref().take(MAX_LINE + 1);
        let read = limited.read_until(b'\n', &mut self.line);
        let read = read.map_err(|source| read_error(&self.name, source))?;
        if self.line.len() as u64 > MAX_LINE {
            let mebibytes = MAX_LINE >> 20;
            return Err(self.problem(format!(
                "the line is longer than {mebibytes} MiB; split the document into several lines"
            )));
        }
        Ok((read > 0).then(|| {
            let line = self.line.strip_prefix(b"\xef\xbb\xbf").filter(|_| self.number == 1);
            line.unwrap_or(&self.line).trim_ascii()
        }))
    }

    fn problem(&self, problem: String) -> TokenizeError {
        TokenizeError::File(FileProblem { name: self.name_of(self.number), problem })
    }

    /// Explains an error of the line that was read last.
    fn explain(&self, error: &serde_json::Error) -> String {
        let reason = error.to_string();
        let reason = reason.split(" at line ").next().unwrap_or_default();
        if error.is_data() {
            return reason.to_owned();
        }
        let column = error.column();
        if reason.contains("surrogate") || reason.contains("hex escape") {
            return format!(
                "at column {column}, a \\u escape is half of a surrogate pair, which is no character; remove it, such \
                 as in Python by text.encode('utf-8', 'ignore').decode()"
            );
        }
        let fix = "write each document as one JSON object on a line of its own";
        format!("broken JSON at column {column} ({reason}); {fix}")
    }
}

impl Records for JsonLines {
    fn next_record(&mut self) -> Result<Option<Record>, TokenizeError> {
        loop {
            let key = self.key.clone();
            let Some(line) = self.next_line()? else { return Ok(None) };
            if line.is_empty() {
                continue;
            }
            let mut json = serde_json::Deserializer::from_slice(line);
            let read =
                json.deserialize_map(TextAt(&key)).and_then(|text| json.end().map(|()| text));
            return match read {
                Ok(text) => Ok(Some(Record { text, number: self.number })),
                Err(error) => Err(self.problem(self.explain(&error))),
            };
        }
    }

    fn name_of(&self, number: u64) -> String {
        format!("{}:{number}", self.name)
    }
}

/// Reads the text at a key, and skips other values.
struct TextAt<'a>(&'a str);

impl<'de> Visitor<'de> for TextAt<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a JSON object with the key `{}`", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let (mut found, mut others) = (None, Vec::new());
        while let Some(key) = map.next_key::<String>()? {
            if key != self.0 {
                map.next_value::<IgnoredAny>()?;
                others.push(key);
                continue;
            }
            match map.next_value::<serde_json::Value>()? {
                serde_json::Value::String(text) => found = Some(text),
                other => {
                    let key = self.0;
                    return Err(A::Error::custom(format_args!(
                        "`{key}` is {}, not a string; name the key of the text by --text-key, or leave the line out",
                        kind_of(&other)
                    )));
                }
            }
        }
        found.ok_or_else(|| {
            let advice = advice_on_keys(&others);
            let more = if others.len() > MAX_NAMED { ", .." } else { "" };
            others.truncate(MAX_NAMED);
            let keys = if others.is_empty() {
                "it has no keys".to_owned()
            } else {
                format!("its keys are {}{more}", others.join(", "))
            };
            A::Error::custom(format_args!("the object has no key `{}`; {keys}; {advice}", self.0))
        })
    }
}

/// Returns the next step for an object with these keys, and without the key of the text.
fn advice_on_keys(keys: &[String]) -> &'static str {
    let has = |names: &[&str]| keys.iter().any(|key| names.contains(&key.as_str()));
    if has(&["messages", "conversations", "conversation"]) {
        "write each conversation as one text first, by the chat template of the model (apply_chat_template of the \
         Python library transformers)"
    } else if has(&["input_ids", "token_ids"]) {
        "token ids are read from .npy or .bin files: write those of all lines one after the other to such a file"
    } else {
        "name the one with the text by --text-key"
    }
}

fn kind_of(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "true or false",
        serde_json::Value::Number(_) => "a number",
        serde_json::Value::String(_) => "a string",
        serde_json::Value::Array(_) => "a list",
        serde_json::Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str, key: &str) -> Result<Vec<(u64, String)>, String> {
        let reader = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
        let mut lines = JsonLines::new(reader, key, "a.jsonl".into());
        let next = || lines.next_record().transpose();
        let record = |record: Record| (record.number, record.text);
        std::iter::from_fn(next)
            .map(|read| read.map(record).map_err(|error| error.to_string()))
            .collect()
    }

    #[test]
    fn each_line_has_the_text_of_a_document() {
        let text = "\u{feff}{\"id\": [1, {\"text\": 2}], \"text\": \"a\\n\\u00e9 \\ud83e\\udd80\"}\r\n\n\
                    {\"text\": \"東\", \"text\": \"b\"}\n{\"text\": \"\"}";
        let expected = [(1, "a\né 🦀".to_owned()), (3, "b".to_owned()), (4, String::new())];
        assert_eq!(records(text, "text").unwrap(), expected);
        assert_eq!(
            records("{\"body\": \"c\", \"text\": 7}", "body").unwrap(),
            [(1, "c".to_owned())]
        );
    }

    #[test]
    fn a_wrong_line_is_named_with_its_fix() {
        for (line, part) in [
            (
                r#"{"id": 1, "body": "b"}"#,
                "no key `text`; its keys are id, body; name the one with the text by --text-key",
            ),
            (
                r#"{"messages": []}"#,
                "its keys are messages; write each conversation as one text first",
            ),
            (
                r#"{"input_ids": [1]}"#,
                "its keys are input_ids; token ids are read from .npy or .bin files",
            ),
            ("{}", "no key `text`; it has no keys"),
            (r#"{"text": null}"#, "`text` is null, not a string"),
            (r#"{"text": ["a"]}"#, "`text` is a list, not a string"),
            (r#"{"text": 3}"#, "`text` is a number"),
            (r#"{"text": "\ud83e"}"#, "half of a surrogate pair"),
            (r#"{"text": "\ud83e x"}"#, "half of a surrogate pair"),
            (r#"{"text": "\udd80"}"#, "half of a surrogate pair"),
            (r#"{"text": "a"#, "broken JSON at column 11 (EOF while parsing a string)"),
            (r#"{"text": "a"} {}"#, "broken JSON at column 15 (trailing characters)"),
            (r#"["text"]"#, "invalid type: sequence, expected a JSON object with the key `text`"),
            (r#""text""#, "invalid type: string"),
            ("prose", "broken JSON at column 1"),
            ("{'text': 'a'}", "broken JSON at column 2 (key must be a string)"),
        ] {
            let text = records(&format!("{{\"text\": \"a\"}}\n{line}\n"), "text").unwrap_err();
            assert!(text.starts_with("a.jsonl:2: ") && text.contains(part), "{text}");
        }
    }
}
