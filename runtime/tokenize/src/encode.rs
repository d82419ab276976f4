//! Tokenization of a text on all cores.

use std::sync::Arc;

use rayon::prelude::*;

use meshwright_store::data::{DataError, DataInput, FileProblem, Ids, TokenFile};

use super::pieces::{Piece, TextDocuments};
use super::source::TextSource;
use super::{TokenizeError, Tokenizer};

/// Bytes of text in memory, per core.
const BYTES_PER_CORE: usize = 1 << 20;

/// Most bytes of ids in memory.
const MAX_IDS: usize = 4 << 30;

/// Tokenizes a file of text into memory; `progress` receives the number of bytes of the file that are done.
///
/// The ids are those that [`tokenize_files`](super::tokenize_files) writes for this file.
///
/// # Errors
/// Text that cannot be read or has no tokens, more than 4 GiB of ids, and the first token of the text whose id is not
/// below the `vocab` of the model. The tokenizer may have more ids.
pub fn tokenize_input(
    tokenizer: &Tokenizer,
    input: DataInput,
    documents: &TextDocuments,
    vocab: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<(TokenFile, Encoded), TokenizeError> {
    let name = input.path().display().to_string();
    let given = documents.record_end.iter().flatten().chain(&documents.begin).chain(&documents.end);
    if let Some(end) = given.copied().find(|id| *id as usize >= vocab) {
        return Err(DataError::UnknownEnd { end, vocab }.into());
    }
    let mut tokens = Ids::below(vocab);
    let encoded =
        Encoder::new(tokenizer, documents).below(vocab).encode(input, progress, &mut |ids| {
            tokens.extend(ids);
            if tokens.bytes().len() > MAX_IDS {
                return Err(TokenizeError::TooLong {
                    name: name.clone(),
                    gibibytes: MAX_IDS >> 30,
                });
            }
            Ok(())
        })?;
    if encoded.bytes == 0 && encoded.record_end.is_some() {
        let problem = "none of its documents has text".to_owned();
        return Err(TokenizeError::File(FileProblem { name, problem }));
    }
    if tokens.bytes().is_empty() && encoded.bytes > 0 {
        return Err(TokenizeError::without_tokens(tokenizer.name(), name, encoded.bytes));
    }
    let file = TokenFile::from_ids(tokens, vocab, &name)?.tokenized_by(tokenizer.record());
    Ok((file, encoded))
}

/// The tokens of one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Bytes of text.
    pub bytes: u64,
    /// Documents that have text.
    pub documents: u64,
    /// The tokens after each document, if these are lines of JSONL or rows of a Parquet file.
    pub record_end: Option<Vec<u32>>,
}

/// The settings that determine how texts become tokens.
pub struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    documents: &'a TextDocuments,
    /// Bytes of text in memory, per core.
    bytes_per_core: usize,
    /// Every id has to be below it.
    vocab: usize,
}

impl<'a> Encoder<'a> {
    pub fn new(tokenizer: &'a Tokenizer, documents: &'a TextDocuments) -> Self {
        let bytes_per_core = BYTES_PER_CORE;
        Encoder { tokenizer, documents, bytes_per_core, vocab: usize::MAX }
    }

    /// Refuses tokens whose ids are not below the `vocab` of a model.
    pub fn below(self, vocab: usize) -> Self {
        Encoder { vocab, ..self }
    }

    /// Tokenizes the text of `input` and passes the ids on in order. Memory is bounded for any length.
    pub fn encode(
        &self,
        input: DataInput,
        progress: &mut dyn FnMut(u64),
        take: &mut dyn FnMut(&[u32]) -> Result<(), TokenizeError>,
    ) -> Result<Encoded, TokenizeError> {
        let batch_bytes = self.bytes_per_core * rayon::current_num_threads();
        let mut source = TextSource::open(input, self.documents)?;
        let record_end = source.has_records().then(|| self.record_end()).transpose()?;
        let end = match &record_end {
            Some(end) => end.clone(),
            None => self.documents.end.into_iter().collect(),
        };
        let mut done = Encoded { bytes: 0, documents: 0, record_end };
        loop {
            let read = read_some(&mut source, batch_bytes)?;
            if read.is_empty() {
                return Ok(done);
            }
            let encode = |(piece, name): &(Piece, Arc<str>)| self.encode_piece(piece, name);
            let encoded: Vec<Result<Vec<u32>, TokenizeError>> =
                read.par_iter().map(encode).collect();
            for ((piece, _), ids) in read.iter().zip(encoded) {
                let ids = ids?;
                if piece.is_first {
                    take(self.documents.begin.as_slice())?;
                }
                take(&ids)?;
                done.bytes += piece.text.len() as u64;
                if piece.is_last {
                    done.documents += 1;
                    take(&end)?;
                }
            }
            progress(source.consumed());
        }
    }

    /// Returns the tokens after each record.
    fn record_end(&self) -> Result<Vec<u32>, TokenizeError> {
        match &self.documents.record_end {
            Some(given) => Ok(given.clone()),
            None => self.tokenizer.default_end(self.vocab),
        }
    }
}

impl Encoder<'_> {
    fn encode_piece(&self, piece: &Piece, name: &str) -> Result<Vec<u32>, TokenizeError> {
        let Piece { text, position, .. } = piece;
        let ids = self.tokenizer.encode(text, name, *position)?;
        match ids.iter().position(|id| *id as usize >= self.vocab) {
            Some(index) => Err(TokenizeError::BeyondVocabulary {
                tokenizer: self.tokenizer.name().to_owned(),
                name: name.to_owned(),
                position: position + self.tokenizer.byte_of_token(text, index),
                token: self.tokenizer.decode(&ids[index..=index]),
                id: ids[index],
                vocab: self.vocab,
            }),
            None => Ok(ids),
        }
    }
}

/// Reads the next pieces, until they have `batch_bytes` bytes or the text ends.
fn read_some(
    source: &mut TextSource<'_>,
    batch_bytes: usize,
) -> Result<Vec<(Piece, Arc<str>)>, TokenizeError> {
    let (mut read, mut bytes) = (Vec::new(), 0);
    while bytes < batch_bytes {
        let Some(named) = source.next()? else { break };
        // A piece costs memory of its own, however short it is.
        bytes += named.0.text.len() + size_of::<Piece>() + named.1.len();
        read.push(named);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use super::*;

    fn input(text: &str) -> DataInput {
        let text = Box::new(Cursor::new(text.as_bytes().to_vec()));
        DataInput::of_stream(Path::new("a.txt"), None, text).unwrap()
    }

    fn tokenize(tokenizer: &Tokenizer, text: &str, vocab: usize) -> Result<TokenFile, String> {
        let documents = TextDocuments::default();
        let done = tokenize_input(tokenizer, input(text), &documents, vocab, &mut |_| ());
        done.map(|(file, _)| file).map_err(|error| error.to_string())
    }

    /// The ids of `text` by as many threads.
    fn ids(encoder: &Encoder<'_>, text: &str, threads: usize) -> Vec<u32> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut all = Vec::new();
            let mut take = |ids: &[u32]| {
                all.extend(ids);
                Ok(())
            };
            encoder.encode(input(text), &mut |_| (), &mut take).unwrap();
            all
        })
    }

    #[test]
    fn bytes_come_out_as_they_went_in() {
        // Longer than the text in memory at any time.
        let text: String = (0..300_000).map(|n| format!("line {n}\n")).collect();
        assert!(text.len() > 3 * BYTES_PER_CORE);
        let expected: Vec<u32> = text.bytes().map(u32::from).collect();
        let documents = TextDocuments::default();
        assert!(ids(&Encoder::new(&Tokenizer::Bytes, &documents), &text, 1) == expected);
        let file = tokenize(&Tokenizer::Bytes, &text, 256).unwrap();
        let mut read = vec![0; file.len()];
        file.read(0, &mut read).unwrap();
        assert!(read == expected);
    }

    /// Ids that a text does not use may be beyond the vocabulary.
    #[cfg(feature = "tokenizers")]
    #[test]
    fn tokens_beyond_the_vocabulary_are_refused_at_their_place() {
        use super::super::test_tokenizer::{END, tokenizer_json, write};

        let dir = tempfile::tempdir().unwrap();
        let tokenizer = Tokenizer::open(&write(dir.path(), &tokenizer_json())).unwrap();
        let tokenize = |text: &str| tokenize(&tokenizer, text, 264).map(|file| file.len());
        assert_eq!(tokenize("the end"), Ok(5));
        // In a later piece, after characters of several bytes.
        let lines = "naïve\n".repeat(20_000);
        let text = tokenize(&format!("{lines}the {END}")).unwrap_err();
        let place = format!("at byte {}, whose id is 264, but the vocabulary", lines.len() + 4);
        assert!(
            text.contains("--data: a.txt has the token `<|end|>` of ") && text.contains(&place),
            "{text}"
        );
    }

    #[cfg(feature = "tokenizers")]
    #[test]
    fn a_tokenizer_without_tokens_for_the_text_is_named() {
        use super::super::test_tokenizer::{tokenizer_json, write};

        let dir = tempfile::tempdir().unwrap();
        let mut json = tokenizer_json();
        json["model"]["vocab"] = serde_json::json!({"q": 0});
        json["model"]["merges"] = serde_json::json!([]);
        let tokenizer = Tokenizer::open(&write(dir.path(), &json)).unwrap();
        let refusal = |text: &str| tokenize(&tokenizer, text, 256).unwrap_err();
        let text = refusal("abc");
        assert!(text.starts_with("--tokenizer: "), "{text}");
        assert!(
            text.contains("tokenizer.json makes no tokens of the 3 bytes of a.txt; use"),
            "{text}"
        );
        assert_eq!(refusal(""), "--data: a.txt is empty");
    }

    #[cfg(feature = "tokenizers")]
    #[test]
    fn thread_count_does_not_change_tokens() {
        use super::super::test_tokenizer::{END, tokenizer_json, write};

        let dir = tempfile::tempdir().unwrap();
        let tokenizer = Tokenizer::open(&write(dir.path(), &tokenizer_json())).unwrap();
        let end = tokenizer.token_id("--eos", END).unwrap();
        let document = |n: usize| {
            let lines = (0..n % 37 * 20).map(|m| format!("the {m} and\n\n the  naïve {n}.\n"));
            lines.collect::<String>()
        };
        let texts: Vec<String> = (0..40).map(document).filter(|text| !text.is_empty()).collect();
        let ids_of = |text: &String| {
            let mut ids = tokenizer.encode(text.as_bytes(), "text", 0).unwrap();
            ids.push(end);
            ids
        };
        let expected: Vec<Vec<u32>> = texts.iter().map(ids_of).collect();
        let documents = TextDocuments {
            separator: Some("\u{1}".into()),
            end: Some(end),
            ..TextDocuments::default()
        };
        // Several batches, by batches of few bytes and by batches of any other use.
        let few = Encoder { bytes_per_core: 1 << 14, ..Encoder::new(&tokenizer, &documents) };
        let joined = texts.join("\u{1}");
        assert!(joined.len() > 4 * 3 * few.bytes_per_core);
        for threads in [1, 3] {
            assert!(ids(&few, &joined, threads) == expected.concat());
        }
        let repeats = BYTES_PER_CORE / joined.len() + 1;
        let repeated = vec![joined; repeats].join("\u{1}");
        assert!(repeated.len() > BYTES_PER_CORE);
        let encoder = Encoder::new(&tokenizer, &documents);
        assert!(ids(&encoder, &repeated, 1) == expected.concat().repeat(repeats));
        // A document that is cut has the ids of the whole, where it is cut at line breaks.
        let long = texts.concat();
        let whole = tokenizer.encode(long.as_bytes(), "text", 0).unwrap();
        let documents = TextDocuments::default();
        let few = Encoder { bytes_per_core: 1 << 14, ..Encoder::new(&tokenizer, &documents) };
        assert!(long.len() > 4 * 2 * few.bytes_per_core);
        assert!(ids(&few, &long, 2) == whole);
    }
}
