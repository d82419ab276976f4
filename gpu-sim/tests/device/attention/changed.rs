//! Simulated devices with modified kernels or with fused attention.

use std::fmt;
use std::sync::Mutex;

use meshwright_cuda::{
    CallKind, DeviceProperties, Driver, DriverError, FusedAttention, GpuCall, KernelSource,
    NullAttention, Reply,
};
use meshwright_gpu_sim::SimDriver;

/// A device that changes every source before it is compiled.
pub struct Changed<F> {
    pub device: SimDriver,
    pub change: F,
    /// Fused attention that does nothing.
    pub attention: Option<NullAttention>,
    /// Calls of fused attention.
    pub calls: Mutex<Vec<CallKind>>,
}

impl<F> Changed<F> {
    /// Creates a device without fused attention.
    pub fn new(seed: u64, change: F) -> Changed<F> {
        Changed { device: SimDriver::new(seed), change, attention: None, calls: Mutex::default() }
    }
}

impl<F> fmt::Debug for Changed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}

impl<F: Fn(&KernelSource) -> KernelSource + Send + Sync> Driver for Changed<F> {
    fn properties(&self) -> &DeviceProperties {
        self.device.properties()
    }

    unsafe fn submit(&self, call: GpuCall<'_>) -> Result<Reply, DriverError> {
        // SAFETY: as the caller promises.
        let forward = |call: GpuCall<'_>| unsafe { self.device.submit(call) };
        match call {
            GpuCall::Load { source } => forward(GpuCall::Load { source: &(self.change)(source) }),
            GpuCall::Attention { .. } | GpuCall::AttentionBackward { .. } => {
                self.calls.lock().expect("no panic").push(call.kind());
                Ok(().into())
            }
            call => forward(call),
        }
    }

    fn attention(&self) -> Option<&dyn FusedAttention> {
        self.attention.as_ref().map(|attention| attention as &dyn FusedAttention)
    }
}
