//! Uses of an encoder.

use std::fmt::Debug;

use meshwright_store::checkpoint::hf::HfKeys;

/// The head of an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind {
    /// Predicts tokens that are masked.
    MaskedTokens,
    /// Predicts a label of each text.
    Sequence,
    /// Predicts a label of each token.
    Token,
}

/// The use of an encoder: a parameter of its configuration, since folders of other uses have other heads.
pub trait EncoderUse: Clone + Debug + Default + PartialEq + Send + Sync + 'static {
    /// The head.
    const KIND: HeadKind;
}

/// The use of an encoder that predicts masked tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MaskedTokens;

/// The use of an encoder that predicts a label, or a number, of each text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassOfSequence;

/// The use of an encoder that predicts a label of each token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassOfToken;

impl EncoderUse for MaskedTokens {
    const KIND: HeadKind = HeadKind::MaskedTokens;
}

impl EncoderUse for ClassOfSequence {
    const KIND: HeadKind = HeadKind::Sequence;
}

impl EncoderUse for ClassOfToken {
    const KIND: HeadKind = HeadKind::Token;
}

/// Marks `architectures` as known if all classes of a file are among `known`: training may begin with the encoder of a
/// folder that has another head.
pub fn known_classes(keys: &HfKeys<'_>, known: &[&str]) {
    const KEY: &str = "architectures";
    let Some(settings) = keys.settings() else { return };
    let found = settings.entries().find(|(key, _)| *key == KEY);
    let classes = found.and_then(|(_, classes)| classes.as_array()).into_iter().flatten();
    if classes.into_iter().all(|class| class.as_str().is_some_and(|name| known.contains(&name))) {
        settings.ignore(&[KEY]);
    }
}
