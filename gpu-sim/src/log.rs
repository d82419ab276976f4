//! Log of driver calls for tests of call sequences, and fault injection.

use meshwright_cuda::{CallKind, DriverError, GpuCall, Grid, MatMul, Stream};

/// A call to a driver, as tests read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Number of the driver, from 0 in the order of creation.
    pub driver: usize,
    /// The kind of the call.
    pub kind: CallKind,
    /// The stream of the call, or the new stream.
    pub stream: Option<Stream>,
    /// Number of bytes to allocate, free or copy.
    pub bytes: usize,
    /// Name of the kernel or of its source.
    pub name: Option<String>,
    /// Dimensions of a launch.
    pub grid: Option<Grid>,
    /// Shape of a matmul.
    pub shape: Option<MatMul>,
}

impl Entry {
    /// Creates the entry of a call of a driver; `kernel` is the name of a launched kernel.
    pub(crate) fn new(driver: usize, call: &GpuCall<'_>, kernel: Option<String>) -> Entry {
        let (kind, stream, bytes) = (call.kind(), call.stream(), call.bytes());
        let mut entry =
            Entry { driver, kind, stream, bytes, name: kernel, grid: None, shape: None };
        match *call {
            GpuCall::Load { source } => entry.name = Some(source.name.to_string()),
            GpuCall::Function { name, .. } => entry.name = Some(name.to_string()),
            GpuCall::Launch { grid, .. } => entry.grid = Some(grid),
            GpuCall::MatMul { shape, .. } => entry.shape = Some(*shape),
            _ => (),
        }
        entry
    }

    /// Returns the kernel and the dimensions of a launch.
    pub fn launch(&self) -> Option<(&str, Grid)> {
        Some((self.name.as_deref()?, self.grid?))
    }
}

/// An injected fault.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: CallKind,
    /// Number of calls of the kind that still succeed.
    pub(crate) left: usize,
    pub(crate) error: DriverError,
}
