//! Encoders of texts, which see the tokens on both sides: their uses, the labels of classifiers, and the traits by
//! which tasks train them.

mod classifiers;
mod labels;
mod models;
mod uses;

pub(crate) use classifiers::{sequence_classifier, token_classifier};
pub use labels::{ClassLabels, LabelKind};
pub use models::{MaskedModel, SequenceClassifier, TextEncoder, TokenClassifier};
pub use uses::{ClassOfSequence, ClassOfToken, EncoderUse, HeadKind, MaskedTokens, known_classes};
