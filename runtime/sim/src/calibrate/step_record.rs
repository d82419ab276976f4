//! Files of `--record`: the measured kernels and calls of a training step.

use std::path::Path;

use meshwright_backend::{DType, Kernel, KernelOp};
use meshwright_os::read_text;
use serde::{Deserialize, Serialize};

use super::CalibrateError;

/// The first key of each file.
pub const FORMAT: &str = "meshwright step record";
const VERSION: u32 = 1;

/// The measured kernels and calls of a steady training step, in SI units; or calls alone, without steps, which
/// `meshwright bench comm` has measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// `meshwright step record`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// The device of each rank.
    pub device: RecordedDevice,
    /// The mesh, as of `--mesh`.
    pub mesh: String,
    /// Ranks of the mesh.
    pub ranks: usize,
    /// Ranks that share the device and its host: all ranks on a CPU, 1 on a GPU of their own.
    pub sharing_ranks: usize,
    /// Compute dtype.
    pub dtype: String,
    /// Seconds of a step: the median of the steady steps that are not measured, if there are any.
    pub step_seconds: f64,
    /// Seconds of a measured step, which the clock makes longer; a median.
    pub recorded_seconds: f64,
    /// Seconds of a measured step outside of kernels and communication, on the thread of the rank; a median.
    pub host_seconds: f64,
    /// Number of measured steps.
    pub measured_steps: usize,
    /// Kernels of a step of the recorded ranks together.
    pub kernels: Vec<KernelRecord>,
    /// Calls of a step of the recorded ranks together.
    pub calls: Vec<CallRecord>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedDevice {
    /// `cpu` or `cuda`.
    pub kind: String,
    /// Name of the CPU or GPU.
    pub name: String,
    /// Cores of the CPU, or streaming multiprocessors.
    pub units: usize,
    /// Bytes of memory; on the CPU, those available to all ranks.
    pub memory: u64,
}

/// Equal kernels of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelRecord {
    /// Name of the operation.
    pub op: String,
    /// Dims, as of [`Kernel::dims`].
    pub dims: [u32; 4],
    /// Dtype.
    pub dtype: String,
    /// Kernels in a step.
    pub count: u64,
    /// FLOPs of each.
    pub flops: u64,
    /// Bytes that each reads.
    pub read: u64,
    /// Bytes that each writes.
    pub written: u64,
    /// Mean seconds of each in a step; of several steps, the median.
    pub seconds: f64,
}

/// Equal collectives or messages of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Name of the operation.
    pub op: String,
    /// Ranks of the process group.
    pub group: usize,
    /// Payload bytes that a rank sends; of a receive, those that it receives.
    pub bytes: u64,
    /// Calls in a step.
    pub count: u64,
    /// Mean seconds in a step, from the arrival of the last member on; of several steps, the median.
    pub seconds: f64,
}

impl StepRecord {
    /// Returns the format of records that this version writes.
    pub fn format() -> (String, u32) {
        (FORMAT.to_owned(), VERSION)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// A file that cannot be read, and one that is no record: the error names what it is, if that is known.
    pub fn read(path: &Path) -> Result<StepRecord, CalibrateError> {
        let text = read_text(path)
            .map_err(|error| CalibrateError::Unreadable { path: path.into(), error })?;
        StepRecord::parse(&text)
            .map_err(|found| CalibrateError::NoRecord { path: path.into(), found })
    }

    /// Returns true for the text of a record.
    pub fn is_record(text: &str) -> bool {
        StepRecord::parse(text).is_ok()
    }

    /// Parses a record, or describes what the text is.
    fn parse(text: &str) -> Result<StepRecord, String> {
        let describe = |text: &str| match text.lines().find(|line| !line.trim().is_empty()) {
            None => "is empty".to_owned(),
            Some(line) if line.starts_with('[') => "is TOML, such as a cluster".to_owned(),
            Some(_) => "is not JSON".to_owned(),
        };
        let value: serde_json::Value = serde_json::from_str(text).map_err(|_| describe(text))?;
        let has = |key: &str| value.get(key).is_some();
        if value.get("format").and_then(|format| format.as_str()) != Some(FORMAT) {
            return Err(if has("traceEvents") {
                "is a trace, as of --trace".to_owned()
            } else if has("step_s") || has("collectives") || has("kernels") {
                "is the log of a dry run, which has no durations, as --explain and --simulate print it".to_owned()
            } else if has("loss") {
                "is a line of --metrics".to_owned()
            } else {
                "is other JSON".to_owned()
            });
        }
        let version = value.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(u64::from(VERSION)) {
            let version = version.map_or("unknown".into(), |version| version.to_string());
            return Err(format!(
                "has the version {version} of the format; this program reads {VERSION}"
            ));
        }
        let record: StepRecord = serde_json::from_value(value)
            .map_err(|error| format!("is an incomplete record ({error})"))?;
        record.check().map(|()| record)
    }

    /// Refuses numbers that no measurement has.
    fn check(&self) -> Result<(), String> {
        if let Some(kernel) = self.kernels.iter().find(|kernel| kernel.kernel().is_none()) {
            return Err(format!("has the unknown kernel `{}` of {}", kernel.op, kernel.dtype));
        }
        let seconds = self.kernels.iter().map(|kernel| kernel.seconds);
        let seconds = seconds.chain(self.calls.iter().map(|call| call.seconds));
        if !seconds.chain([self.step_seconds]).all(|seconds| seconds.is_finite() && seconds >= 0.0)
        {
            return Err("has durations that are negative".to_owned());
        }
        if self.ranks == 0 || self.sharing_ranks == 0 || dtype_of(&self.dtype).is_none() {
            return Err("has no ranks, or an unknown dtype".to_owned());
        }
        Ok(())
    }

    /// Returns the compute dtype.
    pub(super) fn compute_dtype(&self) -> DType {
        dtype_of(&self.dtype).expect("records are checked")
    }

    /// Returns true if the device is the CPU.
    pub fn is_of_cpu(&self) -> bool {
        self.device.kind == "cpu"
    }
}

impl KernelRecord {
    /// Returns the kernel; `None` for an unknown operation or dtype.
    pub fn kernel(&self) -> Option<Kernel> {
        let op = *KernelOp::ALL.iter().find(|op| op.name() == self.op)?;
        let &KernelRecord { dims, flops, read, written, .. } = self;
        Some(Kernel { op, dims, dtype: dtype_of(&self.dtype)?, flops, read, written })
    }
}

fn dtype_of(name: &str) -> Option<DType> {
    [DType::F32, DType::Bf16, DType::U32, DType::F64].into_iter().find(|dtype| dtype.name() == name)
}
