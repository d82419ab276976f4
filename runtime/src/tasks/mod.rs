//! Tasks other than the next token, for [`TaskTrainer`](crate::train::TaskTrainer).

mod classification;
mod image_classification;
mod image_flags;
mod labels;
mod masked_lm;
mod masking;
mod regression;
mod seq2seq;
mod texts;
mod token_classification;

use crate::models::{
    BertClassifier, BertMaskedLm, BertTokenClassifier, ModernBertClassifier, ModernBertMaskedLm,
    ModernBertTokenClassifier,
};

crate::tasks! {
    /// All tasks of the library, each with the models that it trains.
    pub struct Tasks:
        MaskedLm<BertMaskedLm>,
        MaskedLm<ModernBertMaskedLm>,
        Classification<BertClassifier>,
        Classification<ModernBertClassifier>,
        Regression<BertClassifier>,
        Regression<ModernBertClassifier>,
        TokenClassification<BertTokenClassifier>,
        TokenClassification<ModernBertTokenClassifier>,
        ImageClassification,
        Seq2Seq,
        SpeechToText;
}

pub use classification::{Classification, LabelFlags};
pub use image_classification::ImageClassification;
pub use image_flags::ImageFlags;
pub use labels::GivenLabels;
pub use masked_lm::{MaskFlags, MaskedLm};
pub use masking::MaskOptions;
pub use regression::{NumberFlags, Regression};
pub use seq2seq::{Seq2Seq, Seq2SeqFlags, SpeechFlags, SpeechToText};
pub use texts::TextFields;
pub use token_classification::{TokenClassification, WordFlags};
