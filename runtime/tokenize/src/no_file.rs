//! Replacement of `file.rs` in a program that is built without the feature `tokenizers`.

use std::path::Path;

use super::TokenizeError;
use super::marked_text::{MarkedText, TextToMark};

/// Uninhabited replacement of the reader of `tokenizer.json` files.
pub enum FileTokenizer {}

impl FileTokenizer {
    pub(super) fn open(path: &Path) -> Result<FileTokenizer, TokenizeError> {
        Err(TokenizeError::NotBuilt { path: path.to_owned() })
    }

    pub(super) fn name(&self) -> &str {
        match *self {}
    }

    pub(super) fn hash(&self) -> &str {
        match *self {}
    }

    pub(super) fn vocab(&self) -> usize {
        match *self {}
    }

    pub(super) fn id(&self, _: &str) -> Option<u32> {
        match *self {}
    }

    pub(super) fn end_of_text(&self) -> Option<u32> {
        match *self {}
    }

    pub(super) fn special_tokens(&self) -> Vec<String> {
        match *self {}
    }

    pub(super) fn encode(&self, _: &str) -> Result<Vec<u32>, String> {
        match *self {}
    }

    pub(super) fn randomness(&self) -> Option<(&'static str, f64)> {
        match *self {}
    }

    pub(super) fn byte_of_token(&self, _: &str, _: usize) -> usize {
        match *self {}
    }

    pub(super) fn decode(&self, _: &[u32]) -> String {
        match *self {}
    }

    pub(super) fn special_ids(&self) -> Vec<u32> {
        match *self {}
    }

    pub(super) fn mask_token(&self) -> Option<u32> {
        match *self {}
    }

    pub(super) fn added_tokens(&self, _: bool) -> usize {
        match *self {}
    }

    pub(super) fn encode_marked(&self, _: TextToMark<'_>, _: usize) -> Result<MarkedText, String> {
        match *self {}
    }
}
