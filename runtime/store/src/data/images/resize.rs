//! Resizing as Pillow does: a filter that grows with the scale, in fixed point, first along rows, then along columns.

use super::RgbImage;

/// Filter of a resized image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resampling {
    /// A triangle, `1 - |x|`.
    Bilinear,
    /// A cubic with `a = -0.5` (Keys, 1981).
    Bicubic,
}

/// Bits behind the point of a weight: 8 bits of a pixel and 2 of overflow are left of 32.
const PRECISION: u32 = 32 - 8 - 2;

impl Resampling {
    /// Half of the width of the filter, in pixels of the larger image.
    fn support(self) -> f64 {
        match self {
            Resampling::Bilinear => 1.0,
            Resampling::Bicubic => 2.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        let x = x.abs();
        match self {
            Resampling::Bilinear => (1.0 - x).max(0.0),
            Resampling::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Resampling::Bicubic if x < 2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
            Resampling::Bicubic => 0.0,
        }
    }
}

/// Weights of a resized line.
struct Line {
    /// The first pixel that each pixel reads, and the weights of that and the next ones.
    reads: Vec<(usize, Vec<i32>)>,
}

impl Line {
    fn new(from: usize, to: usize, by: Resampling) -> Line {
        let scale = from as f64 / to as f64;
        let reduction = scale.max(1.0);
        let support = by.support() * reduction;
        let read = |pixel: usize| {
            let center = (pixel as f64 + 0.5) * scale;
            // Conversions to whole numbers that cut fractions off, as in Pillow.
            let first = (center - support + 0.5).max(0.0) as usize;
            let last = ((center + support + 0.5) as usize).min(from);
            let weight = |at: usize| by.weight((at as f64 - center + 0.5) * (1.0 / reduction));
            let weights: Vec<f64> = (first..last).map(weight).collect();
            let sum: f64 = weights.iter().sum();
            let fixed = |weight: f64| {
                let scaled = weight / sum * f64::from(1 << PRECISION);
                (scaled + 0.5_f64.copysign(scaled)) as i32
            };
            (first, weights.into_iter().map(fixed).collect())
        };
        Line { reads: (0..to).map(read).collect() }
    }
}

/// Half of a whole number, by which sums are rounded.
const HALF: i32 = 1 << (PRECISION - 1);

/// Returns the pixel of a sum of products.
fn rounded(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

impl RgbImage {
    /// Resizes the image, with antialiasing, as Pillow does.
    #[must_use]
    pub fn resized(&self, width: usize, height: usize, by: Resampling) -> RgbImage {
        let wide = if width == self.width() { self.clone() } else { resize_rows(self, width, by) };
        if height == self.height() { wide } else { resize_columns(&wide, height, by) }
    }
}

fn resize_rows(image: &RgbImage, width: usize, by: Resampling) -> RgbImage {
    let line = Line::new(image.width(), width, by);
    let mut pixels = Vec::with_capacity(3 * width * image.height());
    for row in image.pixels().chunks_exact(3 * image.width()) {
        let row = row.as_chunks::<3>().0;
        for (first, weights) in &line.reads {
            let mut sums = [HALF; 3];
            for (pixel, weight) in row[*first..].iter().zip(weights) {
                for (sum, value) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(*value) * weight;
                }
            }
            pixels.extend(sums.map(rounded));
        }
    }
    RgbImage::new(width, image.height(), pixels)
}

fn resize_columns(image: &RgbImage, height: usize, by: Resampling) -> RgbImage {
    let line = Line::new(image.height(), height, by);
    let row_len = 3 * image.width();
    let mut pixels = Vec::with_capacity(row_len * height);
    for (first, weights) in &line.reads {
        let mut sums = vec![HALF; row_len];
        let rows = image.pixels()[first * row_len..].chunks_exact(row_len);
        for (row, weight) in rows.zip(weights) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += i32::from(*value) * weight;
            }
        }
        pixels.extend(sums.into_iter().map(rounded));
    }
    RgbImage::new(image.width(), height, pixels)
}
