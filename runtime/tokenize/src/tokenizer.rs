//! Tokenizers, from text to token ids and back.

use std::path::Path;

use meshwright_store::data::TokenizerRecord;

use super::TokenizeError;
use super::file::FileTokenizer;

/// Turns text into token ids and back.
pub enum Tokenizer {
    /// Every byte is a token, whose id is its value.
    Bytes,
    /// A `tokenizer.json`.
    File(Box<FileTokenizer>),
}

impl Tokenizer {
    /// Opens the tokenizer `bytes`, or a `tokenizer.json` of the Hugging Face library `tokenizers`.
    ///
    /// A limit on length, and padding, which such a file may ask for, are left out: they are meant for single inputs of
    /// a model, and would cut documents off or fill them up.
    ///
    /// # Errors
    /// A file that is missing or no tokenizer, and any file where the program was built without the feature
    /// `tokenizers`.
    pub fn open(name: &Path) -> Result<Tokenizer, TokenizeError> {
        if name == Path::new("bytes") {
            return Ok(Tokenizer::Bytes);
        }
        let unusable = |problem: String| {
            let path = name.to_owned();
            TokenizeError::Unusable { path, problem }
        };
        match std::fs::metadata(name) {
            Err(error) => Err(unusable(error.to_string())),
            Ok(metadata) if metadata.is_dir() => {
                Err(unusable("it is a folder, not the file in it".into()))
            }
            Ok(_) => Ok(Tokenizer::File(Box::new(FileTokenizer::open(name)?))),
        }
    }

    /// Returns true if every byte is a token.
    pub fn is_bytes(&self) -> bool {
        matches!(self, Tokenizer::Bytes)
    }

    /// Returns its name in messages: the path of its file, or `bytes`.
    pub fn name(&self) -> &str {
        match self {
            Tokenizer::Bytes => "bytes",
            Tokenizer::File(file) => file.name(),
        }
    }

    /// Returns the name and the hash of the tokenizer, for checkpoints.
    pub fn record(&self) -> TokenizerRecord {
        match self {
            Tokenizer::Bytes => TokenizerRecord::bytes(),
            Tokenizer::File(file) => {
                TokenizerRecord { name: file.name().to_owned(), xxh3: Some(file.hash().to_owned()) }
            }
        }
    }

    /// Returns the vocabulary size, at least 1: every id is below it, and unused ids count.
    pub fn vocab(&self) -> usize {
        match self {
            Tokenizer::Bytes => 256,
            Tokenizer::File(file) => file.vocab(),
        }
    }

    /// Returns the id of `token`, which `flag` names in the spelling of the vocabulary; for bytes, a text of one byte.
    /// `id=N` is the id itself, as is a number that is no token.
    ///
    /// # Errors
    /// A token that does not exist, and a number that is both an id and another token.
    pub fn token_id(&self, flag: &'static str, token: &str) -> Result<u32, TokenizeError> {
        let number = token.strip_prefix("id=").unwrap_or(token);
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let own_id = number.parse().ok().filter(|_| is_number);
        let own_id = own_id.filter(|id: &u32| (*id as usize) < self.vocab());
        let (id, special) = match (self, token.as_bytes()) {
            _ if number != token => (own_id, Vec::new()),
            (Tokenizer::Bytes, [byte]) => (Some(u32::from(*byte)), Vec::new()),
            (Tokenizer::Bytes, _) => (None, Vec::new()),
            (Tokenizer::File(file), _) => (file.id(token), file.special_tokens()),
        };
        let id = match (id, own_id) {
            (Some(token_id), Some(id)) if token_id != id => {
                let (tokenizer, token) = (self.name().to_owned(), token.to_owned());
                return Err(TokenizeError::AmbiguousToken { flag, tokenizer, token, token_id, id });
            }
            (id, own_id) => id.or(own_id),
        };
        let hint = match (self, special.is_empty()) {
            _ if is_number => format!("its ids are below {}", self.vocab()),
            (Tokenizer::Bytes, _) => "give a single byte, or leave it out".to_owned(),
            (_, true) => "it has no special tokens, so leave it out".to_owned(),
            (_, false) => format!("its special tokens are {}", special.join(" ")),
        };
        id.ok_or_else(|| {
            let (tokenizer, token) = (self.name().to_owned(), token.to_owned());
            TokenizeError::NoSuchToken { flag, tokenizer, token, hint }
        })
    }

    /// Returns the token that ends texts, if the tokenizer states one: by a `tokenizer_config.json` beside the file, or
    /// else by one of the common names, such as `<|endoftext|>`.
    pub fn end_of_text(&self) -> Option<u32> {
        match self {
            Tokenizer::Bytes => None,
            Tokenizer::File(file) => file.end_of_text(),
        }
    }

    /// Returns the tokens after each document of a file of records: that which [ends texts](Self::end_of_text), if its
    /// id is below `vocab`, else those of a line break.
    ///
    /// # Errors
    /// A tokenizer without a token for a line break.
    pub fn default_end(&self, vocab: usize) -> Result<Vec<u32>, TokenizeError> {
        match self.end_of_text().filter(|id| (*id as usize) < vocab) {
            Some(id) => Ok(vec![id]),
            None => {
                let mut ids = self.encode(b"\n", "a line break", 0)?;
                ids.retain(|id| (*id as usize) < vocab);
                Ok(ids)
            }
        }
    }

    /// Returns the ids of a whole text. Adds nothing before or after it; text that spells a special token becomes that
    /// token.
    ///
    /// # Errors
    /// A tokenizer of random tokens, text that is not UTF-8, and text that the tokenizer has no token for; `name` is
    /// its name in messages, and `position` is the place of its first byte there. Bytes take anything.
    pub fn encode(
        &self,
        text: &[u8],
        name: &str,
        position: u64,
    ) -> Result<Vec<u32>, TokenizeError> {
        let Tokenizer::File(file) = self else {
            return Ok(text.iter().map(|byte| u32::from(*byte)).collect());
        };
        if let Some((setting, value)) = file.randomness() {
            let tokenizer = file.name().to_owned();
            return Err(TokenizeError::Random { tokenizer, setting, value });
        }
        let text = std::str::from_utf8(text).map_err(|error| TokenizeError::NotUtf8 {
            name: name.to_owned(),
            position: position + error.valid_up_to() as u64,
        })?;
        file.encode(text).map_err(|problem| {
            let (tokenizer, name) = (file.name().to_owned(), name.to_owned());
            TokenizeError::Encode { tokenizer, name, position, problem }
        })
    }

    /// Returns the index of the first byte of token `index` of a text.
    pub(super) fn byte_of_token(&self, text: &[u8], index: usize) -> u64 {
        match (self, std::str::from_utf8(text)) {
            (Tokenizer::File(file), Ok(text)) => file.byte_of_token(text, index) as u64,
            _ => index as u64,
        }
    }

    /// Decodes `ids` to text, special tokens included. Parts that are no text, such as half a character or an id that
    /// no token has, are replaced or left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        match self {
            Tokenizer::Bytes => {
                // 0xff is no part of any UTF-8 text.
                let byte = |id: &u32| u8::try_from(*id).unwrap_or(0xff);
                String::from_utf8_lossy(&ids.iter().map(byte).collect::<Vec<_>>()).into_owned()
            }
            Tokenizer::File(file) => file.decode(ids),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_their_values() {
        let bytes = Tokenizer::open(Path::new("bytes")).unwrap();
        assert_eq!((bytes.vocab(), bytes.name(), bytes.is_bytes()), (256, "bytes", true));
        assert_eq!(bytes.encode(b"A\xff\n", "text", 0).unwrap(), [65, 255, 10]);
        assert_eq!(bytes.decode(&[104, 105, 10, 300, 255]), "hi\n\u{fffd}\u{fffd}");
        assert_eq!(bytes.token_id("--eos", "\n").unwrap(), 10);
        assert_eq!(bytes.default_end(256).unwrap(), [10]);
        let text = bytes.token_id("--eos", "<eos>").unwrap_err().to_string();
        assert_eq!(text, "--eos: bytes has no token `<eos>`; give a single byte, or leave it out");
    }

    #[test]
    fn files_that_are_not_there_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let message = |path: &Path| Tokenizer::open(path).map(drop).unwrap_err().to_string();
        let text = message(&dir.path().join("none.json"));
        assert!(text.contains("none.json cannot be used: No such file"), "{text}");
        assert!(text.contains("use the tokenizer.json of a Hugging Face model"), "{text}");
        let text = message(dir.path());
        assert!(text.contains("it is a folder, not the file in it"), "{text}");
    }
}

#[cfg(all(test, not(feature = "tokenizers")))]
#[test]
fn missing_tokenizer_support_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, "{}").unwrap();
    let text = Tokenizer::open(&path).map(drop).unwrap_err().to_string();
    assert!(text.contains("--features tokenizers"), "{text}");
}
