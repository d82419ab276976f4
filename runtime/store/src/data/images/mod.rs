//! Images as examples: their bytes, decoded, resized, cut, and normalized as `transformers` does.

#[cfg_attr(not(feature = "images"), path = "no_decode.rs")]
mod decode;
mod preprocessing;
mod resize;
mod rgb_image;
mod size_keys;
#[cfg(all(test, feature = "images"))]
mod tests;
mod training_view;

pub use preprocessing::ImagePreprocessing;
pub use resize::Resampling;
pub use rgb_image::RgbImage;
pub use training_view::TrainingView;
