//! Tasks other than the next token, for [`TaskTrainer`](crate::train::TaskTrainer).

mod image_classification;
mod image_flags;

pub use image_classification::ImageClassification;
pub use image_flags::ImageFlags;
