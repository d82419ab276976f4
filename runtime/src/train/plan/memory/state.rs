//! What parameters, gradients and optimiser take on each rank, and what their exchange takes at its peak.
//!
//! With `N` ranks along `fsdp`, a parameter takes these bytes on each rank (AdamW; of bf16, the values that layers read
//! have 2 bytes and the optimiser a master copy of 4):
//!
//! | level | f32: values + gradient + optimiser | | bf16 | |
//! |---|---|---|---|---|
//! | 0 | 4 + 4 + 8 | 16 | 2 + 4 + 12 | 18 |
//! | 1 | 4 + 4 + 8/N | 8 + 8/N | 2 + 4 + 12/N | 6 + 12/N |
//! | 2 | 4 + 4/N + 8/N | 4 + 12/N | 2 + 4/N + 12/N | 2 + 16/N |
//! | 3 | 4/N + 4/N + 8/N | 16/N | 2/N + 4/N + 12/N | 18/N |
//!
//! SGD and the matrices of Muon have a momentum of 4 bytes where AdamW has two moments of 8, and a moving average of
//! the parameters adds 4, sharded as the optimiser is.

use crate::layout::{AxisId, AxisSet};
use crate::tensor::ZeroLevel;
use crate::train::config::{Config, OptimizerKind};

/// Shards consist of whole lines of this many elements.
pub const LINE: u64 = 16;
/// Buffers take whole multiples of this many bytes.
const ALIGN: u64 = 64;
/// Bytes of an f32.
const F32: u64 = 4;

/// The settings that decide how much the state of a run takes.
#[derive(Debug, Clone, Copy)]
pub struct StateLayout {
    zero: ZeroLevel,
    /// Ranks that a unit is sharded over.
    shards: u64,
    /// Whether sums over further data ranks follow after that over the shards.
    has_replicas: bool,
    /// Whether any data rank has another gradient to add.
    has_data_ranks: bool,
    compute: u64,
    reduce: u64,
    optimizer: OptimizerKind,
    ema: bool,
}

/// What is known of one unit: elements of its flat buffers on the rank that has most, and how many of them belong to
/// matrices that Muon would update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitSize {
    /// Elements of each flat buffer.
    pub len: u64,
    /// Elements without a second moment under Muon.
    pub matrices: u64,
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
        let shards = config.mesh.degree(AxisId::Fsdp) as u64;
        let data = config.mesh.degree_of(AxisSet::DATA) as u64;
        StateLayout {
            zero: config.zero,
            shards,
            has_replicas: data > shards,
            has_data_ranks: data > 1,
            compute: settings.compute.bytes() as u64,
            reduce: settings.reduce.bytes() as u64,
            optimizer: config.optimizer.kind,
            ema: config.optimizer.ema.is_some(),
        }
    }

    /// Bytes of one parameter on each rank, where everything divides evenly.
    pub fn per_parameter(&self) -> StateBytes {
        let share = |level| if self.zero >= level { 1.0 / self.shards as f64 } else { 1.0 };
        let moments = match self.optimizer {
            OptimizerKind::AdamW { .. } => 2,
            OptimizerKind::Sgd { momentum: 0.0 } => 0,
            OptimizerKind::Sgd { .. } | OptimizerKind::Muon { .. } => 1,
        };
        StateBytes {
            parameters: self.compute as f64 * share(ZeroLevel::Parameters),
            gradients: F32 as f64 * share(ZeroLevel::Gradients),
            optimizer: (F32 * (moments + self.copies())) as f64 * share(ZeroLevel::Optimizer),
        }
    }

    /// What these units take on the rank that has most of each: exactly, but for Muon on shards, whose second moments
    /// are at least these.
    pub fn of_units(&self, units: &[UnitSize]) -> StateBytes {
        let mut bytes = StateBytes::default();
        for unit in units {
            let held = |level| if self.zero >= level { self.shard(unit.len) } else { unit.len };
            let owned = held(ZeroLevel::Optimizer);
            let moments = match self.optimizer {
                OptimizerKind::AdamW { .. } => 2.0 * buffer(owned * F32),
                OptimizerKind::Sgd { momentum: 0.0 } => 0.0,
                OptimizerKind::Sgd { .. } => buffer(owned * F32),
                // Which of the matrices a shard cuts is left open: all of them.
                OptimizerKind::Muon { .. } => {
                    buffer(owned * F32) + buffer(owned.saturating_sub(unit.matrices) * F32)
                }
            };
            bytes.parameters += buffer(held(ZeroLevel::Parameters) * self.compute);
            bytes.gradients += buffer(held(ZeroLevel::Gradients) * F32);
            bytes.optimizer += moments + self.copies() as f64 * buffer(owned * F32);
        }
        bytes
    }

    /// The most that is under way at once: going backward, the values of the unit at hand and of the one before it
    /// (level 3), the gradient of the unit at hand (from level 2) and that of the one after it, which is being summed
    /// over shards, and those that are being summed over replicas.
    ///
    /// Of the first unit, which is an embedding as a rule, backward reads no values; and before that of the last one
    /// it has read none.
    pub fn exchanged(&self, units: &[UnitSize]) -> f64 {
        let (mut peak, mut scattering, mut summing) = (0f64, 0.0, 0.0);
        let values = |unit: &UnitSize| buffer(unit.len * self.compute);
        for (index, unit) in units.iter().enumerate().rev() {
            let is_last = index + 1 == units.len();
            let gathered = match (self.zero, index) {
                (ZeroLevel::Parameters, 0) => 0.0,
                (ZeroLevel::Parameters, index) if index == 1 || is_last => values(unit),
                (ZeroLevel::Parameters, index) => values(unit) + values(&units[index - 1]),
                _ => 0.0,
            };
            let is_transient = self.zero >= ZeroLevel::Gradients;
            let gradient = if is_transient { buffer(unit.len * F32) } else { 0.0 };
            peak = peak.max(gathered + gradient + scattering + summing);
            // The unit after this one goes on to the replicas before this one is handed over.
            summing += units.get(index + 1).map_or(0.0, |after| self.of_replicas(after));
            let sent = self.payload(unit);
            let copied = if self.reduce == F32 { 0.0 } else { gradient };
            peak = peak.max(gathered + copied + sent + summing);
            match self.zero {
                ZeroLevel::Replicated => summing += sent,
                _ => scattering = sent,
            }
        }
        peak.max(summing + units.first().map_or(0.0, |first| self.of_replicas(first)))
    }

    /// What is sent of a unit's gradient, as far as it is no gradient that is held anyway.
    fn payload(&self, unit: &UnitSize) -> f64 {
        let is_held = self.zero < ZeroLevel::Gradients && self.reduce == F32;
        match self.has_data_ranks && !is_held {
            true => buffer(unit.len * self.reduce),
            false => 0.0,
        }
    }

    /// What the sum of a unit's shard over the replicas takes.
    fn of_replicas(&self, unit: &UnitSize) -> f64 {
        match self.has_replicas && self.zero > ZeroLevel::Replicated {
            true => buffer(self.shard(unit.len) * self.reduce),
            false => 0.0,
        }
    }

    /// Elements of the largest shard: lines are shared out, and some ranks may have one more.
    fn shard(&self, len: u64) -> u64 {
        (len / LINE).div_ceil(self.shards) * LINE
    }

    /// Copies of the parameters in f32: the master, and the moving average.
    fn copies(&self) -> u64 {
        u64::from(self.compute != F32) + u64::from(self.ema)
    }
}

/// Bytes of a buffer of so many.
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
        UnitSize { len, matrices: 0 }
    }

    /// Bytes per parameter with four shards: by `per_parameter`, and of a unit that divides evenly.
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
        let units = [UnitSize { len: 160, matrices: 128 }];
        let bytes = layout("--mesh 1 --optimizer muon").of_units(&units);
        assert_eq!(bytes.optimizer, (160 + 32) as f64 * 4.0);
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
        // The first unit's gradient beside the second's.
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
