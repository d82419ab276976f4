//! Replacement of `decode.rs` in a program that is built without the feature `images`.

use super::RgbImage;

impl RgbImage {
    /// Refuses every image.
    ///
    /// # Errors
    /// The feature that the program lacks.
    pub fn decode(_: &[u8]) -> Result<RgbImage, String> {
        let reason =
            "images need the feature `images`: build with cargo run --release --features images ..";
        Err(reason.to_owned())
    }
}
