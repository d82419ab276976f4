//! Texts of examples as ids of tokens.

use serde_json::Value;

use crate::data::{Example, Tokenizer};

/// Makes ids of the texts of examples, each with a token behind its end.
pub(super) struct Texts {
    tokenizer: Tokenizer,
    vocab: usize,
    /// The token behind the end of a text.
    end: u32,
    /// Texts that are too long are cut.
    cuts: bool,
}

impl Texts {
    /// Prepares texts of a model with this vocabulary. `end` is its `eos_token_id`: an id, or several, of which the first
    /// one ends texts; a null stands for the token of the tokenizer.
    ///
    /// # Errors
    /// No such token, one that the vocabulary does not have, and a tokenizer with more tokens than it.
    pub fn open(tokenizer: Tokenizer, vocab: usize, end: &Value) -> Result<Texts, String> {
        let of_file = match end {
            Value::Array(several) => several.first(),
            one => Some(one),
        };
        let of_file = of_file.and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
        let end = of_file.or_else(|| tokenizer.end_of_text()).ok_or_else(|| {
            format!(
                "config.json: eos_token_id is {end}, and the tokenizer {} states no token that ends texts; write its id \
                 there",
                tokenizer.name()
            )
        })?;
        if end as usize >= vocab {
            return Err(format!(
                "config.json: texts end with the token {end}, but the vocabulary has {vocab} tokens; correct \
                 eos_token_id"
            ));
        }
        Ok(Texts { tokenizer, vocab, end, cuts: false })
    }

    /// Sets whether texts that are too long are cut.
    pub fn cutting(self, cuts: bool) -> Texts {
        Texts { cuts, ..self }
    }

    /// Returns true if texts that are too long are cut.
    pub fn is_cutting(&self) -> bool {
        self.cuts
    }

    /// Returns the number of token ids of the model.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Returns the ids of the text in a field, which has at most as many as `flag` says, with its end.
    ///
    /// # Errors
    /// A field that is missing or no text, a text that the tokenizer cannot take, and one that is too long.
    pub fn ids(
        &self,
        example: &Example,
        field: &str,
        most: usize,
        flag: &str,
    ) -> Result<Vec<u32>, String> {
        self.ids_behind("", example.text(field)?, field, most, flag)
    }

    /// Returns the ids of `before` and a text, as [`ids`](Self::ids).
    ///
    /// # Errors
    /// As [`ids`](Self::ids).
    pub fn ids_behind(
        &self,
        before: &str,
        text: &str,
        field: &str,
        most: usize,
        flag: &str,
    ) -> Result<Vec<u32>, String> {
        let text = [before, text].concat();
        let encoded = self.tokenizer.encode(text.as_bytes(), field, 0);
        let mut ids = encoded.map_err(|error| error.to_string())?;
        if ids.last() != Some(&self.end) {
            ids.push(self.end);
        }
        if ids.len() > most {
            if !self.cuts {
                return Err(format!(
                    "`{field}` has {} tokens, and {flag} is {most}: raise it, or cut longer texts by `--cut-texts`",
                    ids.len()
                ));
            }
            ids.truncate(most);
            ids[most - 1] = self.end;
        }
        Ok(ids)
    }
}

impl std::fmt::Debug for Texts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "texts of {}, which end with {}", self.tokenizer.name(), self.end)
    }
}
