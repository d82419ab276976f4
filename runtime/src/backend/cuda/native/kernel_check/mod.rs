//! Whether kernels fit the devices that they are compiled for, without a device.

mod cubin;
mod generated;
mod log;
mod recorder;

use std::fmt;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::api::nvrtc;
use super::compile::compile;
use crate::backend::cuda::{DriverError, Source};
pub use generated::generated_sources;
pub use log::Usage;

/// Longest time that compiling one source may take. A kernel that is unrolled too far shows by it first.
pub const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Registers of one multiprocessor, on every architecture so far.
const REGISTERS: u32 = 65536;

/// Threads of a block that declares no bound (`__launch_bounds__`).
const UNBOUNDED: u32 = 1024;

/// One source, compiled for one architecture.
pub struct Checked {
    /// Name of the source.
    pub source: String,
    /// What it was compiled for.
    pub architecture: String,
    /// How long that took.
    pub time: Duration,
    /// Its kernels.
    pub kernels: Vec<Kernel>,
    /// The compiler's warnings, a line each.
    pub warnings: Vec<String>,
}

/// A kernel as it was compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Name of the entry point.
    pub name: String,
    /// Registers and memory.
    pub usage: Usage,
    /// Most threads of a block: what it declares, or 1024.
    pub threads: u32,
}

/// Why a kernel, or a source, is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Name of the source.
    pub source: String,
    /// Name of the kernel, if it is about one.
    pub kernel: Option<String>,
    /// What it was compiled for.
    pub architecture: String,
    /// What is wrong, and what to do.
    pub text: String,
}

/// Compiles every source for every architecture, several at once. Fails if one does not compile.
pub fn check_kernels(
    sources: &[&Source],
    architectures: &[String],
) -> Result<Vec<Checked>, DriverError> {
    nvrtc()?;
    let pairs: Vec<(&Source, &String)> = sources
        .iter()
        .flat_map(|source| architectures.iter().map(|architecture| (*source, architecture)))
        .collect();
    pairs.into_par_iter().map(|(source, architecture)| check(source, architecture)).collect()
}

fn check(source: &Source, architecture: &str) -> Result<Checked, DriverError> {
    let start = Instant::now();
    let code = compile(source, architecture, &["--ptxas-options=-v"])?;
    let time = start.elapsed();
    let kernels = log::kernels(&code.log).map(|(name, usage)| {
        let threads = cubin::max_threads(&code.cubin, &name).unwrap_or(UNBOUNDED);
        Kernel { name, usage, threads }
    });
    Ok(Checked {
        source: source.name.to_string(),
        architecture: architecture.to_string(),
        time,
        kernels: kernels.collect(),
        warnings: log::warnings(&code.log),
    })
}

impl Kernel {
    /// Blocks that the registers of a multiprocessor suffice for.
    pub fn blocks(&self) -> u32 {
        // Registers are handed out to a warp at a time, eight for each thread.
        let warps = self.threads.div_ceil(32);
        REGISTERS / (self.usage.registers.max(1).next_multiple_of(8) * warps * 32)
    }

    /// What is wrong with it, if anything is.
    fn problem(&self) -> Option<String> {
        let Usage { registers, spilled, .. } = self.usage;
        if spilled > 0 {
            return Some(format!(
                "spills {spilled} bytes of registers to memory: use fewer values at once, or fewer threads in a block"
            ));
        }
        if self.blocks() == 0 {
            return Some(format!(
                "needs {registers} registers in each of {} threads, more than a multiprocessor has: declare the threads \
                 of a block by __launch_bounds__",
                self.threads
            ));
        }
        None
    }
}

impl Checked {
    /// What is wrong with it.
    pub fn problems(&self) -> Vec<Problem> {
        let problem = |kernel: Option<&Kernel>, text| Problem {
            source: self.source.clone(),
            kernel: kernel.map(|kernel| kernel.name.clone()),
            architecture: self.architecture.clone(),
            text,
        };
        let mut problems: Vec<Problem> = self
            .kernels
            .iter()
            .filter_map(|kernel| Some(problem(Some(kernel), kernel.problem()?)))
            .collect();
        if self.time > TIME_LIMIT {
            let (took, limit) = (self.time.as_secs_f32(), TIME_LIMIT.as_secs());
            problems.push(problem(
                None,
                format!("took {took:.1} s to compile, more than {limit} s: unroll its loops less"),
            ));
        }
        if self.kernels.is_empty() {
            problems.push(problem(None, "has no kernel in it".to_string()));
        }
        problems
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.cu", self.source)?;
        if let Some(kernel) = &self.kernel {
            write!(f, ", kernel {kernel}")?;
        }
        write!(f, " for {} {}", self.architecture, self.text)
    }
}

#[cfg(test)]
mod tests;
