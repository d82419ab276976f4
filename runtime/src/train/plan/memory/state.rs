//! Memory of parameters, gradients and optimizer state, before the model is declared.
//!
//! Bytes per parameter on each rank, with `N` ranks along `fsdp`, `ep` and `cp` and AdamW; in bf16, the values that
//! layers read have 2 bytes, and the optimizer keeps master weights of 4:
//!
//! | ZeRO stage | f32: values + gradient + optimizer | | bf16 | |
//! |---|---|---|---|---|
//! | 0 | 4 + 4 + 8 | 16 | 2 + 4 + 12 | 18 |
//! | 1 | 4 + 4 + 8/N | 8 + 8/N | 2 + 4 + 12/N | 6 + 12/N |
//! | 2 | 4 + 4/N + 8/N | 4 + 12/N | 2 + 4/N + 12/N | 2 + 16/N |
//! | 3 | 4/N + 4/N + 8/N | 16/N | 2/N + 4/N + 12/N | 18/N |
//!
//! Each state that the [`UpdateRule`](crate::optim::UpdateRule) keeps of a parameter adds 4 bytes (two for AdamW), and
//! so does a moving average of the parameters; both are sharded as the optimizer is. Replicas that train apart keep two
//! more: the parameters after the last synchronization, and the outer momentum.

use crate::layout::AxisSet;
use crate::optim::Group;
use crate::tensor::ZeroStage;
use crate::train::config::Config;

/// Bytes of an f32.
const F32: u64 = 4;

/// Bytes of each rank's state.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StateBytes {
    pub parameters: f64,
    pub gradients: f64,
    pub optimizer: f64,
}

impl StateBytes {
    /// Returns the bytes of one parameter on each rank if everything divides evenly and all parameters are in the group
    /// with the fewest states.
    pub fn per_parameter(config: &Config) -> StateBytes {
        let settings = config.settings();
        let shards = config.mesh.degree_of(AxisSet::ZERO) as f64;
        let share = |stage: ZeroStage| if config.zero >= stage { 1.0 / shards } else { 1.0 };
        let rule = config.optimizer.rule();
        let counts = Group::ALL.map(|group| rule.state_kinds(group).len() as u64);
        let states = counts.into_iter().min().unwrap_or(0);
        let compute = settings.compute.bytes() as u64;
        // The parameters after the last synchronization, and the outer momentum.
        let outer = config.local_sgd.map_or(0, |local| 1 + u64::from(local.outer_momentum > 0.0));
        let copies = u64::from(compute != F32) + u64::from(config.optimizer.ema.is_some()) + outer;
        StateBytes {
            parameters: compute as f64 * share(ZeroStage::Parameters),
            gradients: F32 as f64 * share(ZeroStage::Gradients),
            optimizer: (F32 * (states + copies)) as f64 * share(ZeroStage::Optimizer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts the bytes per parameter with four shards.
    #[track_caller]
    fn assert_bytes(line: &str, parameters: f64, gradients: f64, optimizer: f64) {
        let config = Config::parse(format!("t {line}").split(' ')).unwrap();
        let expected = StateBytes { parameters, gradients, optimizer };
        assert_eq!(StateBytes::per_parameter(&config), expected, "{line}");
    }

    #[test]
    fn each_stage_takes_what_the_table_says() {
        const N: f64 = 4.0;
        for (stage, f32, bf16) in [
            (0, (4.0, 4.0, 8.0), (2.0, 4.0, 12.0)),
            (1, (4.0, 4.0, 8.0 / N), (2.0, 4.0, 12.0 / N)),
            (2, (4.0, 4.0 / N, 8.0 / N), (2.0, 4.0 / N, 12.0 / N)),
            (3, (4.0 / N, 4.0 / N, 8.0 / N), (2.0 / N, 4.0 / N, 12.0 / N)),
        ] {
            for mesh in ["fsdp=4", "dp=2,fsdp=4,tp=2"] {
                let line = format!("--mesh {mesh} --zero {stage}");
                assert_bytes(&line, f32.0, f32.1, f32.2);
                assert_bytes(&format!("{line} --dtype bf16"), bf16.0, bf16.1, bf16.2);
            }
        }
        assert_bytes("--mesh dp=2", 4.0, 4.0, 8.0);
        assert_bytes("--mesh fsdp=4 --optimizer sgd", 1.0, 1.0, 1.0);
        assert_bytes("--mesh fsdp=4 --optimizer sgd --momentum 0", 1.0, 1.0, 0.0);
        assert_bytes("--mesh fsdp=4 --zero 1 --optimizer sgd --dtype bf16", 2.0, 4.0, 2.0);
        assert_bytes("--mesh fsdp=4 --zero 1 --ema 0.99", 4.0, 4.0, 3.0);
        assert_bytes("--mesh 1 --ema 0.99 --dtype bf16", 2.0, 4.0, 16.0);
        assert_bytes("--mesh dp=2,fsdp=4 --local-steps 8", 1.0, 1.0, 4.0);
        let local = "--mesh dp=2 --local-steps 8 --dtype bf16";
        assert_bytes(local, 2.0, 4.0, 20.0);
        assert_bytes(&format!("{local} --outer-momentum 0"), 2.0, 4.0, 16.0);
    }
}
