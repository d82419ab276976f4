//! Texts of examples as rows of an encoder.

use clap::Args;

use crate::data::{Example, RowStreams, RowWriter};
use crate::models::encoders::TextEncoder;
use crate::nn::layers::Padding;
use crate::train::{Rows, TaskSetup};
use meshwright_tokenize::{MarkedText, TextToMark, Tokenizer};

/// Fields of the texts of examples.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct TextFields {
    /// Field of the text in each example
    #[arg(long = "text-field", value_name = "NAME", default_value = "text")]
    pub text: String,
    /// Field of the second text, which examples may have
    #[arg(long = "pair-field", value_name = "NAME", default_value = "text_pair")]
    pub pair: String,
}

/// Everything that rows of texts need of a model and its tokenizer.
pub(super) struct TextRows {
    pub tokenizer: Tokenizer,
    /// Positions of a row.
    pub seq: usize,
    /// Number of token ids of the model.
    pub vocab: usize,
    /// Number of token types of the model.
    token_types: usize,
    /// The token that fills up a row.
    padding: u32,
}

impl TextFields {
    /// Returns the text of an example, or both of them.
    ///
    /// # Errors
    /// Fields that are missing or no texts.
    pub(super) fn texts<'a>(&self, example: &'a Example) -> Result<TextToMark<'a>, String> {
        let first = example.text(&self.text)?;
        Ok(match example.get(&self.pair) {
            Some(_) => TextToMark::Two(first, example.text(&self.pair)?),
            None => TextToMark::One(first),
        })
    }
}

/// Names of the streams.
pub(super) const IDS: &str = "ids";
pub(super) const TYPES: &str = "types";
pub(super) const LENGTH: &str = "length";
pub(super) const TARGETS: &str = "targets";

impl TextRows {
    /// Opens the tokenizer of a run.
    ///
    /// # Errors
    /// A run without one.
    pub(super) fn open<M: TextEncoder, F>(
        setup: &TaskSetup<'_, M::Config, F>,
    ) -> Result<TextRows, String> {
        let family = setup.family();
        Ok(TextRows {
            tokenizer: setup.tokenizer()?,
            seq: setup.seq(),
            vocab: M::vocab(family),
            token_types: M::token_types(family),
            padding: M::padding_token(family),
        })
    }

    /// Returns the streams of a text: its tokens, their types, and their number.
    pub(super) fn streams(&self) -> RowStreams {
        RowStreams::new()
            .ids(IDS, &[self.seq], self.vocab)
            .ids(TYPES, &[self.seq], self.token_types)
            .ids(LENGTH, &[], self.seq + 1)
    }

    /// Writes a text to a row, cut to its length, and returns its tokens.
    ///
    /// # Errors
    /// A text that cannot be tokenized or has no tokens, and tokens that the model does not have.
    pub(super) fn write(
        &self,
        text: TextToMark<'_>,
        row: &mut RowWriter<'_>,
    ) -> Result<MarkedText, String> {
        let marked = self.tokenizer.encode_marked(text, self.seq)?;
        if marked.own == 0 {
            return Err("the text has no tokens; leave the example out".into());
        }
        let len = marked.ids.len();
        if let Some(id) = marked.ids.iter().find(|id| **id as usize >= self.vocab) {
            return Err(format!(
                "the text has the token {id}, but the model has ids below {}; use the tokenizer of the model",
                self.vocab
            ));
        }
        let ids = row.ids(IDS);
        ids[..len].copy_from_slice(&marked.ids);
        ids[len..].fill(self.padding);
        // A model without types takes all tokens for one.
        let largest = self.token_types as u32 - 1;
        let types = row.ids(TYPES);
        types.fill(0);
        for (to, kind) in types.iter_mut().zip(&marked.types) {
            *to = (*kind).min(largest);
        }
        row.ids(LENGTH).fill(len as u32);
        Ok(marked)
    }
}

/// Returns the input of a model for rows of texts.
pub(super) fn text_input<M: TextEncoder>(rows: &Rows<'_>) -> M::In {
    let padding = Padding::of_lengths(&rows.tokens::<(M::Batch,)>(LENGTH));
    M::text_input(rows.tokens(IDS), rows.tokens(TYPES), padding)
}
