//! Tasks of encoders of texts: masked tokens, classes of texts and of tokens, and numbers.

mod classification;
mod labels;
mod masked_lm;
mod masking;
mod regression;
mod texts;
mod token_classification;

use crate::models::{
    BertClassifier, BertMaskedLm, BertTokenClassifier, ModernBertClassifier, ModernBertMaskedLm,
    ModernBertTokenClassifier,
};

crate::tasks! {
    /// Tasks of encoders of texts.
    pub struct TextTasks:
        MaskedLm<BertMaskedLm>,
        MaskedLm<ModernBertMaskedLm>,
        Classification<BertClassifier>,
        Classification<ModernBertClassifier>,
        Regression<BertClassifier>,
        Regression<ModernBertClassifier>,
        TokenClassification<BertTokenClassifier>,
        TokenClassification<ModernBertTokenClassifier>;
}

pub use classification::{Classification, LabelFlags};
pub use labels::GivenLabels;
pub use masked_lm::{MaskFlags, MaskedLm};
pub use masking::MaskOptions;
pub use regression::{NumberFlags, Regression};
pub use texts::TextFields;
pub use token_classification::{TokenClassification, WordFlags};
