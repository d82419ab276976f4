//! Whether a run fits in memory, judged before anything is allocated.

use crate::checkpoint::hf::LlamaConfig;
use crate::layout::AxisSet;

use super::config::Config;
use super::{Error, Result};

/// Bytes that every parameter takes: value, gradient and the two moments of the optimiser, each in f32.
const BYTES_PER_PARAMETER: f64 = 16.0;

/// Refuses a run that needs more memory than the machine has available.
///
/// The estimate leaves out what it cannot know exactly (staging, logits, scratch), so what it refuses would not fit.
pub fn check(config: &Config, sizes: &LlamaConfig) -> Result<()> {
    match available() {
        Some(available) => check_against(available, config, sizes),
        None => Ok(()),
    }
}

fn check_against(available: f64, config: &Config, sizes: &LlamaConfig) -> Result<()> {
    let replicas = config.mesh.degree_of(AxisSet::DATA);
    let parameters = sizes.parameters();
    let state = parameters * BYTES_PER_PARAMETER * replicas as f64;
    let activations = activations(config, sizes);
    if state + activations <= available {
        return Ok(());
    }
    Err(Error::Input(format!(
        "not enough memory: the run needs at least {}, and {} are available. Parameters, gradients and optimiser take \
         {} ({:.3e} parameters x {BYTES_PER_PARAMETER} bytes x {replicas} data-parallel copies), the activations of a \
         step {} ({} x {} tokens, {} layers of width {}); use a smaller model, --batch or --seq, or more tp instead of \
         dp",
        bytes(state + activations),
        bytes(available),
        bytes(state),
        parameters,
        bytes(activations),
        config.batch,
        config.seq,
        sizes.layers,
        sizes.hidden,
    )))
}

/// Bytes that backward needs of every layer at the least, on all ranks together: the inputs of both norms, queries,
/// keys and values, the two factors of the gated feed-forward.
fn activations(config: &Config, sizes: &LlamaConfig) -> f64 {
    let size = |size: usize| size as f64;
    let heads = size(sizes.heads) + 2.0 * size(sizes.kv_heads);
    let of_token = 2.0 * size(sizes.hidden) + heads * size(sizes.head_dim) + 2.0 * size(sizes.ffn);
    size(config.batch) * size(config.seq) * size(sizes.layers) * of_token * 4.0
}

/// Bytes that can be had without swapping, where the system says so: of the machine, or of the control group that
/// this process is confined to.
fn available() -> Option<f64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok()?;
    let group: Option<f64> = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    Some(available_in(&machine)?.min(group.unwrap_or(f64::INFINITY)))
}

fn available_in(meminfo: &str) -> Option<f64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

/// `1.5 GB`, `20 TB`.
fn bytes(count: f64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut scaled, mut unit) = (count / 1e3, 0);
    while scaled >= 1000.0 && unit + 1 < units.len() {
        scaled /= 1e3;
        unit += 1;
    }
    match scaled {
        scaled if scaled < 10.0 => format!("{scaled:.1} {}", units[unit]),
        scaled => format!("{scaled:.0} {}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> LlamaConfig {
        LlamaConfig {
            hidden: 4,
            ffn: 6,
            layers: 2,
            heads: 2,
            kv_heads: 1,
            head_dim: 2,
            vocab: 10,
            norm_eps: 1e-5,
            rope_theta: 1e4,
            tied: false,
            max_positions: 8,
            bos: serde_json::Value::Null,
            eos: serde_json::Value::Null,
        }
    }

    #[test]
    fn what_cannot_fit_is_refused_with_the_numbers() {
        let config = Config::parse(["t", "--mesh", "dp=2", "--batch", "2", "--seq", "8"]).unwrap();
        let sizes = tiny();
        let listed: usize =
            sizes.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        assert_eq!(sizes.parameters(), listed as f64);
        // 16 tokens of 2 layers: 2 x 4 inputs, 4 x 2 of attention, 2 x 6 of the feed-forward.
        let activations = 16 * 2 * (8 + 8 + 12) * 4;
        let needed = (listed * 16 * 2 + activations) as f64;
        assert!(check_against(needed, &config, &sizes).is_ok());
        let text = check_against(needed - 1.0, &config, &sizes).unwrap_err().to_string();
        assert!(text.contains("needs at least 14 kB, and 14 kB are available"), "{text}");
        assert!(text.contains("x 16 bytes x 2 data-parallel copies"), "{text}");
    }

    #[test]
    fn the_systems_numbers_are_read() {
        let text = "MemTotal:  100 kB\nMemAvailable:   24576 kB\nBuffers: 1 kB\n";
        assert_eq!(available_in(text), Some(24576.0 * 1024.0));
        assert_eq!(available_in("MemTotal: 1 kB"), None);
        assert_eq!(bytes(1.5e9), "1.5 GB");
        assert_eq!(bytes(2e13), "20 TB");
        assert_eq!(bytes(3e22), "30000 EB");
    }
}
