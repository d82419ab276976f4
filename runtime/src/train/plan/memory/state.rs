//! Memory plan of parameters, gradients and optimizer state, and of their communication buffers.
//!
//! Bytes per parameter on each rank, with `N` ranks along `fsdp`, `ep` and `cp` and AdamW; in bf16, the values that layers read have 2
//! bytes, and the optimizer keeps master weights of 4:
//!
//! | ZeRO stage | f32: values + gradient + optimizer | | bf16 | |
//! |---|---|---|---|---|
//! | 0 | 4 + 4 + 8 | 16 | 2 + 4 + 12 | 18 |
//! | 1 | 4 + 4 + 8/N | 8 + 8/N | 2 + 4 + 12/N | 6 + 12/N |
//! | 2 | 4 + 4/N + 8/N | 4 + 12/N | 2 + 4/N + 12/N | 2 + 16/N |
//! | 3 | 4/N + 4/N + 8/N | 16/N | 2/N + 4/N + 12/N | 18/N |
//!
//! Each state that the [`UpdateRule`] keeps of a parameter adds 4 bytes (two for AdamW), and so does a moving average of the
//! parameters; both are sharded as the optimizer is.

use std::sync::Arc;

use crate::layout::AxisSet;
use crate::mesh::MeshShape;
use crate::optim::{Group, UpdateRule};
use crate::tensor::ZeroStage;
use crate::train::config::Config;

/// Shards consist of whole lines of this many elements.
pub const LINE: u64 = 16;
/// Buffers take whole multiples of this many bytes.
const ALIGN: u64 = 64;
/// Bytes of an f32.
const F32: u64 = 4;

/// The settings that determine the size of the state of a run.
#[derive(Debug, Clone)]
pub struct StateLayout {
    zero: ZeroStage,
    mesh: MeshShape,
    compute: u64,
    reduce: u64,
    rule: Arc<dyn UpdateRule>,
    ema: bool,
}

/// The ranks among which a unit is sharded and summed.
#[derive(Debug, Clone, Copy)]
struct UnitSharding {
    /// The stage in effect: 0 if there is one shard.
    zero: ZeroStage,
    shards: u64,
    /// True if gradients are summed over replicas after the shards (HSDP).
    has_replicas: bool,
    /// True if gradients are summed over ranks.
    is_summed: bool,
}

impl UnitSharding {
    /// Returns the elements of the largest shard: lines are distributed evenly, up to one.
    fn shard(&self, len: u64) -> u64 {
        (len / LINE).div_ceil(self.shards) * LINE
    }

    /// Returns the elements that a rank holds of state which is sharded from `stage` on.
    fn held(&self, stage: ZeroStage, len: u64) -> u64 {
        if self.zero >= stage { self.shard(len) } else { len }
    }
}

/// Elements of a unit's flat buffers on the rank that has most.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitSize {
    /// The axes that split its parameters, and so neither shard nor sum them.
    pub split: AxisSet,
    /// Elements of each flat buffer.
    pub len: u64,
    /// Elements of the parameters in each group, on which their optimizer state depends.
    pub by_group: Vec<(Group, u64)>,
}

impl UnitSize {
    /// Returns the elements with fewer than `count` states under `rule`.
    fn len_below(&self, count: usize, rule: &dyn UpdateRule) -> u64 {
        let groups = self.by_group.iter();
        let below = groups.filter(|(group, _)| rule.state_kinds(*group).len() < count);
        below.map(|(_, elements)| elements).sum()
    }
}

/// Bytes of each rank's state.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StateBytes {
    pub parameters: f64,
    pub gradients: f64,
    pub optimizer: f64,
}

impl StateBytes {
    pub fn total(&self) -> f64 {
        self.parameters + self.gradients + self.optimizer
    }
}

impl StateLayout {
    pub fn of(config: &Config) -> StateLayout {
        let settings = config.settings();
        StateLayout {
            zero: config.zero,
            mesh: config.mesh,
            compute: settings.compute.bytes() as u64,
            reduce: settings.reduce.bytes() as u64,
            rule: config.optimizer.rule(),
            ema: config.optimizer.ema.is_some(),
        }
    }

    /// Returns the ranks among which a unit is sharded whose parameters are split over `split`.
    fn sharding(&self, split: AxisSet) -> UnitSharding {
        let shards = self.mesh.degree_of(AxisSet::ZERO.minus(split)) as u64;
        let summed = self.mesh.degree_of(AxisSet::TOKENS.minus(split)) as u64;
        let zero = if shards == 1 { ZeroStage::Replicated } else { self.zero };
        UnitSharding { zero, shards, has_replicas: summed > shards, is_summed: summed > 1 }
    }

    /// Returns the bytes of one parameter on each rank if everything divides evenly.
    pub fn per_parameter(&self) -> StateBytes {
        let sharding = self.sharding(AxisSet::NONE);
        let share = |stage| if sharding.zero >= stage { 1.0 / sharding.shards as f64 } else { 1.0 };
        let counts = Group::ALL.map(|group| self.rule.state_kinds(group).len() as u64);
        let states = counts.into_iter().min().unwrap_or(0);
        StateBytes {
            parameters: self.compute as f64 * share(ZeroStage::Parameters),
            gradients: F32 as f64 * share(ZeroStage::Gradients),
            optimizer: (F32 * (states + self.copies())) as f64 * share(ZeroStage::Optimizer),
        }
    }

    /// Returns the bytes of these units on the rank that has most of each: exact if all parameters have the same number of states, or
    /// if the state is not sharded, else a lower bound.
    pub fn of_units(&self, units: &[UnitSize]) -> StateBytes {
        let mut bytes = StateBytes::default();
        for unit in units {
            let held = |stage| self.sharding(unit.split).held(stage, unit.len);
            let owned = held(ZeroStage::Optimizer);
            // A shard may hold all of the elements with the fewest states.
            let states = (1..=self.most_states(unit)).map(|count| {
                let below = unit.len_below(count, &self.rule);
                buffer(owned.saturating_sub(below) * F32)
            });
            let states: f64 = states.sum();
            bytes.parameters += buffer(held(ZeroStage::Parameters) * self.compute);
            bytes.gradients += buffer(held(ZeroStage::Gradients) * F32);
            bytes.optimizer += states + self.copies() as f64 * buffer(owned * F32);
        }
        bytes
    }

    /// Returns the peak of communication buffers, in backward: the values of the current unit and of the prefetched one
    /// before it (stage 3), the gradient of the current unit (from stage 2) and that of the unit after it, which is being
    /// reduce-scattered, and those that are being all-reduced over replicas.
    ///
    /// Backward reads no values of the first unit, usually an embedding; before the last one it has read none.
    pub fn exchanged(&self, units: &[UnitSize]) -> f64 {
        let (mut peak, mut scattering, mut summing) = (0f64, 0.0, 0.0);
        let values = |unit: &UnitSize| match self.sharding(unit.split).zero {
            ZeroStage::Parameters => buffer(unit.len * self.compute),
            _ => 0.0,
        };
        for (index, unit) in units.iter().enumerate().rev() {
            let is_last = index + 1 == units.len();
            let zero = self.sharding(unit.split).zero;
            let gathered = match index {
                0 => 0.0,
                index if index == 1 || is_last => values(unit),
                index => values(unit) + values(&units[index - 1]),
            };
            let is_transient = zero >= ZeroStage::Gradients;
            let gradient = if is_transient { buffer(unit.len * F32) } else { 0.0 };
            peak = peak.max(gathered + gradient + scattering + summing);
            // The all-reduce of the unit after this one starts before the reduce-scatter of this one.
            summing += units.get(index + 1).map_or(0.0, |after| self.of_replicas(after));
            let sent = self.payload(unit);
            let copied = if self.reduce == F32 { 0.0 } else { gradient };
            peak = peak.max(gathered + copied + sent + summing);
            match zero {
                ZeroStage::Replicated => summing += sent,
                _ => scattering = sent,
            }
        }
        peak.max(summing + units.first().map_or(0.0, |first| self.of_replicas(first)))
    }

    /// Returns the bytes of a unit's gradient in a communication buffer, 0 if it is sent from where it is accumulated.
    fn payload(&self, unit: &UnitSize) -> f64 {
        let sharding = self.sharding(unit.split);
        let is_held = sharding.zero < ZeroStage::Gradients && self.reduce == F32;
        if sharding.is_summed && !is_held { buffer(unit.len * self.reduce) } else { 0.0 }
    }

    /// Returns the bytes of a unit's shard while it is all-reduced over replicas.
    fn of_replicas(&self, unit: &UnitSize) -> f64 {
        let sharding = self.sharding(unit.split);
        if sharding.has_replicas && sharding.zero > ZeroStage::Replicated {
            buffer(sharding.shard(unit.len) * self.reduce)
        } else {
            0.0
        }
    }

    /// Returns the largest number of states of any parameter of a unit.
    fn most_states(&self, unit: &UnitSize) -> usize {
        let groups = unit.by_group.iter();
        groups.map(|(group, _)| self.rule.state_kinds(*group).len()).max().unwrap_or(0)
    }

    /// Returns the number of f32 copies of the parameters: master weights, and the moving average.
    fn copies(&self) -> u64 {
        u64::from(self.compute != F32) + u64::from(self.ema)
    }
}

/// Returns the allocated bytes of a buffer of `bytes` bytes.
fn buffer(bytes: u64) -> f64 {
    bytes.next_multiple_of(ALIGN) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(line: &str) -> StateLayout {
        StateLayout::of(&Config::parse(format!("t {line}").split(' ')).unwrap())
    }

    fn unit(len: u64) -> UnitSize {
        UnitSize { split: AxisSet::NONE, len, by_group: vec![(Group::ALL[0], len)] }
    }

    /// Asserts the bytes per parameter with four shards: by `per_parameter`, and of a unit that divides evenly.
    #[track_caller]
    fn assert_bytes(line: &str, parameters: f64, gradients: f64, optimizer: f64) {
        let layout = layout(line);
        let expected = StateBytes { parameters, gradients, optimizer };
        assert_eq!(layout.per_parameter(), expected, "{line}");
        let len = 16 * 64;
        let of = |bytes: f64| bytes * len as f64;
        let expected = StateBytes {
            parameters: of(parameters),
            gradients: of(gradients),
            optimizer: of(optimizer),
        };
        assert_eq!(layout.of_units(&[unit(len)]), expected, "{line}");
    }

    #[test]
    fn each_level_takes_what_the_table_says() {
        const N: f64 = 4.0;
        for (level, f32, bf16) in [
            (0, (4.0, 4.0, 8.0), (2.0, 4.0, 12.0)),
            (1, (4.0, 4.0, 8.0 / N), (2.0, 4.0, 12.0 / N)),
            (2, (4.0, 4.0 / N, 8.0 / N), (2.0, 4.0 / N, 12.0 / N)),
            (3, (4.0 / N, 4.0 / N, 8.0 / N), (2.0 / N, 4.0 / N, 12.0 / N)),
        ] {
            for mesh in ["fsdp=4", "dp=2,fsdp=4,tp=2"] {
                let line = format!("--mesh {mesh} --zero {level}");
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
    }

    #[test]
    fn shards_are_whole_lines_and_buffers_whole_cache_lines() {
        // Five lines on four ranks: one has two.
        let of = |line: &str| layout(line).of_units(&[unit(80), unit(16)]);
        let bytes = of("--mesh fsdp=4 --zero 3");
        assert_eq!(bytes.total(), (32 + 16) as f64 * 16.0);
        // A line of bf16 is half a cache line.
        let bytes = of("--mesh fsdp=4 --zero 3 --dtype bf16");
        assert_eq!(bytes.parameters, 64.0 + 64.0);
        assert_eq!(bytes.optimizer, (32 + 16) as f64 * 12.0);
    }

    #[test]
    fn muon_has_one_moment_of_matrices() {
        let [rest, matrix, ..] = Group::ALL;
        let by_group = vec![(matrix, 128), (rest, 32)];
        let units = [UnitSize { split: AxisSet::NONE, len: 160, by_group }];
        let bytes = |line: &str| layout(line).of_units(&units).optimizer;
        assert_eq!(bytes("--mesh 1 --optimizer muon"), (160 + 32) as f64 * 4.0);
        // A shard of 80 elements may be cut from the matrix.
        assert_eq!(bytes("--mesh fsdp=2 --optimizer muon"), 80.0 * 4.0);
    }

    #[test]
    fn experts_are_sharded_over_the_axes_that_do_not_split_them() {
        let ep = AxisSet::of(crate::layout::AxisId::Ep);
        let of = |mesh: &str, split| {
            let layout = layout(&format!("--mesh {mesh} --zero 3 --batch 8"));
            let units = [UnitSize { split, ..unit(16 * 64) }];
            (layout.of_units(&units).total() / (16.0 * 64.0), layout.exchanged(&units))
        };
        assert_eq!(of("fsdp=2,ep=2", AxisSet::NONE).0, 16.0 / 4.0);
        assert_eq!(of("fsdp=2,ep=2", ep).0, 16.0 / 2.0);
        assert_eq!(of("fsdp=2,ep=2,cp=2", ep).0, 16.0 / 4.0);
        // One rank has all of these experts: nothing is sharded, gathered or summed.
        assert_eq!(of("ep=4", AxisSet::NONE).0, 16.0 / 4.0);
        assert_eq!(of("ep=4", ep), (16.0, 0.0));
    }

    #[test]
    fn what_is_exchanged_follows_backward() {
        let units = [unit(1600), unit(320), unit(640)];
        let exchanged = |line: &str| layout(line).exchanged(&units);
        assert_eq!(exchanged("--mesh 1"), 0.0);
        // The gradient itself is summed in place.
        for line in ["--mesh dp=2", "--mesh fsdp=2 --zero 0", "--mesh fsdp=2 --zero 1"] {
            assert_eq!(exchanged(line), 0.0, "{line}");
        }
        // A copy of each gradient until the end of backward; at level 1, of one unit at a time.
        assert_eq!(exchanged("--mesh dp=2 --dtype bf16 --reduce-dtype bf16"), 2.0 * 2560.0);
        let line = "--mesh fsdp=2 --zero 1 --dtype bf16 --reduce-dtype bf16";
        assert_eq!(exchanged(line), 2.0 * 1600.0);
        // The first unit's gradient next to the second's.
        assert_eq!(exchanged("--mesh fsdp=2 --zero 2"), 4.0 * (1600.0 + 320.0));
        let line = "--mesh fsdp=2 --zero 2 --dtype bf16 --reduce-dtype bf16";
        assert_eq!(exchanged(line), (4.0 + 2.0) * 1600.0);
        // The same, without values of the first unit.
        assert_eq!(exchanged("--mesh fsdp=2"), 4.0 * (1600.0 + 320.0));
        let units = [unit(160), unit(320), unit(640), unit(1280), unit(160)];
        let fourth = layout("--mesh fsdp=2").exchanged(&units);
        assert_eq!(fourth, 4.0 * (1280.0 + 640.0 + 1280.0 + 160.0));
        // Two replicas: at the end, the shards of all units are summed over them.
        let line = "--mesh dp=2,fsdp=2 --zero 1";
        assert_eq!(exchanged(line), 4.0 * 2560.0 / 2.0);
    }
}
