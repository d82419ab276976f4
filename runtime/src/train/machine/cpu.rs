//! The CPU of one process, whose cores its ranks divide.

use std::sync::Once;

use crate::backend::cpu::{CpuBackend, IS_OPTIMIZED};
use crate::backend::{Backend, DType};
use crate::train::console::{counted, print_shared};
use crate::train::{Error, Result};

use super::{Machine, MachineDevice, host_memory};

/// Starts the threads of a rank on the CPU. Kernels without optimization are reported once.
pub fn open_cpu(threads: usize) -> Result<CpuBackend> {
    static REPORT: Once = Once::new();
    if !IS_OPTIMIZED {
        REPORT.call_once(|| print_shared(UNOPTIMIZED));
    }
    CpuBackend::new(threads).map_err(|error| {
        Error::Input(format!("{} could not be started: {error}", counted(threads, "thread")))
    })
}

/// The message for kernels of a debug build, with the lines of TOML that optimize dependencies.
const UNOPTIMIZED: &str = "warning: the kernels are built without optimization, hundreds of times slower; run with \
                           --release, or add to Cargo.toml:\n    [profile.dev.package.\"*\"]\n    opt-level = 3";

/// The CPU of this machine, its cores divided among the ranks.
pub struct CpuMachine {
    pub threads: usize,
    pub ranks: usize,
}

impl Machine for CpuMachine {
    fn backend(&self, _: usize) -> Result<Box<dyn Backend>> {
        Ok(Box::new(open_cpu(self.threads)?))
    }

    fn describe(&self) -> String {
        let each = if self.ranks == 1 { "" } else { " each" };
        format!("{}{each}", counted(self.threads, "thread"))
    }

    fn device(&self) -> MachineDevice {
        cpu_device(self.ranks)
    }

    fn memory(&self) -> Option<f64> {
        host_memory()
    }

    fn peak_flops(&self, _: DType) -> Option<f64> {
        None
    }
}

/// Describes the CPU for a record, with the ranks that share it.
pub fn cpu_device(ranks_each: usize) -> MachineDevice {
    let units = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    MachineDevice { name: cpu_name(), units, is_gpu: false, ranks_each }
}

/// Returns the name of the CPU.
fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let Some((_, name)) = name else { return std::env::consts::ARCH.to_owned() };
    // Without trademarks and clock rates: `Intel(R) Xeon(R) Gold 6430 CPU @ 2.10GHz`.
    let name = name.split('@').next().unwrap_or_default().replace("(R)", "").replace("(TM)", "");
    let words = name.split_whitespace().filter(|word| *word != "CPU" && !word.starts_with("Proc"));
    words.collect::<Vec<_>>().join(" ")
}
