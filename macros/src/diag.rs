//! Diagnostics: collection of all errors of an item, and suggestions for misspelled words.

use std::cell::RefCell;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// Collects the errors of one item, so that they are reported together.
///
/// Nothing in this crate stops at the first error. Each error is added here, and processing continues with the likely
/// intention; the entry points turn the collection into tokens at the end.
pub struct Ctxt {
    /// `None` after the errors were taken.
    errors: RefCell<Option<Vec<syn::Error>>>,
    /// The current field, for messages.
    field: RefCell<Option<String>>,
}

impl Ctxt {
    /// Creates an empty collection.
    pub fn new() -> Self {
        Self { errors: RefCell::new(Some(Vec::new())), field: RefCell::default() }
    }

    /// Runs `look` with errors prefixed by the name of the field.
    pub fn in_field<T>(&self, name: &impl std::fmt::Display, look: impl FnOnce() -> T) -> T {
        *self.field.borrow_mut() = Some(format!("field `{name}`: "));
        let found = look();
        *self.field.borrow_mut() = None;
        found
    }

    /// Adds an error that underlines all of `tokens`.
    pub fn error_at(&self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.add(syn::Error::new_spanned(tokens, self.named(message)));
    }

    /// Adds an error at `span`.
    pub fn error(&self, span: Span, message: impl std::fmt::Display) {
        self.add(syn::Error::new(span, self.named(message)));
    }

    /// Adds a parser error.
    pub fn push(&self, error: syn::Error) {
        let named =
            error.into_iter().map(|error| syn::Error::new(error.span(), self.named(&error)));
        named.for_each(|error| self.add(error));
    }

    fn named(&self, message: impl std::fmt::Display) -> String {
        format!("{}{message}", self.field.borrow().as_deref().unwrap_or_default())
    }

    fn add(&self, error: syn::Error) {
        if let Some(errors) = self.errors.borrow_mut().as_mut() {
            errors.push(error);
        }
    }

    /// The number of errors so far.
    pub fn n_errors(&self) -> usize {
        self.errors.borrow().as_ref().map_or(0, Vec::len)
    }

    /// Converts the errors to `compile_error!` calls; no tokens without errors.
    pub fn finish(self) -> TokenStream {
        self.take().iter().map(syn::Error::to_compile_error).collect()
    }

    /// Removes and returns the errors, in the order of addition.
    pub fn take(self) -> Vec<syn::Error> {
        self.errors.borrow_mut().take().unwrap_or_default()
    }
}

impl Drop for Ctxt {
    fn drop(&mut self) {
        let forgotten = self.errors.borrow().is_some();
        if forgotten && !std::thread::panicking() {
            panic!("the errors of a macro were never looked at");
        }
    }
}

/// Returns the candidate closest to `word`, if one is close enough to suggest.
///
/// A candidate is close if it needs few edits for the length of the word, or if one is a prefix of the other (`column`
/// for `col`).
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let lower = candidate.to_lowercase();
            let distance = typing_mistakes(&word, &lower);
            let tolerated = (word.len().max(lower.len()) / 3).max(1);
            let shared_start = word.len().min(lower.len()) >= 3
                && (word.starts_with(&lower) || lower.starts_with(&word));
            let one_letter = lower.len() == 1;
            (!one_letter && (distance <= tolerated || shared_start))
                .then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Formats `` expected `a`, `b` or `c`; did you mean `b`? ``.
pub fn expected(word: &str, candidates: &[&str]) -> String {
    let hint = match nearest(word, candidates.iter().copied()) {
        Some(close) if candidates.len() > 1 => format!("; did you mean `{close}`?"),
        _ => String::new(),
    };
    format!("expected {}{hint}", one_of(candidates.iter().copied()))
}

/// Formats `` `a`, `b` or `c` ``.
pub fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [init @ .., last] if !init.is_empty() => format!("{} or {last}", init.join(", ")),
        _ => words.concat(),
    }
}

/// Counts the insertions, deletions, substitutions and swaps of neighbors that turn `a` into `b` (optimal string
/// alignment distance).
fn typing_mistakes(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let substituted = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let edited = substituted.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped { edited.min(rows[i - 2][j - 2] + 1) } else { edited }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_closest_candidate() {
        let styles = ["col", "row", "vocab"];
        for (typed, meant) in [
            ("colum", Some("col")),
            ("column", Some("col")),
            ("cool", Some("col")),
            ("COL", Some("col")),
            ("rwo", Some("row")),
            ("rowwise", Some("row")),
            ("vocabulary", Some("vocab")),
            ("voacb", Some("vocab")),
            ("ring", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, styles), meant, "{typed}");
        }
    }

    #[test]
    fn lists_words_as_prose() {
        assert_eq!(one_of(["a"]), "`a`");
        assert_eq!(one_of(["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
