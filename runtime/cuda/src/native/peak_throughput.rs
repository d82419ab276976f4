//! Peak throughput of GPUs by name.
//!
//! Figures come from the vendors' data sheets, without sparsity: the base of model FLOPs utilization (MFU).

use meshwright_backend::DType;

/// Peak throughput of one GPU model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeakThroughput {
    /// Bf16 tensor-core matmul with f32 accumulation, FLOP/s.
    pub bf16: f64,
    /// F32 without tensor cores, FLOP/s.
    pub f32: f64,
    /// Memory bandwidth, bytes/s.
    pub bandwidth: f64,
}

/// GPUs by a part of their name. The first match counts, so more specific names come first.
#[rustfmt::skip]
const GPUS: &[(&str, PeakThroughput)] = &[
    ("GB200",        peak_rates(2500.0, 80.0, 8.0)),
    ("B200",         peak_rates(2250.0, 75.0, 8.0)),
    ("B300",         peak_rates(2250.0, 75.0, 8.0)),
    ("GH200",        peak_rates(989.0, 67.0, 4.0)),
    ("H200 NVL",     peak_rates(835.0, 60.0, 4.8)),
    ("H200",         peak_rates(989.0, 67.0, 4.8)),
    ("H100 PCIe",    peak_rates(756.0, 51.0, 2.0)),
    ("H100 NVL",     peak_rates(835.0, 60.0, 3.9)),
    ("H100",         peak_rates(989.0, 67.0, 3.35)),
    ("H800",         peak_rates(989.0, 67.0, 3.35)),
    ("H20",          peak_rates(148.0, 44.0, 4.0)),
    ("A100-PCIE-40", peak_rates(312.0, 19.5, 1.555)),
    ("A100-SXM4-40", peak_rates(312.0, 19.5, 1.555)),
    ("A100",         peak_rates(312.0, 19.5, 2.0)),
    ("A800",         peak_rates(312.0, 19.5, 2.0)),
    ("A30",          peak_rates(165.0, 10.3, 0.933)),
    ("A10G",         peak_rates(70.0, 31.5, 0.6)),
    ("A10",          peak_rates(125.0, 31.2, 0.6)),
    ("A40",          peak_rates(149.7, 37.4, 0.696)),
    ("L40S",         peak_rates(362.0, 91.6, 0.864)),
    ("L40",          peak_rates(181.0, 90.5, 0.864)),
    ("L4",           peak_rates(121.0, 30.3, 0.3)),
];

/// Creates a peak from TFLOP/s, TFLOP/s and TB/s.
const fn peak_rates(bf16: f64, f32: f64, bandwidth: f64) -> PeakThroughput {
    PeakThroughput { bf16: bf16 * 1e12, f32: f32 * 1e12, bandwidth: bandwidth * 1e12 }
}

/// Returns the peak throughput of a GPU by name; `None` if the GPU is unknown.
pub fn peak_of(name: &str) -> Option<PeakThroughput> {
    GPUS.iter().find(|(part, _)| contains_word(name, part)).map(|(_, peak)| *peak)
}

/// Returns the peak matmul FLOP/s for a dtype; `None` if the GPU is unknown or the dtype has no matmul.
pub fn peak_flops(name: &str, dtype: DType) -> Option<f64> {
    let peak = peak_of(name)?;
    match dtype {
        DType::Bf16 => Some(peak.bf16),
        DType::F32 => Some(peak.f32),
        DType::U32 | DType::F64 => None,
    }
}

/// Returns true if `word` is in `name` without an adjacent letter or digit, except for a memory size such as "40GB".
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
    fn gpus_are_known_by_their_driver_names() {
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
