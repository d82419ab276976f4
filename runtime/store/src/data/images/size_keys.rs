//! Sizes in a `preprocessor_config.json`.

use serde_json::Value;

use super::RgbImage;

/// Largest side of an image that is resized.
const MAX_SIDE: u64 = 1 << 14;

/// The size of a resized image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageSize {
    /// Width and height.
    Exact(usize, usize),
    /// Length of the shorter side. The ratio of the sides stays.
    ShortestEdge(usize),
}

impl ImageSize {
    /// Returns width and height of a resized image.
    pub fn of(self, image: &RgbImage) -> (usize, usize) {
        let (width, height) = (image.width(), image.height());
        match self {
            ImageSize::Exact(width, height) => (width, height),
            ImageSize::ShortestEdge(edge) if width <= height => (edge, edge * height / width),
            ImageSize::ShortestEdge(edge) => (edge * width / height, edge),
        }
    }
}

/// Reads a size: one number, `height` and `width`, or `shortest_edge`.
pub(super) fn read_size(key: &str, value: &Value) -> Result<ImageSize, String> {
    let side = |name: &str, value: &Value| match value.as_u64() {
        Some(side) if (1..=MAX_SIDE).contains(&side) => Ok(side as usize),
        _ => Err(format!("{name} must be a whole number of 1 to {MAX_SIDE}, not {value}")),
    };
    let Value::Object(sides) = value else {
        return side(key, value).map(|side| ImageSize::Exact(side, side));
    };
    let named =
        |name: &str| sides.get(name).map(|value| side(&format!("{key}.{name}"), value)).transpose();
    match (named("width")?, named("height")?, named("shortest_edge")?) {
        (Some(width), Some(height), None) => Ok(ImageSize::Exact(width, height)),
        (None, None, Some(edge)) if sides.len() == 1 => Ok(ImageSize::ShortestEdge(edge)),
        _ => Err(format!("{key} must have height and width, or shortest_edge, not {value}")),
    }
}

/// Reads a number; `default` if there is none.
pub(super) fn number_of(key: &str, value: Option<&Value>, default: f64) -> Result<f64, String> {
    match value {
        None | Some(Value::Null) => Ok(default),
        Some(value) => value.as_f64().ok_or_else(|| format!("{key} must be a number, not {value}")),
    }
}
