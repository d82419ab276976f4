//! Advice for a run that does not fit in memory.

use crate::layout::AxisSet;
use crate::nn::RecomputeOverride;
use crate::tensor::ZeroStage;

use super::Config;

/// Lists settings that take less memory, in the order in which to try them.
pub fn memory_advice(config: &Config) -> String {
    let mut ways = Vec::new();
    let sequences = config.batch / config.mesh.degree_of(AxisSet::DATA);
    if config.micro_batches < sequences {
        ways.push("more --micro-batches");
    }
    if config.recompute != Some(RecomputeOverride::Full) {
        ways.push("--recompute full");
    }
    if config.mesh.degree_of(AxisSet::ZERO) > 1 && config.zero < ZeroStage::Parameters {
        ways.push("a higher --zero");
    }
    ways.extend(["more fsdp or tp ranks", "a smaller --batch or --seq", "a smaller model"]);
    let last = ways.pop().unwrap_or_default();
    format!("to use less memory: {} or {last}", ways.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applied_settings_are_not_advised() {
        let of = |line: &str| {
            let line = format!("t --batch 2 --seq 8 {line}");
            memory_advice(&Config::parse(line.split(' ')).unwrap())
        };
        let last = "a smaller --batch or --seq or a smaller model";
        let more = "more fsdp or tp ranks";
        assert_eq!(
            of("--mesh 1 --recompute full --micro-batches 2"),
            format!("to use less memory: {more}, {last}")
        );
        assert_eq!(
            of("--mesh fsdp=2 --zero 1"),
            format!("to use less memory: --recompute full, a higher --zero, {more}, {last}")
        );
        assert_eq!(
            of("--mesh fsdp=1 --recompute full"),
            format!("to use less memory: more --micro-batches, {more}, {last}")
        );
    }
}
