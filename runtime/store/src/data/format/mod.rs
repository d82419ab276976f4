//! The format of a file of data, from its first bytes, its structure, and its name, in this order.

mod content;
mod refused;

use std::path::{Path, PathBuf};

use super::{Encoding, FileProblem};

pub(super) use content::TextSample;

/// First bytes of a file that its format is determined from.
pub(super) const HEAD_BYTES: usize = 1 << 16;

/// The format of a file of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataFormat {
    /// Plain text.
    Text,
    /// A JSON object per line.
    JsonLines,
    /// A table by columns.
    Parquet,
    /// Another format, compressed by gzip.
    Gzip,
    /// Another format, compressed by Zstandard.
    Zstd,
    /// Token ids without a header.
    RawTokens,
    /// An array of numpy.
    Npy,
    /// Token ids after the header of llm.c and modded-nanogpt.
    LlmC,
    /// Token ids with an index of documents, as Megatron writes them.
    Megatron {
        /// The file of the index.
        index: PathBuf,
    },
}

/// First bytes of formats that are read.
const READ: &[(&[u8], DataFormat)] = &[
    (b"\x93NUMPY", DataFormat::Npy),
    (b"PAR1", DataFormat::Parquet),
    (b"\x1f\x8b\x08", DataFormat::Gzip),
    (b"\x28\xb5\x2f\xfd", DataFormat::Zstd),
    // 20240520 and 20240801.
    (b"\x88\xd8\x34\x01", DataFormat::LlmC),
    (b"\xa1\xd9\x34\x01", DataFormat::LlmC),
];

impl DataFormat {
    /// Returns true for token ids, and false for text.
    pub fn is_tokens(&self) -> bool {
        matches!(
            self,
            DataFormat::RawTokens
                | DataFormat::Npy
                | DataFormat::LlmC
                | DataFormat::Megatron { .. }
        )
    }

    /// Returns true if the text of a file consists of records, each of them a document.
    pub fn is_records(&self) -> bool {
        matches!(self, DataFormat::JsonLines | DataFormat::Parquet)
    }

    /// Determines the format of `path` from its first bytes. `dtype` is the width of ids that was given; `has_index` is
    /// true if a file with the extension `.idx` is beside `path`.
    ///
    /// # Errors
    /// A file of another kind, with the next step.
    pub fn recognize(
        path: &Path,
        head: &[u8],
        dtype: Option<Encoding>,
        has_index: bool,
    ) -> Result<DataFormat, FileProblem> {
        let problem = |problem: String| FileProblem { name: path.display().to_string(), problem };
        if let Some(format) = read_format(head) {
            return match dtype.filter(|_| !format.is_tokens()) {
                Some(_) => Err(problem(TEXT_WITH_DTYPE.to_owned())),
                None => Ok(format),
            };
        }
        let is_named_tokens = has_extension(path, &["bin"]);
        if let Some(fix) = refused::strong_kind(path, head) {
            return Err(problem(fix));
        }
        if is_named_tokens && has_index {
            return Ok(DataFormat::Megatron { index: path.with_extension("idx") });
        }
        let is_text = content::is_surely_text(head);
        if is_named_tokens && is_text {
            let fix = "it is text, but its name states token ids; rename it, such as to .txt";
            return Err(problem(fix.to_owned()));
        }
        if dtype.is_some() && is_text {
            return Err(problem(TEXT_WITH_DTYPE.to_owned()));
        }
        if is_named_tokens || dtype.is_some() {
            return Ok(DataFormat::RawTokens);
        }
        DataFormat::recognize_text(path, head).map_err(problem)
    }

    /// Determines the format of a file that is no token file.
    fn recognize_text(path: &Path, head: &[u8]) -> Result<DataFormat, String> {
        if let Some(fix) = refused::weak_kind(path, head).or_else(|| refused::table_kind(path)) {
            return Err(fix);
        }
        TextSample::of(head).check(path)?;
        let names_lines = has_extension(path, &["jsonl", "ndjson", "jsonlines"]);
        if names_lines || content::has_json_lines(head) {
            return Ok(DataFormat::JsonLines);
        }
        match content::json_document(path, head) {
            Some(fix) => Err(fix),
            None => Ok(DataFormat::Text),
        }
    }
}

const TEXT_WITH_DTYPE: &str =
    "it is text, and --token-dtype is the width of raw token ids; leave --token-dtype out";

/// Returns the format whose first bytes are at the beginning of `head`.
fn read_format(head: &[u8]) -> Option<DataFormat> {
    let found = READ.iter().find(|(magic, _)| head.starts_with(magic));
    // A frame that holds no data.
    let is_skippable = head.len() >= 8 && head[1..4] == *b"\x2a\x4d\x18" && head[0] >> 4 == 5;
    found.map(|(_, format)| format.clone()).or(is_skippable.then_some(DataFormat::Zstd))
}

/// Returns true if the extension of `path` is one of these, in upper or lower case.
pub(super) fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let own = path.extension().and_then(|extension| extension.to_str());
    own.is_some_and(|own| extensions.iter().any(|other| own.eq_ignore_ascii_case(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_decides_before_the_name() {
        let is_of = |name: &str, head: &[u8], dtype: Option<Encoding>| {
            let format = DataFormat::recognize(Path::new(name), head, dtype, false);
            format.map_err(|error| error.to_string())
        };
        let line = b"{\"text\": \"a\"}\n";
        for (name, head, dtype, expected) in [
            ("a.bin", &b"\x93NUMPY"[..], None, DataFormat::Npy),
            ("a.txt", b"PAR1", None, DataFormat::Parquet),
            ("a.bin", b"\x1f\x8b\x08\0", None, DataFormat::Gzip),
            ("a", b"\x53\x2a\x4d\x18\x01\0\0\0", None, DataFormat::Zstd),
            ("a.txt", b"\x88\xd8\x34\x01", None, DataFormat::LlmC),
            ("a.txt", line, None, DataFormat::JsonLines),
            ("a.JSONL", b"prose", None, DataFormat::JsonLines),
            ("a.npy", b"prose", None, DataFormat::Text),
            ("a.BIN", b"\x01\0", None, DataFormat::RawTokens),
            // Ids that begin like an image, and ids by a setting.
            ("a.bin", b"BM\0\0", None, DataFormat::RawTokens),
            ("a.ds", b"\xff\xfe\0\x01", Some(Encoding::U16), DataFormat::RawTokens),
        ] {
            assert_eq!(is_of(name, head, dtype), Ok(expected), "{name}");
        }
        let text = is_of("a.jsonl.gz", b"\x1f\x8b\x08\0", Some(Encoding::U16)).unwrap_err();
        assert!(text.starts_with("a.jsonl.gz: it is text, and --token-dtype"), "{text}");
    }
}
