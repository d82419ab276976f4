//! Structure of text: characters, and JSON.

use std::path::Path;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::{has_extension, refused};

/// Fewest bytes that are surely text if all are printable.
const SURE_BYTES: usize = 256;

/// Fewest invalid bytes that make a file binary.
const MIN_INVALID: usize = 8;

/// Counts of bytes in parts of a file that are no text.
#[derive(Debug, Default)]
pub struct TextSample {
    bytes: usize,
    zeros: usize,
    invalid: usize,
}

impl TextSample {
    /// Counts in one part, which may begin and end inside of a character.
    pub fn of(part: &[u8]) -> TextSample {
        let mut sample = TextSample::default();
        sample.add(part);
        sample
    }

    /// Counts another part.
    pub fn add(&mut self, part: &[u8]) {
        let is_inside = |byte: &u8| byte & 0xc0 == 0x80;
        let start = part.iter().take(3).take_while(|byte| is_inside(byte)).count();
        self.bytes += part.len();
        self.zeros += part.iter().filter(|byte| **byte == 0).count();
        let mut chunks = part[start..].utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            let is_cut = chunks.peek().is_none() && chunk.invalid().len() < 4 && part.len() > 3;
            self.invalid += if is_cut { 0 } else { chunk.invalid().len() };
        }
    }

    /// Checks that the file is text.
    ///
    /// # Errors
    /// The kind of the file, with the next step.
    pub fn check(&self, path: &Path) -> Result<(), String> {
        let (bytes, zeros, invalid) = (self.bytes, self.zeros, self.invalid);
        let is_other = invalid >= MIN_INVALID && 16 * invalid > bytes;
        if zeros == 0 && !is_other {
            return Ok(());
        }
        if let Some(named) = refused::named_kind(path) {
            return Err(named);
        }
        Err(if zeros > 0 {
            format!(
                "it is binary, as {zeros} of {bytes} bytes that were looked at are 0; if it holds raw token ids, give \
                 --token-dtype u16 or u32; if it is text, convert it (iconv -f UTF-16 -t UTF-8 {0}), or remove these \
                 bytes (tr -d '\\000' < {0})",
                path.display()
            )
        } else {
            format!(
                "it is not UTF-8 text, in {invalid} of {bytes} bytes that were looked at; convert text from its \
                 encoding: iconv -f ENCODING -t UTF-8 {}; if it holds raw token ids, give --token-dtype u16 or u32",
                path.display()
            )
        })
    }
}

/// Returns true if the first bytes are many, and UTF-8 text without control characters: no ids look like that.
pub fn is_surely_text(head: &[u8]) -> bool {
    let whole = match std::str::from_utf8(head) {
        Ok(text) => text,
        // A character that is not complete in the head.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    whole.len() >= SURE_BYTES && whole.chars().all(|c| !c.is_control() || c.is_whitespace())
}

/// Returns true if the first lines are JSON objects: two of them, or one if there are no more.
pub fn has_json_lines(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let is_cut = head.len() + 3 >= super::HEAD_BYTES;
    let mut lines = head.split(|byte| *byte == b'\n');
    // A line that is not complete in the head.
    let last = if is_cut { lines.next_back() } else { None };
    let mut lines = lines.map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).peekable();
    let is_object =
        |line: &[u8]| line.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok();
    match lines.peek() {
        Some(_) => lines.take(2).all(is_object),
        None => last.is_some_and(begins_object),
    }
}

/// Returns true if a line that is longer than the head begins as a JSON object.
fn begins_object(line: &[u8]) -> bool {
    let error = |line: &[u8]| serde_json::from_slice::<IgnoredAny>(line).err();
    line.trim_ascii_start().starts_with(b"{") && error(line).is_some_and(|error| error.is_eof())
}

/// Describes a file that is one JSON value over several lines, or an array.
pub fn json_document(path: &Path, head: &[u8]) -> Option<String> {
    let is_named = has_extension(path, &["json"]);
    let is_value = || match serde_json::from_slice::<Value>(head) {
        Ok(value) => value.is_array() || value.is_object(),
        Err(error) => error.is_eof(),
    };
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let filter = match text.first().filter(|_| is_named && is_value())? {
        b'[' => ".[]",
        b'{' => ".",
        _ => return None,
    };
    let path = path.display();
    Some(format!(
        "it is one JSON document; write an object per line, one for each document: jq -c '{filter}' {path} > out.jsonl"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_may_have_a_few_other_bytes() {
        let check = |text: &[u8]| TextSample::of(text).check(Path::new("a.txt"));
        let latin_1 = "a few accents: caf".bytes().chain(*b"\xe9 and text. ").collect::<Vec<u8>>();
        check(&latin_1.repeat(20)).unwrap();
        check("東京 naïve".as_bytes()).unwrap();
        // Cut in the middle of characters.
        check(&"東".repeat(50).as_bytes()[1..149]).unwrap();
        let text = check(b"text\0text").unwrap_err();
        assert!(text.contains("1 of 9 bytes") && text.contains("--token-dtype"), "{text}");
        let text = check(&[0xcf; 100]).unwrap_err();
        assert!(text.contains("not UTF-8 text") && text.contains("iconv"), "{text}");
        let text = TextSample::of(b"\0").check(Path::new("x.mds")).unwrap_err();
        assert!(text.starts_with("it is a MosaicML shard"), "{text}");
    }

    #[test]
    fn ids_are_never_text() {
        assert!(is_surely_text(&"東京 naïve\n".repeat(30).as_bytes()[..300]));
        assert!(!is_surely_text(b"few words"));
        let ids = |id: fn(u32) -> u32| (0..300).flat_map(move |n| (id(n) as u16).to_le_bytes());
        for id in [|n| n % 128, |n| n * 40_503 % 50_257, |n| 0x2020 + n * 7919 % 50_000] {
            assert!(!is_surely_text(&ids(id).collect::<Vec<u8>>()));
        }
    }

    #[test]
    fn json_lines_are_objects() {
        for (text, expected) in [
            ("{\"text\": \"a\"}\n{\"text\": \"b\"}\n", true),
            ("\u{feff}\n{\"text\": \"a\"}", true),
            ("{\n\"text\": \"a\"\n}", false),
            ("{\"a\": 1}\nand prose\n", false),
            ("{x}\n", false),
            ("[1]\n[2]\n", false),
            ("", false),
        ] {
            assert_eq!(has_json_lines(text.as_bytes()), expected, "{text}");
        }
        let long = format!("{{\"text\": \"{}", "a".repeat(super::super::HEAD_BYTES));
        assert!(has_json_lines(&long.as_bytes()[..super::super::HEAD_BYTES]));
        let found = json_document(Path::new("a.json"), b"[\n{\"text\": 1}").unwrap();
        assert!(found.contains("jq -c '.[]' a.json"), "{found}");
        assert_eq!(json_document(Path::new("a.txt"), b"[1]"), None);
    }
}
