//! What cards can do at most, by their names.
//!
//! Figures are those of the makers' data sheets, without sparsity: the base of "model FLOPs utilisation".

use crate::backend::DType;

/// What one kind of card can do at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    /// Bf16 products with f32 sums on tensor cores, FLOP/s.
    pub bf16: f64,
    /// F32 outside of tensor cores, FLOP/s.
    pub f32: f64,
    /// Memory, bytes/s.
    pub bandwidth: f64,
}

/// Cards by what their name contains. The first that fits counts, so that more special names come first.
#[rustfmt::skip]
const CARDS: &[(&str, Peak)] = &[
    ("GB200",        peak(2500.0, 80.0, 8.0)),
    ("B200",         peak(2250.0, 75.0, 8.0)),
    ("B300",         peak(2250.0, 75.0, 8.0)),
    ("GH200",        peak(989.0, 67.0, 4.0)),
    ("H200 NVL",     peak(835.0, 60.0, 4.8)),
    ("H200",         peak(989.0, 67.0, 4.8)),
    ("H100 PCIe",    peak(756.0, 51.0, 2.0)),
    ("H100 NVL",     peak(835.0, 60.0, 3.9)),
    ("H100",         peak(989.0, 67.0, 3.35)),
    ("H800",         peak(989.0, 67.0, 3.35)),
    ("H20",          peak(148.0, 44.0, 4.0)),
    ("A100-PCIE-40", peak(312.0, 19.5, 1.555)),
    ("A100-SXM4-40", peak(312.0, 19.5, 1.555)),
    ("A100",         peak(312.0, 19.5, 2.0)),
    ("A800",         peak(312.0, 19.5, 2.0)),
    ("A30",          peak(165.0, 10.3, 0.933)),
    ("A10G",         peak(70.0, 31.5, 0.6)),
    ("A10",          peak(125.0, 31.2, 0.6)),
    ("A40",          peak(149.7, 37.4, 0.696)),
    ("L40S",         peak(362.0, 91.6, 0.864)),
    ("L40",          peak(181.0, 90.5, 0.864)),
    ("L4",           peak(121.0, 30.3, 0.3)),
];

/// From TFLOP/s, TFLOP/s and TB/s.
const fn peak(bf16: f64, f32: f64, bandwidth: f64) -> Peak {
    Peak { bf16: bf16 * 1e12, f32: f32 * 1e12, bandwidth: bandwidth * 1e12 }
}

/// What the card of this name can do at most; none where it is not known.
pub fn peak_of(name: &str) -> Option<Peak> {
    CARDS.iter().find(|(card, _)| contains_word(name, card)).map(|(_, peak)| *peak)
}

/// FLOP/s of matrix products of this dtype at most; none where the card is not known, or the dtype is not multiplied.
pub fn peak_flops(name: &str, dtype: DType) -> Option<f64> {
    let peak = peak_of(name)?;
    match dtype {
        DType::Bf16 => Some(peak.bf16),
        DType::F32 => Some(peak.f32),
        DType::U32 => None,
    }
}

/// Whether `word` is in `name` with no letter or digit before it, nor a digit or letter after it, but for the units of a
/// size as in "40GB".
fn contains_word(name: &str, word: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric();
    name.match_indices(word).any(|(at, _)| {
        let after = &name[at + word.len()..];
        let size = word.contains('-') && after.starts_with("GB");
        !name[..at].ends_with(inside) && (size || !after.starts_with(inside))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_known_by_the_names_that_drivers_give() {
        let tera = |name| peak_flops(name, DType::Bf16).map(|flops| flops / 1e12);
        for (name, bf16) in [
            ("NVIDIA H100 80GB HBM3", 989.0),
            ("NVIDIA H100 PCIe", 756.0),
            ("NVIDIA H200", 989.0),
            ("NVIDIA GH200 480GB", 989.0),
            ("NVIDIA A100-SXM4-80GB", 312.0),
            ("NVIDIA A100-SXM4-40GB", 312.0),
            ("NVIDIA A100-PCIE-40GB", 312.0),
            ("NVIDIA A100 80GB PCIe", 312.0),
            ("NVIDIA B200", 2250.0),
            ("NVIDIA GB200", 2500.0),
            ("NVIDIA L40S", 362.0),
            ("NVIDIA L40", 181.0),
            ("NVIDIA L4", 121.0),
            ("NVIDIA A10", 125.0),
            ("NVIDIA A10G", 70.0),
            ("NVIDIA H20", 148.0),
        ] {
            assert_eq!(tera(name), Some(bf16), "{name}");
        }
        assert_eq!(tera("NVIDIA A1000"), None);
        assert_eq!(tera("simulated"), None);
        assert_eq!(peak_of("NVIDIA A100-SXM4-40GB").unwrap().bandwidth, 1.555e12);
        assert_eq!(peak_of("NVIDIA H100 80GB HBM3").unwrap().bandwidth, 3.35e12);
        assert_eq!(peak_flops("NVIDIA H200", DType::F32), Some(67e12));
        assert_eq!(peak_flops("NVIDIA H200", DType::U32), None);
    }
}
