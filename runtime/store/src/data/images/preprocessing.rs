//! `preprocessor_config.json`: sizes and numbers of images for a model.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::data::read_preprocessing;

use super::size_keys::{ImageSize, number_of, read_size};
use super::{Resampling, RgbImage};

/// Steps from an image to the numbers that a model reads, as `transformers` makes them: resized,
/// cut at the center, scaled and normalized.
#[derive(Debug, Clone, PartialEq)]
pub struct ImagePreprocessing {
    /// `size`: the size after the first step; `None` for images as they are (`do_resize`).
    pub(super) size: Option<ImageSize>,
    /// `resample`.
    pub(super) resampling: Resampling,
    /// `crop_size`: width and height of the part at the center, if `do_center_crop`.
    pub(super) crop: Option<(usize, usize)>,
    /// `rescale_factor`: what each value is multiplied by, if `do_rescale`.
    rescale: f64,
    /// `image_mean` and `image_std` of red, green and blue, if `do_normalize`.
    normalization: [(f32, f32); 3],
}

impl ImagePreprocessing {
    /// Images of `size` by `size` with values of -1 to 1, as those of `google/vit-base-patch16-224`.
    pub fn of_size(size: usize) -> ImagePreprocessing {
        ImagePreprocessing {
            size: Some(ImageSize::Exact(size, size)),
            resampling: Resampling::Bilinear,
            crop: None,
            rescale: 1.0 / 255.0,
            normalization: [(0.5, 0.5); 3],
        }
    }

    /// Reads the `preprocessor_config.json` of a folder; `None` if it has none.
    ///
    /// # Errors
    /// A file that cannot be read, and a step that is not implemented here, in a message with the file and the key.
    pub fn of_folder(folder: &Path) -> Result<Option<ImagePreprocessing>, String> {
        read_preprocessing(folder, ImagePreprocessing::of_keys)
    }

    /// Reads the keys of a `preprocessor_config.json`. Absent keys have the values of a ViT.
    ///
    /// # Errors
    /// A step that is not implemented here, and values of another type, in a message that begins with the key.
    pub fn of_keys(keys: &Map<String, Value>) -> Result<ImagePreprocessing, String> {
        let is_on = |key: &str, default: bool| match keys.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(is_on)) => Ok(*is_on),
            Some(other) => Err(format!("{key} must be true or false, not {other}")),
        };
        const STEPS: [&str; 5] =
            ["do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb"];
        for key in keys.keys().filter(|key| key.starts_with("do_")) {
            if !STEPS.contains(&key.as_str()) && is_on(key, false)? {
                return Err(format!("{key} is true; this step is not implemented"));
            }
        }
        let square = json!({ "height": 224, "width": 224 });
        let size_at = |key: &str| read_size(key, keys.get(key).unwrap_or(&square));
        let size = if is_on("do_resize", true)? { Some(size_at("size")?) } else { None };
        let crop = if is_on("do_center_crop", false)? {
            match size_at("crop_size")? {
                ImageSize::Exact(width, height) => Some((width, height)),
                ImageSize::ShortestEdge(_) => {
                    return Err("crop_size must have height and width".to_owned());
                }
            }
        } else {
            None
        };
        let rescale = if is_on("do_rescale", true)? {
            number_of("rescale_factor", keys.get("rescale_factor"), 1.0 / 255.0)?
        } else {
            1.0
        };
        let normalization = if is_on("do_normalize", true)? {
            let [means, deviations] =
                ["image_mean", "image_std"].map(|key| of_channels(key, keys.get(key)));
            let (means, deviations) = (means?, deviations?);
            if deviations.contains(&0.0) {
                return Err("image_std has a 0, by which no value can be divided".to_owned());
            }
            std::array::from_fn(|channel| (means[channel], deviations[channel]))
        } else {
            [(0.0, 1.0); 3]
        };
        let resampling = match keys.get("resample").and_then(Value::as_u64) {
            Some(3) => Resampling::Bicubic,
            Some(2) => Resampling::Bilinear,
            None if keys.get("resample").is_none_or(Value::is_null) => Resampling::Bilinear,
            _ => {
                let found = &keys["resample"];
                return Err(format!(
                    "resample is {found}; only 2 (bilinear) and 3 (bicubic) are supported"
                ));
            }
        };
        Ok(ImagePreprocessing { size, resampling, crop, rescale, normalization })
    }

    /// Returns width and height of all results; `None` if they depend on the image.
    pub fn output_size(&self) -> Option<(usize, usize)> {
        match (self.crop, self.size) {
            (Some(crop), _) => Some(crop),
            (None, Some(ImageSize::Exact(width, height))) => Some((width, height)),
            _ => None,
        }
    }

    /// Resizes an image and cuts its center.
    ///
    /// # Errors
    /// An image that is smaller than what is cut.
    pub fn view(&self, image: &RgbImage) -> Result<RgbImage, String> {
        let resized = match self.size.map(|size| size.of(image)) {
            Some((width, height)) => image.resized(width, height, self.resampling),
            None => image.clone(),
        };
        let Some((width, height)) = self.crop else { return Ok(resized) };
        if resized.width() < width || resized.height() < height {
            return Err(format!(
                "the image has {} by {} pixels after it is resized, but {width} by {height} are cut out of it \
                 (crop_size); give a larger size",
                resized.width(),
                resized.height()
            ));
        }
        let [left, top] = [resized.width() - width, resized.height() - height].map(|rest| rest / 2);
        Ok(resized.part(left, top, width, height))
    }

    /// Writes the numbers of an image to `values[channel, row, column]`, row-major.
    ///
    /// # Panics
    /// If `values` has another length.
    pub fn write(&self, image: &RgbImage, values: &mut [f32]) {
        assert_eq!(values.len(), image.pixels().len(), "the values of an image");
        let area = image.width() * image.height();
        for (channel, values) in values.chunks_exact_mut(area).enumerate() {
            let (mean, deviation) = self.normalization[channel];
            let number = |pixel: u8| ((f64::from(pixel) * self.rescale) as f32 - mean) / deviation;
            let table: Vec<f32> = (0..=255).map(number).collect();
            let pixels = image.pixels().iter().skip(channel).step_by(3);
            for (value, pixel) in values.iter_mut().zip(pixels) {
                *value = table[usize::from(*pixel)];
            }
        }
    }
}

/// Reads a number for each channel, or one for all; 0.5 if there is none.
fn of_channels(key: &str, value: Option<&Value>) -> Result<[f32; 3], String> {
    let wrong = |found: &Value| Err(format!("{key} must be 3 numbers, not {found}"));
    match value {
        None | Some(Value::Null) => Ok([0.5; 3]),
        Some(list @ Value::Array(items)) => {
            let numbers: Option<Vec<f64>> = items.iter().map(Value::as_f64).collect();
            match numbers.as_deref() {
                Some([r, g, b]) => Ok([*r, *g, *b].map(|number| number as f32)),
                _ => wrong(list),
            }
        }
        Some(one) => one.as_f64().map_or_else(|| wrong(one), |number| Ok([number as f32; 3])),
    }
}
