//! Static checks that kernels fit their target devices, without a device.

mod contraction;
mod cubin;
mod generated;
mod log;

use std::fmt;
use std::time::Duration;

use meshwright_cuda::native::{
    CacheKey, CompiledCode, DiskCache, Version, compile, compiled_text, nvrtc,
};
use meshwright_cuda::{DriverError, KernelSource};
use rayon::prelude::*;

pub use generated::generated_sources;
pub use log::ResourceUsage;

/// Maximum CPU time to compile one source. An excessively unrolled kernel shows by it first.
pub const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Registers per multiprocessor, on every architecture so far.
const REGISTERS: u32 = 65536;

/// Threads per block of a kernel without `__launch_bounds__`.
const UNBOUNDED: u32 = 1024;

/// One source, compiled for one architecture.
pub struct CheckedSource {
    /// Name of the source.
    pub source: String,
    /// Target architecture.
    pub architecture: String,
    /// CPU time of the compilation; `None` if the code was cached.
    pub time: Option<Duration>,
    /// Kernels of the source.
    pub kernels: Vec<CompiledKernel>,
    /// Compiler warnings, one line each.
    pub warnings: Vec<String>,
}

/// A compiled kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledKernel {
    /// Name of the entry point.
    pub name: String,
    /// Registers and memory.
    pub usage: ResourceUsage,
    /// Maximum threads per block: declared, or 1024.
    pub threads: u32,
    /// True if a multiplication may be contracted with the addition of its result.
    pub contracts: bool,
}

/// The reason why a kernel or source is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelProblem {
    /// Name of the source.
    pub source: String,
    /// Name of the kernel, if the problem concerns one.
    pub kernel: Option<String>,
    /// Target architecture.
    pub architecture: String,
    /// Description and remedy.
    pub text: String,
}

/// Compiles every source for every architecture in parallel, except cached ones. Fails if one does not compile.
pub fn check_kernels(
    sources: &[&KernelSource],
    architectures: &[String],
    cache: &DiskCache,
) -> Result<Vec<CheckedSource>, DriverError> {
    let version = nvrtc()?.version;
    let pairs: Vec<(&KernelSource, &String)> = sources
        .iter()
        .flat_map(|source| architectures.iter().map(|architecture| (*source, architecture)))
        .collect();
    let check = |(source, architecture): (&KernelSource, &String)| {
        check_source(source, architecture, version, cache)
    };
    pairs.into_par_iter().map(check).collect()
}

fn check_source(
    source: &KernelSource,
    architecture: &str,
    version: Version,
    cache: &DiskCache,
) -> Result<CheckedSource, DriverError> {
    const VERBOSE: &str = "--ptxas-options=-v";
    let text = compiled_text(source);
    // Code and log are cached in separate files.
    let key = |part| CacheKey::of_code(source, &text, architecture, version, &[VERBOSE, part]);
    let [code_key, log_key, contraction_key] = ["code", "log", "contraction"].map(key);
    let known = || {
        let text = |key| String::from_utf8(cache.get(key)?).ok();
        Some((cache.get(&code_key)?, text(&log_key)?, text(&contraction_key)?))
    };
    let ((cubin, log, contracting), time) = match known() {
        Some(known) => (known, None),
        None => {
            let start = thread_cpu_time();
            let CompiledCode { cubin, ptx, log } = compile(source, architecture, &[VERBOSE])?;
            let time = thread_cpu_time().saturating_sub(start);
            let contracting = contraction::contracting_kernels(&ptx).join("\n");
            // Compilations that took too long are not cached, so that every check reports them.
            if time <= TIME_LIMIT {
                cache.put_code(&code_key, &cubin);
                cache.put_code(&log_key, log.as_bytes());
                cache.put_code(&contraction_key, contracting.as_bytes());
            }
            ((cubin, log, contracting), Some(time))
        }
    };
    let kernels = log::kernels(&log).map(|(name, usage)| {
        let threads = cubin::max_threads(&cubin, &name).unwrap_or(UNBOUNDED);
        let contracts = contracting.lines().any(|contracting| contracting == name);
        CompiledKernel { name, usage, threads, contracts }
    });
    Ok(CheckedSource {
        source: source.name.to_string(),
        architecture: architecture.to_string(),
        time,
        kernels: kernels.collect(),
        warnings: log::warnings(&log),
    })
}

/// Returns the CPU time of the calling thread, which does not depend on the machine's load.
fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl CompiledKernel {
    /// Returns the number of blocks for which a multiprocessor has enough registers.
    pub fn blocks_per_multiprocessor(&self) -> u32 {
        // Registers are allocated per warp, in units of eight per thread.
        let warps = self.threads.div_ceil(32);
        REGISTERS / (self.usage.registers.max(1).next_multiple_of(8) * warps * 32)
    }

    /// Returns the problem of the kernel, if any.
    fn problem(&self) -> Option<String> {
        let ResourceUsage { registers, spilled, .. } = self.usage;
        if spilled > 0 {
            return Some(format!(
                "spills {spilled} bytes of registers to memory: use fewer values at load_once, or fewer threads in a \
                 block"
            ));
        }
        if self.blocks_per_multiprocessor() == 0 {
            return Some(format!(
                "needs {registers} registers in each of {} threads, more than a multiprocessor has: declare the \
                 threads of a block by __launch_bounds__",
                self.threads
            ));
        }
        None
    }
}

impl CheckedSource {
    /// Returns the problems of the source and its kernels.
    pub fn problems(&self) -> Vec<KernelProblem> {
        let problem = |kernel: Option<&CompiledKernel>, text| KernelProblem {
            source: self.source.clone(),
            kernel: kernel.map(|kernel| kernel.name.clone()),
            architecture: self.architecture.clone(),
            text,
        };
        let mut problems: Vec<KernelProblem> = self
            .kernels
            .iter()
            .filter_map(|kernel| Some(problem(Some(kernel), kernel.problem()?)))
            .collect();
        if contraction::is_exact(&self.source) {
            let contracting = self.kernels.iter().filter(|kernel| kernel.contracts);
            problems.extend(contracting.map(|kernel| {
                let text = "contracts a multiplication with an addition, but its bits are those of the host or of \
                            another kernel: use __fmul_rn";
                problem(Some(kernel), text.to_owned())
            }));
        }
        if let Some(time) = self.time.filter(|time| *time > TIME_LIMIT) {
            let (took, limit) = (time.as_secs_f32(), TIME_LIMIT.as_secs());
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

impl fmt::Display for KernelProblem {
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
