//! Log-mel spectrograms of sound, as the feature extractor of a Whisper computes them.

use std::f64::consts::TAU;
use std::ops::Range;

/// Samples in a second.
pub(super) const RATE: usize = 16_000;

/// Samples of a window, whose frequencies are multiples of 40 Hz.
const WINDOW: usize = 400;

/// Samples from one frame to the next.
const HOP: usize = 160;

/// Frequencies of a window.
const BINS: usize = WINDOW / 2 + 1;

/// Computes log-mel spectrograms of clips of one length ([Radford et al. 2022](https://arxiv.org/abs/2212.04356),
/// section 2.2), as `WhisperFeatureExtractor` of `transformers`.
///
/// A Hann window of 400 samples (25 ms) moves by 160 samples (10 ms). Its power spectrum is summed by triangles of
/// equal width on the mel scale of Slaney, and the logarithm of the sums is limited to 8 decades below the largest of
/// the clip.
#[derive(Debug, Clone)]
pub struct LogMel {
    frames: usize,
    window: Vec<f64>,
    /// `exp(-2 pi i k / WINDOW)`.
    roots: Vec<Complex>,
    /// The weights of the frequencies of each bin.
    bins: Vec<(Range<usize>, Vec<f64>)>,
}

/// Real and imaginary part.
type Complex = [f64; 2];

impl LogMel {
    /// Samples in a second: 16,000.
    pub const RATE: usize = RATE;

    /// Samples of a window: 400.
    pub const WINDOW: usize = WINDOW;

    /// Samples from one frame to the next: 160.
    pub const HOP: usize = HOP;

    /// Prepares spectrograms of `mels` bins and `frames` frames: of clips of `160 * frames` samples, 3000 frames for 30
    /// seconds.
    ///
    /// # Panics
    /// If there are no bins or less than two frames.
    pub fn new(mels: usize, frames: usize) -> LogMel {
        assert!(mels > 0 && frames > 1, "a spectrogram of {frames} frames and {mels} bins");
        let turn = |index: usize| TAU * index as f64 / WINDOW as f64;
        let window = (0..WINDOW).map(|index| 0.5 - 0.5 * turn(index).cos()).collect();
        let roots = (0..WINDOW).map(|index| [turn(index).cos(), -turn(index).sin()]).collect();
        LogMel { frames, window, roots, bins: mel_bins(mels) }
    }

    /// Returns the number of samples of a clip, at 16 kHz.
    pub fn samples(&self) -> usize {
        self.frames * HOP
    }

    /// Computes the spectrogram `[frames, mels]` of mono sound at 16 kHz, with samples in -1 to 1. A shorter clip is
    /// padded with silence, and the end of a longer one is left out.
    pub fn compute(&self, sound: &[f32]) -> Vec<f32> {
        let sound = &sound[..sound.len().min(self.samples())];
        let mut decades: Vec<f64> = Vec::with_capacity(self.frames * self.bins.len());
        for frame in 0..self.frames {
            let power = self.power(sound, frame * HOP);
            let sum = |(range, weights): &(Range<usize>, Vec<f64>)| {
                let products = power[range.clone()].iter().zip(weights).map(|(x, y)| x * y);
                products.sum::<f64>().max(1e-10).log10()
            };
            decades.extend(self.bins.iter().map(sum));
        }
        let largest = decades.iter().copied().fold(f64::MIN, f64::max);
        decades.iter().map(|x| ((x.max(largest - 8.0) + 4.0) / 4.0) as f32).collect()
    }

    /// Returns the power spectrum of the window around the sample `center`.
    fn power(&self, sound: &[f32], center: usize) -> [f64; BINS] {
        let mut power = [0.0; BINS];
        let first = center as isize - (WINDOW / 2) as isize;
        let last = self.samples() as isize - 1;
        let mut windowed = [[0.0; 2]; WINDOW];
        for (index, (to, weight)) in windowed.iter_mut().zip(&self.window).enumerate() {
            // The clip is continued by its reflections, without its first or last sample.
            let at = (first + index as isize).unsigned_abs();
            let at = at.min((2 * last).unsigned_abs().saturating_sub(at));
            to[0] = sound.get(at).map_or(0.0, |sample| f64::from(*sample) * weight);
        }
        if windowed.iter().all(|sample| sample[0] == 0.0) {
            return power;
        }
        let mut spectrum = [[0.0; 2]; WINDOW];
        transform(&windowed, 1, &mut spectrum, &self.roots);
        for (power, [re, im]) in power.iter_mut().zip(spectrum) {
            *power = re * re + im * im;
        }
        power
    }
}

/// Computes the Fourier transform of every `stride`-th element of `from`, by factors of 5 and 2 (Cooley and Tukey, "An
/// algorithm for the machine calculation of complex Fourier series", 1965).
fn transform(from: &[Complex], stride: usize, to: &mut [Complex], roots: &[Complex]) {
    if let [to] = to {
        *to = from[0];
        return;
    }
    let radix = if to.len().is_multiple_of(5) { 5 } else { 2 };
    let len = to.len() / radix;
    for (index, part) in to.chunks_mut(len).enumerate() {
        transform(&from[index * stride..], stride * radix, part, roots);
    }
    for first in 0..len {
        let parts: [Complex; 5] =
            std::array::from_fn(
                |part| if part < radix { to[part * len + first] } else { [0.0; 2] },
            );
        for at in (0..radix).map(|part| part * len + first) {
            let mut sum = [0.0; 2];
            for (part, [re, im]) in parts[..radix].iter().enumerate() {
                let [cos, sin] = roots[part * at * stride % roots.len()];
                sum = [sum[0] + re * cos - im * sin, sum[1] + re * sin + im * cos];
            }
            to[at] = sum;
        }
    }
}

/// Returns the weights of the frequencies in each of `mels` triangles, whose areas are equal.
fn mel_bins(mels: usize) -> Vec<(Range<usize>, Vec<f64>)> {
    let nyquist = RATE as f64 / 2.0;
    let corner = |index: usize| hertz(mel(nyquist) * index as f64 / (mels + 1) as f64);
    let frequency = |bin: usize| nyquist * bin as f64 / (BINS - 1) as f64;
    let triangle = |index: usize| {
        let [left, middle, right] = [0, 1, 2].map(|further| corner(index + further));
        let weight = |bin: usize| {
            let (up, down) = (frequency(bin) - left, right - frequency(bin));
            (up / (middle - left)).min(down / (right - middle)).max(0.0) * 2.0 / (right - left)
        };
        let weights: Vec<f64> = (0..BINS).map(weight).collect();
        let first = weights.iter().position(|weight| *weight > 0.0).unwrap_or(0);
        let end = weights.iter().rposition(|weight| *weight > 0.0).map_or(first, |last| last + 1);
        (first..end, weights[first..end].to_vec())
    };
    (0..mels).map(triangle).collect()
}

/// Mels of 1000 Hz, below which the scale is linear.
const LINEAR: f64 = 15.0;

/// Steps of the scale in which the frequency grows by a factor `e`, above 1000 Hz.
fn steps() -> f64 {
    27.0 / 6.4_f64.ln()
}

/// Returns the mels of a frequency on the scale of Slaney ("Auditory Toolbox", 1998).
fn mel(hertz: f64) -> f64 {
    if hertz < 1000.0 { hertz * LINEAR / 1000.0 } else { LINEAR + (hertz / 1000.0).ln() * steps() }
}

/// Returns the frequency of a number of mels.
fn hertz(mel: f64) -> f64 {
    if mel < LINEAR { mel * 1000.0 / LINEAR } else { 1000.0 * ((mel - LINEAR) / steps()).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_follow_the_definition() {
        let log_mel = LogMel::new(80, 2);
        let input: Vec<Complex> = (0..WINDOW).map(|i| [(i * i % 37) as f64 - 18.0, 0.0]).collect();
        let mut found = vec![[0.0; 2]; WINDOW];
        transform(&input, 1, &mut found, &log_mel.roots);
        for (k, [re, im]) in found.into_iter().enumerate() {
            let sum = |part: usize| -> f64 {
                let of = |(i, [x, _]): (usize, &Complex)| x * log_mel.roots[i * k % WINDOW][part];
                input.iter().enumerate().map(of).sum()
            };
            assert!((re - sum(0)).abs() < 1e-9 && (im - sum(1)).abs() < 1e-9, "{k}");
        }
    }

    #[test]
    fn scales_are_inverse() {
        for frequency in [0.0, 440.0, 999.0, 1000.0, 4000.0, 8000.0] {
            assert!((hertz(mel(frequency)) - frequency).abs() < 1e-9, "{frequency}");
        }
    }

    /// The end of a long clip is left out, and a short one is padded.
    #[test]
    fn clips_have_one_length() {
        let log_mel = LogMel::new(80, 10);
        let sound: Vec<f32> = (0..2000).map(|i| (i as f32 * 0.3).sin() * 0.1).collect();
        let found = log_mel.compute(&sound);
        assert_eq!(found.len(), 800);
        assert_eq!(found, log_mel.compute(&sound[..1600]));
        let padded = [&sound[..700], &[0.0; 900]].concat();
        assert_eq!(log_mel.compute(&sound[..700]), log_mel.compute(&padded));
        assert!(log_mel.compute(&[]).iter().all(|x| (x + 1.5).abs() < 1e-6));
    }
}
