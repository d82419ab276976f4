//! `tokenizer.json` files, through the library that defines them.

use std::path::Path;

use tokenizers::{Encoding, ModelWrapper, PostProcessor, Tokenizer, TruncationDirection};
use xxhash_rust::xxh3::xxh3_64;

use meshwright_os::{InputFile, read_text};
use meshwright_store::__internal::{IS_LFS_POINTER, is_lfs_pointer};

use super::TokenizeError;
use super::marked_text::{MarkedText, TextToMark, cut_longest};

/// Most bytes of a file: that of a vocabulary of 256,000 tokens has less than a tenth of them.
const MAX_JSON: u64 = 512 << 20;

/// Names of the token that ends a text, in tokenizers whose folder does not state it.
const ENDS_OF_TEXT: [&str; 5] = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>"];

/// Names of the token that stands for a masked one, in tokenizers whose folder does not state it.
const MASKS: [&str; 2] = ["[MASK]", "<mask>"];

/// A `tokenizer.json`.
pub struct FileTokenizer {
    tokenizer: Tokenizer,
    vocab: usize,
    name: String,
    /// XXH3 of the file, in hexadecimal.
    hash: String,
}

impl FileTokenizer {
    pub(super) fn open(path: &Path) -> Result<FileTokenizer, TokenizeError> {
        let unusable = |problem: String| {
            let path = path.to_owned();
            TokenizeError::Unusable { path, problem }
        };
        let read = InputFile::open(path).and_then(|file| file.read_limited(MAX_JSON));
        let json = read.map_err(|error| unusable(error.to_string()))?;
        if is_lfs_pointer(&json) {
            return Err(unusable(IS_LFS_POINTER.to_owned()));
        }
        let mut tokenizer = Tokenizer::from_bytes(&json).map_err(|error| {
            let beside = path.with_file_name("tokenizer.json");
            unusable(if beside != path && beside.is_file() {
                format!("it is no tokenizer; name {} beside it", beside.display())
            } else {
                error.to_string()
            })
        })?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| unusable(error.to_string()))?;
        let Some(largest) = tokenizer.get_vocab(true).into_values().max() else {
            return Err(unusable("it has no tokens".into()));
        };
        let (vocab, name) = (largest as usize + 1, path.display().to_string());
        let hash = format!("{:016x}", xxh3_64(&json));
        Ok(FileTokenizer { tokenizer, vocab, name, hash })
    }

    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn vocab(&self) -> usize {
        self.vocab
    }

    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// Returns the token that ends a text: that of the `tokenizer_config.json` beside the file, or one with a common
    /// name.
    pub(super) fn end_of_text(&self) -> Option<u32> {
        self.stated_token("eos_token", &ENDS_OF_TEXT)
    }

    /// Returns the token that stands for a masked one, found alike.
    pub(super) fn mask_token(&self) -> Option<u32> {
        self.stated_token("mask_token", &MASKS)
    }

    fn stated_token(&self, key: &str, common: &[&str]) -> Option<u32> {
        let config = Path::new(&self.name).with_file_name("tokenizer_config.json");
        let config = read_text(&config).ok().and_then(|text| serde_json::from_str(&text).ok());
        let config: serde_json::Value = config.unwrap_or_default();
        let stated = &config[key];
        let stated = stated.as_str().or_else(|| stated["content"].as_str());
        let special = self.special_tokens();
        let common = common.iter().copied().find(|name| special.iter().any(|own| own == name));
        self.id(stated.or(common)?)
    }

    pub(super) fn special_tokens(&self) -> Vec<String> {
        let added = self.tokenizer.get_added_tokens_decoder();
        let mut special: Vec<_> = added.into_iter().filter(|(_, token)| token.special).collect();
        special.sort_unstable_by_key(|(id, _)| *id);
        special.into_iter().map(|(_, token)| token.content).collect()
    }

    pub(super) fn special_ids(&self) -> Vec<u32> {
        let added = self.tokenizer.get_added_tokens_decoder();
        added.into_iter().filter(|(_, token)| token.special).map(|(id, _)| id).collect()
    }

    /// Returns the number of special tokens that are added to a text, or to two.
    pub(super) fn added_tokens(&self, is_pair: bool) -> usize {
        self.tokenizer.get_post_processor().map_or(0, |template| template.added_tokens(is_pair))
    }

    /// Returns a text of at most `room` tokens with the special tokens around it.
    pub(super) fn encode_marked(
        &self,
        text: TextToMark<'_>,
        room: usize,
    ) -> Result<MarkedText, String> {
        let encode = |text: &str| self.tokenizer.encode_fast(text, false);
        let encoded = || -> tokenizers::Result<MarkedText> {
            let (mut first, second) = match text {
                TextToMark::One(text) => (encode(text)?, None),
                TextToMark::Two(first, second) => (encode(first)?, Some(encode(second)?)),
                // The numbers of words are there beside offsets only.
                TextToMark::Words(words) => (self.tokenizer.encode(words, false)?, None),
            };
            let lengths = [first.len(), second.as_ref().map_or(0, Encoding::len)];
            let kept = cut_longest(lengths, room);
            first.truncate(kept[0], 0, TruncationDirection::Right);
            let second = second.map(|mut second| {
                second.truncate(kept[1], 0, TruncationDirection::Right);
                second
            });
            let whole = self.tokenizer.post_process(first, second, true)?;
            let (ids, types) = (whole.get_ids().to_vec(), whole.get_type_ids().to_vec());
            let words = whole.get_word_ids().to_vec();
            Ok(MarkedText { ids, types, words, own: kept.iter().sum() })
        };
        encoded().map_err(|error| error.to_string())
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let encoding =
            self.tokenizer.encode_fast(text, false).map_err(|error| error.to_string())?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Returns the setting that makes the tokens of a text random, and its value: dropout of merges, or sampling.
    pub(super) fn randomness(&self) -> Option<(&'static str, f64)> {
        let setting = match self.tokenizer.get_model() {
            ModelWrapper::BPE(model) => ("dropout", model.dropout.map(f64::from)),
            ModelWrapper::Unigram(model) => ("alpha", model.alpha),
            ModelWrapper::WordPiece(_) | ModelWrapper::WordLevel(_) => return None,
        };
        let (name, value) = setting;
        value.filter(|value| *value != 0.0).map(|value| (name, value))
    }

    /// Returns the index of the first byte of token `index` of a text; 0 if the tokenizer does not know it.
    pub(super) fn byte_of_token(&self, text: &str, index: usize) -> usize {
        let encoding = self.tokenizer.encode(text, false).ok();
        encoding.and_then(|encoding| Some(encoding.get_offsets().get(index)?.0)).unwrap_or(0)
    }

    pub(super) fn decode(&self, ids: &[u32]) -> String {
        // A decoder that cannot make sense of some ids leaves each of them on its own.
        self.tokenizer.decode(ids, false).unwrap_or_else(|_| {
            let token = |id: &u32| self.tokenizer.id_to_token(*id).unwrap_or_default();
            ids.iter().map(token).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Tokenizer as Any;
    use super::super::test_tokenizer::{END, tokenizer_json, write};

    fn open(change: impl FnOnce(&mut Value)) -> Result<Any, String> {
        let dir = tempfile::tempdir().unwrap();
        let mut json = tokenizer_json();
        change(&mut json);
        Any::open(&write(dir.path(), &json)).map_err(|error| error.to_string())
    }

    fn encode(tokenizer: &Any, text: &str) -> Vec<u32> {
        tokenizer.encode(text.as_bytes(), "text", 0).unwrap()
    }

    #[test]
    fn another_file_of_a_folder_leads_to_its_tokenizer() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &tokenizer_json());
        let other = dir.path().join("tokenizer_config.json");
        std::fs::write(&other, "{\"eos_token\": \"<|end|>\"}").unwrap();
        let text = Any::open(&other).map(drop).unwrap_err().to_string();
        assert!(
            text.contains("it is no tokenizer; name ") && text.contains("tokenizer.json beside it"),
            "{text}"
        );
    }

    #[test]
    fn text_becomes_pairs_and_text_again() {
        let tokenizer = open(|_| ()).unwrap();
        assert_eq!((tokenizer.vocab(), tokenizer.is_bytes()), (265, false));
        // "the", " the", " and", a line break and the end.
        let ids = encode(&tokenizer, "the the and\n<|end|>");
        assert_eq!(ids, [257, 258, 262, 10, 264]);
        assert_eq!(tokenizer.decode(&ids), "the the and\n<|end|>");
        for text in ["", "naïve — 東京 🦀\n\n  x\t", "\0\r\n"] {
            assert_eq!(tokenizer.decode(&encode(&tokenizer, text)), text);
        }
        // Half a character, and an id that no token has.
        assert_eq!(tokenizer.decode(&[0xc3]), "\u{fffd}");
        assert_eq!(tokenizer.decode(&[97, 100_000, 98]), "ab");
    }

    #[test]
    fn the_largest_id_decides_the_vocabulary() {
        let tokenizer = open(|json| json["added_tokens"][0]["id"] = json!(264)).unwrap();
        assert_eq!(tokenizer.vocab(), 265);
        let with_gap = open(|json| json["model"]["vocab"]["zz"] = json!(70_000)).unwrap();
        assert_eq!(with_gap.vocab(), 70_001);
    }

    #[test]
    fn truncation_and_padding_are_turned_off() {
        let tokenizer = open(|json| {
            json["truncation"] = json!({
                "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0,
            });
            json["padding"] = json!({
                "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                "pad_type_id": 0, "pad_token": "x",
            });
        });
        assert_eq!(encode(&tokenizer.unwrap(), "0123456789").len(), 10);
    }

    #[test]
    fn the_token_that_ends_documents_is_found_by_name() {
        let tokenizer = open(|_| ()).unwrap();
        assert_eq!(tokenizer.token_id("--eos", END).unwrap(), 264);
        let text = tokenizer.token_id("--eos", "</s>").unwrap_err().to_string();
        assert!(text.contains("has no token `</s>`; its special tokens are <|end|>"), "{text}");
        // A number is an id, unless it is another token.
        let id = |token| tokenizer.token_id("--eos", token).map_err(|error| error.to_string());
        assert_eq!((id("264"), id("id=264"), id("id=7")), (Ok(264), Ok(264), Ok(7)));
        assert!(id("0").is_err_and(|text| text.ends_with("with id 0; write id=48 or id=0")));
        assert!(
            id("265").is_err_and(|text| text.ends_with("no token `265`; its ids are below 265"))
        );
        let without = open(|json| json["added_tokens"] = json!([])).unwrap();
        let text = without.token_id("--eos", "</s>").unwrap_err().to_string();
        assert!(text.contains("it has no special tokens, so leave it out"), "{text}");
    }

    /// A text has to have the same tokens in each run; decoding is never random.
    #[test]
    fn random_tokens_are_refused() {
        let tokenizer = open(|json| json["model"]["dropout"] = json!(0.5)).unwrap();
        let text = tokenizer.encode(b"the", "a.txt", 0).unwrap_err().to_string();
        assert!(text.contains("(\"dropout\" is 0.5 in its \"model\")"), "{text}");
        assert!(text.contains("set it to null in a copy of the file"), "{text}");
        assert_eq!(tokenizer.decode(&[257]), "the");
        let off = open(|json| json["model"]["dropout"] = json!(0.0)).unwrap();
        assert_eq!(encode(&off, "the"), [257]);
    }

    #[test]
    fn invalid_tokenizer_files_are_named() {
        let of_text = |text: &str| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("tokenizer.json");
            std::fs::write(&path, text).unwrap();
            Any::open(&path).map(drop).unwrap_err().to_string()
        };
        for text in ["", "{", "{}", "[1]", "not json", r#"{"model": {"type": "none"}}"#] {
            let message = of_text(text);
            assert!(message.contains("tokenizer.json cannot be used: "), "{message}");
            assert!(
                message.contains("use the tokenizer.json of a Hugging Face model"),
                "{message}"
            );
        }
        let text = open(|json| json["model"]["merges"][0] = json!("q zz")).map(drop).unwrap_err();
        assert!(text.contains("cannot be used: "), "{text}");
        let text = open(|json| {
            json["model"]["vocab"] = json!({});
            json["model"]["merges"] = json!([]);
            json["added_tokens"] = json!([]);
        });
        let text = text.map(drop).unwrap_err();
        assert!(text.contains("cannot be used: it has no tokens"), "{text}");
    }

    #[test]
    fn text_that_is_not_utf_8_is_refused_at_its_byte() {
        let tokenizer = open(|_| ()).unwrap();
        let text = tokenizer.encode(b"ab\xff", "a.txt", 1000).unwrap_err().to_string();
        assert!(text.contains("a.txt is not UTF-8 text, at byte 1002"), "{text}");
    }
}
