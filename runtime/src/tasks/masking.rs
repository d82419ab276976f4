//! Masked positions, drawn by the key of a row.

use crate::random;

/// The part of the tokens that is masked, and what they become.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaskOptions {
    /// The part of the tokens of a text that the model predicts.
    pub rate: f64,
    /// The part of these that become the mask; half of the others become random tokens, and the rest stays as it is.
    pub masked: f64,
}

/// 15 % of the tokens, as in [BERT](https://arxiv.org/abs/1810.04805), section 3.1: 80 % of them become the mask.
impl Default for MaskOptions {
    fn default() -> MaskOptions {
        MaskOptions { rate: 0.15, masked: 0.8 }
    }
}

impl MaskOptions {
    /// 30 % of the tokens; all become the mask, as in [ModernBERT](https://arxiv.org/abs/2412.13663), section
    /// 2.2.
    pub const ALL_MASK: MaskOptions = MaskOptions { rate: 0.3, masked: 1.0 };

    /// Returns the options, if they are in range.
    ///
    /// # Errors
    /// A rate that is 0 or above 1, and a part outside of 0 to 1.
    pub fn checked(self) -> Result<MaskOptions, String> {
        let MaskOptions { rate, masked } = self;
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(format!(
                "--mask-rate: the rate of masked tokens is {rate}, and must be above 0 and at most 1"
            ));
        }
        if !(0.0..=1.0).contains(&masked) {
            return Err(format!(
                "--masked-part: the part that becomes the mask is {masked}, and must be within 0 and 1"
            ));
        }
        Ok(self)
    }
}

/// The tokens of a vocabulary that masking needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskTokens {
    /// The mask.
    pub mask: u32,
    /// Special tokens, which are not predicted, in order.
    pub special: Vec<u32>,
    /// Number of ids, of which a random token is one.
    pub vocab: usize,
}

impl MaskTokens {
    /// Masks some of `ids`, and writes those that were there to `targets`. The draws follow from `key` and the
    /// position.
    pub fn mask(&self, options: MaskOptions, key: u64, ids: &mut [u32], targets: &mut [u32]) {
        for (position, (id, target)) in ids.iter_mut().zip(targets).enumerate() {
            if self.special.binary_search(id).is_ok() {
                continue;
            }
            let key = random::subkey(key, position as u64);
            let draw = |index: u64| unit(random::subkey(key, index));
            if draw(0) >= options.rate {
                continue;
            }
            *target = *id;
            let kind = draw(1);
            if kind < options.masked {
                *id = self.mask;
            } else if kind < options.masked + (1.0 - options.masked) / 2.0 {
                *id = (draw(2) * self.vocab as f64) as u32;
            }
        }
    }
}

/// Returns a number of at least 0 and below 1.
fn unit(key: u64) -> f64 {
    (key >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const IGNORED: u32 = u32::MAX;

    fn mask(options: MaskOptions, key: u64) -> (Vec<u32>, Vec<u32>) {
        let tokens = MaskTokens { mask: 3, special: vec![0, 1, 3], vocab: 50 };
        let mut ids: Vec<u32> = (0..10_000).map(|position| position % 50).collect();
        let mut targets = vec![IGNORED; ids.len()];
        tokens.mask(options, key, &mut ids, &mut targets);
        (ids, targets)
    }

    #[test]
    fn parts_are_those_of_the_options() {
        let (ids, targets) = mask(MaskOptions::default(), 7);
        let (mut predicted, mut masked, mut kept) = (0, 0, 0);
        for (position, (id, target)) in ids.iter().zip(&targets).enumerate() {
            let original = position as u32 % 50;
            if *target == IGNORED {
                assert_eq!(*id, original);
                continue;
            }
            assert!(*target == original && ![0, 1, 3].contains(&original));
            predicted += 1;
            masked += usize::from(*id == 3);
            kept += usize::from(*id == original);
        }
        // Of 9,400 tokens that are not special.
        assert!((1_300..1_520).contains(&predicted), "{predicted}");
        assert!((masked as f64 / predicted as f64 - 0.8).abs() < 0.04, "{masked} of {predicted}");
        assert!((kept as f64 / predicted as f64 - 0.1).abs() < 0.03, "{kept} of {predicted}");
        let (ids, targets) = mask(MaskOptions::ALL_MASK, 7);
        let predicted = targets.iter().filter(|target| **target != IGNORED).count();
        assert!((2_650..3_000).contains(&predicted), "{predicted}");
        assert!(ids.iter().zip(&targets).all(|(id, target)| *target == IGNORED || *id == 3));
    }

    #[test]
    fn draws_follow_from_the_key() {
        let options = MaskOptions::default();
        assert_eq!(mask(options, 1), mask(options, 1));
        assert_ne!(mask(options, 1), mask(options, 2));
    }

    #[test]
    fn options_out_of_range_are_refused() {
        for (rate, masked) in [(0.0, 0.8), (1.5, 0.8), (f64::NAN, 0.8), (0.1, -0.1), (0.1, 1.1)] {
            assert!(MaskOptions { rate, masked }.checked().is_err());
        }
        assert!(MaskOptions::ALL_MASK.checked().is_ok());
    }
}
