//! Indexed data of Megatron: `NAME.bin` with the ids, and `NAME.idx` with the sequences and the documents.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::super::format::has_extension;
use super::super::place::{is_file, open_reader};
use super::super::{DataError, FileProblem};
use super::{Encoding, TokenLayout};

/// First bytes of an index.
pub const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";

/// Bytes before the lengths of the sequences.
const HEADER: u64 = 34;

/// Returns true if there is an index beside a file of ids.
///
/// # Errors
/// Object storage that does not answer.
pub fn has_index(path: &Path) -> Result<bool, DataError> {
    Ok(has_extension(path, &["bin"]) && is_file(&path.with_extension("idx"))?)
}

/// Returns the file of ids, if `path` is an index of Megatron.
pub fn tokens_of_index(path: &Path, head: &[u8]) -> Result<Option<PathBuf>, DataError> {
    if !head.starts_with(b"MMIDIDX") {
        return Ok(None);
    }
    let tokens = path.with_extension("bin");
    if tokens != path && is_file(&tokens)? {
        return Ok(Some(tokens));
    }
    let tokens = tokens.display();
    let problem =
        format!("it is an index of Megatron, but its file of ids {tokens} is not beside it");
    Err(DataError::File(FileProblem { name: path.display().to_string(), problem }))
}

/// Reads the index of a file of ids of `held` bytes.
pub fn layout(index: &Path, held: usize) -> Result<TokenLayout, DataError> {
    let io = |source| DataError::Io { path: index.to_owned(), source };
    let problem = |problem: String| {
        DataError::File(FileProblem { name: index.display().to_string(), problem })
    };
    let (len, reader) = open_reader(index).map_err(io)?;
    let mut reader = Numbers(BufReader::new(reader));
    if len < HEADER || reader.read::<9>().map_err(io)? != *MAGIC {
        return Err(problem(
            "it is no index of Megatron, which begins with MMIDIDX; preprocess the data again, or move it away if it \
             does not belong to the .bin file beside it"
                .to_owned(),
        ));
    }
    let version = u64::from_le_bytes(reader.read().map_err(io)?);
    if version != 1 {
        return Err(problem(format!("it has version {version}, but only version 1 is read")));
    }
    let [code] = reader.read().map_err(io)?;
    let encoding = encoding_of(code).map_err(problem)?;
    let [sequences, documents] =
        [reader.read(), reader.read()].map(|number| number.map(u64::from_le_bytes));
    let (sequences, documents) = (sequences.map_err(io)?, documents.map_err(io)?);
    let expected = |sequences: u64, documents: u64| {
        sequences.checked_mul(12)?.checked_add(documents.checked_mul(8)?)?.checked_add(HEADER)
    };
    if expected(sequences, documents) != Some(len) {
        return Err(problem(format!(
            "its header states {sequences} sequences and {documents} document bounds, but it has {len} bytes; it is \
             truncated, or has modes of multimodal data"
        )));
    }
    let mut ends = Vec::with_capacity(sequences as usize);
    let mut end = 0;
    for _ in 0..sequences {
        let len = i32::from_le_bytes(reader.read().map_err(io)?);
        let len =
            u32::try_from(len).map_err(|_| problem(format!("a sequence has length {len}")))?;
        end += len as usize;
        ends.push(end);
    }
    if end * encoding.width() != held {
        return Err(problem(format!(
            "its {sequences} sequences have {end} {} tokens together, but the .bin file beside it has {held} bytes; \
             they do not belong together, or one of them is truncated",
            encoding.dtype()
        )));
    }
    let mut start = 0;
    for end in &ends {
        let pointer = i64::from_le_bytes(reader.read().map_err(io)?);
        if pointer != (start * encoding.width()) as i64 {
            return Err(problem(format!(
                "a sequence begins at byte {pointer} rather than {}, after the one before it; preprocess the data \
                 again",
                start * encoding.width()
            )));
        }
        start = *end;
    }
    let mut document_ends: Vec<usize> = Vec::new();
    for _ in 0..documents {
        let bound = i64::from_le_bytes(reader.read().map_err(io)?);
        let end = match usize::try_from(bound) {
            Ok(0) => 0,
            Ok(bound) if bound <= ends.len() => ends[bound - 1],
            _ => {
                return Err(problem(format!("a document ends at sequence {bound} of {sequences}")));
            }
        };
        match document_ends.last() {
            Some(last) if *last > end => {
                return Err(problem(
                    "its documents are not in order; preprocess the data again".into(),
                ));
            }
            Some(last) if *last == end => {}
            _ if end == 0 => {}
            _ => document_ends.push(end),
        }
    }
    let document_ends = Some(document_ends);
    Ok(TokenLayout { encoding, bytes: 0..held, document_ends, tokenizer: None })
}

/// Returns the encoding for a code of the index.
fn encoding_of(code: u8) -> Result<Encoding, String> {
    Ok(match code {
        1 => Encoding::U8,
        3 => Encoding::I16,
        4 => Encoding::I32,
        5 => Encoding::I64,
        8 => Encoding::U16,
        2 => return Err("its ids are int8, which is not read; preprocess the data again".into()),
        6 | 7 => return Err("it has floating-point numbers, which are no token ids".into()),
        _ => return Err(format!("it has dtype code {code}, which is unknown")),
    })
}

struct Numbers(BufReader<Box<dyn Read>>);

impl Numbers {
    fn read<const N: usize>(&mut self) -> std::io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::TokenFile;

    /// Creates an index of documents with these lengths of sequences.
    fn index(code: u8, width: u64, documents: &[&[u32]]) -> Vec<u8> {
        let lengths: Vec<u32> = documents.concat();
        let mut bytes = MAGIC.to_vec();
        bytes.extend(1u64.to_le_bytes());
        bytes.push(code);
        bytes.extend((lengths.len() as u64).to_le_bytes());
        bytes.extend((documents.len() as u64 + 1).to_le_bytes());
        lengths.iter().for_each(|len| bytes.extend(len.to_le_bytes()));
        let mut start = 0;
        for len in &lengths {
            bytes.extend((start * width).to_le_bytes());
            start += u64::from(*len);
        }
        let mut bound = 0u64;
        bytes.extend(bound.to_le_bytes());
        for document in documents {
            bound += document.len() as u64;
            bytes.extend(bound.to_le_bytes());
        }
        bytes
    }

    fn open(tokens: &[u8], index: &[u8], name: &str) -> Result<TokenFile, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.bin"), tokens).unwrap();
        std::fs::write(dir.path().join("a.idx"), index).unwrap();
        TokenFile::open(&dir.path().join(name), 100).map_err(|error| error.to_string())
    }

    #[test]
    fn documents_come_from_the_index() {
        let tokens: Vec<u8> = (1..=6u16).flat_map(u16::to_le_bytes).collect();
        let wide: Vec<u8> = (1..=6u32).flat_map(u32::to_le_bytes).collect();
        let documents: [&[u32]; 3] = [&[2, 1], &[], &[3]];
        for (tokens, code, width) in [(&tokens, 8, 2), (&wide, 4, 4)] {
            for name in ["a.bin", "a.idx", "a"] {
                let file = open(tokens, &index(code, width, &documents), name).unwrap();
                let mut ids = vec![0; file.len()];
                file.read(0, &mut ids).unwrap();
                assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
                assert_eq!(file.document_ends(), Some(&[3, 6][..]));
            }
        }
    }

    #[test]
    fn an_index_that_does_not_fit_is_refused() {
        let good = index(8, 2, &[&[2], &[1]]);
        let change = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        for (index, part) in [
            (good[..40].to_vec(), "it has 40 bytes; it is truncated"),
            (good[..4].to_vec(), "it is no index of Megatron"),
            (change(0, b'x'), "it is no index of Megatron"),
            (change(9, 2), "version 2"),
            (change(17, 7), "floating-point"),
            (change(17, 4), "have 3 i32 tokens together, but the .bin file beside it has 6 bytes"),
            (change(34, 3), "have 4 u16 tokens together"),
            (change(37, 0x80), "a sequence has length -"),
            (change(50, 2), "begins at byte 2 rather than 4"),
            (change(66, 9), "a document ends at sequence 9 of 2"),
            (change(58, 2), "not in order"),
        ] {
            let text = open(&[1, 0, 2, 0, 3, 0], &index, "a.bin").unwrap_err();
            assert!(text.contains("a.idx: ") && text.contains(part), "{part}: {text}");
        }
        let dir = tempfile::tempdir().unwrap();
        let alone = dir.path().join("a.idx");
        std::fs::write(&alone, good).unwrap();
        let text = TokenFile::open(&alone, 100).unwrap_err().to_string();
        assert!(text.contains("a.bin is not beside it"), "{text}");
    }
}
