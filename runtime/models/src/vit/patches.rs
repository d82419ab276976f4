//! Patches of images.

use super::VitConfig;

/// Cuts an image into patches: `pixels[channel, row, column]`, row-major, to `patches[patch, value]`. Patches are in
/// rows from the top left, and the values of each are `[channel, row, column]`, as a convolution reads them.
///
/// # Panics
/// If either length is not that of the configuration.
pub fn cut_patches(config: &VitConfig, pixels: &[f32], patches: &mut [f32]) {
    let VitConfig { image_size: size, patch_size: patch, channels, .. } = *config;
    assert_eq!(pixels.len(), channels * size * size, "the values of an image");
    assert_eq!(patches.len(), pixels.len(), "the values of its patches");
    let across = size / patch;
    for (index, values) in patches.chunks_exact_mut(config.pixels()).enumerate() {
        let (top, left) = (index / across * patch, index % across * patch);
        for (line, values) in values.chunks_exact_mut(patch).enumerate() {
            let (channel, row) = (line / patch, top + line % patch);
            let start = (channel * size + row) * size + left;
            values.copy_from_slice(&pixels[start..start + patch]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_patch_are_ordered_by_channel() {
        let config =
            VitConfig { image_size: 4, patch_size: 2, channels: 2, ..VitConfig::default() };
        let pixels: Vec<f32> = (0..32).map(|value| value as f32).collect();
        let mut patches = vec![0.0; 32];
        cut_patches(&config, &pixels, &mut patches);
        assert_eq!(patches[..8], [0.0, 1.0, 4.0, 5.0, 16.0, 17.0, 20.0, 21.0]);
        assert_eq!(patches[8..12], [2.0, 3.0, 6.0, 7.0]);
        assert_eq!(patches[24..], [10.0, 11.0, 14.0, 15.0, 26.0, 27.0, 30.0, 31.0]);
    }
}
