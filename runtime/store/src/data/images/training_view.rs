//! Random views of images, for training.

use meshwright_core::random::subkey;

use super::{ImagePreprocessing, RgbImage};

/// Random changes of an image that is trained on. They follow from a key, so that they are the same on every mesh.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainingView {
    /// The smallest and the largest part of the area that is cut out, as `RandomResizedCrop` of `torchvision` does;
    /// `None` for whole images.
    pub area: Option<(f64, f64)>,
    /// True to exchange left and right of half of the images.
    pub mirrors: bool,
}

/// Smallest and largest ratio of width and height of a part.
const RATIOS: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

/// Parts that are tried, before the center is taken.
const TRIES: u64 = 10;

impl TrainingView {
    /// Returns the view of an image by a key, in the size of `steps`.
    ///
    /// # Errors
    /// As [`ImagePreprocessing::view`].
    pub fn of(
        &self,
        image: &RgbImage,
        steps: &ImagePreprocessing,
        key: u64,
    ) -> Result<RgbImage, String> {
        let part = self.area.and_then(|area| random_part(image, area, key));
        let view = match (part, steps.output_size()) {
            (Some([left, top, width, height]), Some((to_width, to_height))) => {
                let part = image.part(left, top, width, height);
                part.resized(to_width, to_height, steps.resampling)
            }
            _ => steps.view(image)?,
        };
        let is_mirrored = self.mirrors && unit(key, u64::MAX) < 0.5;
        Ok(if is_mirrored { view.mirrored() } else { view })
    }
}

/// Returns left, top, width and height of a random part; `None` if none fits.
fn random_part(image: &RgbImage, area: (f64, f64), key: u64) -> Option<[usize; 4]> {
    let (width, height) = (image.width() as f64, image.height() as f64);
    let between = |(low, high): (f64, f64), at: u64| low + (high - low) * unit(key, at);
    (0..TRIES).find_map(|attempt| {
        let first = 4 * attempt;
        let area = width * height * between(area, first);
        let ratio = between((RATIOS.0.ln(), RATIOS.1.ln()), first + 1).exp();
        let sides = [(area * ratio).sqrt(), (area / ratio).sqrt()].map(|side| side.round());
        let [part_width, part_height] = sides.map(|side| side as usize);
        let is_inside = (1..=image.width()).contains(&part_width)
            && (1..=image.height()).contains(&part_height);
        let place = |rest: usize, at: u64| {
            ((rest + 1) as f64 * unit(key, at)).floor().min(rest as f64) as usize
        };
        is_inside.then(|| {
            let left = place(image.width() - part_width, first + 2);
            let top = place(image.height() - part_height, first + 3);
            [left, top, part_width, part_height]
        })
    })
}

/// Returns a number of 0 to 1, by a key and a place.
fn unit(key: u64, at: u64) -> f64 {
    (subkey(key, at) >> 11) as f64 / (1u64 << 53) as f64
}
