//! Images in memory.

/// An image of red, green and blue, each of 0 to 255.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RgbImage {
    width: usize,
    height: usize,
    /// `[row, column, channel]`.
    pixels: Vec<u8>,
}

impl RgbImage {
    /// Creates an image of `pixels[row, column, channel]`, row-major.
    ///
    /// # Panics
    /// If it has no pixels, or another number of them.
    pub fn new(width: usize, height: usize, pixels: Vec<u8>) -> RgbImage {
        assert!(width > 0 && height > 0, "an image of {width} by {height} has no pixels");
        assert_eq!(pixels.len(), 3 * width * height, "an image of {width} by {height} in RGB");
        RgbImage { width, height, pixels }
    }

    /// The width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The values, `[row, column, channel]`, row-major.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Returns the part of `width` by `height` pixels from column `left` and row `top` on.
    ///
    /// # Panics
    /// If the image does not have it.
    #[must_use]
    pub fn part(&self, left: usize, top: usize, width: usize, height: usize) -> RgbImage {
        assert!(
            left + width <= self.width && top + height <= self.height,
            "{width} by {height} pixels from ({left}, {top}) on are not inside of {} by {}",
            self.width,
            self.height
        );
        let row = |row| {
            let start = 3 * (row * self.width + left);
            &self.pixels[start..start + 3 * width]
        };
        let pixels = (top..top + height).flat_map(row).copied().collect();
        RgbImage::new(width, height, pixels)
    }

    /// Returns the mirror image, left and right exchanged.
    #[must_use]
    pub fn mirrored(&self) -> RgbImage {
        let rows = self.pixels.chunks_exact(3 * self.width);
        let mirrored = rows.flat_map(|row| row.as_chunks::<3>().0.iter().rev().flatten());
        RgbImage::new(self.width, self.height, mirrored.copied().collect())
    }
}
