//! The driver of one GPU.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use cudarc::driver::sys::{
    CUevent, CUevent_record_flags, CUgraphExec, CUmodule, CUstreamCaptureMode,
};
use rayon::prelude::*;

use super::attention::cudnn_attention;
use super::compiler::KernelCompiler;
use super::context::{DeviceContext, call};
use super::matmul::CublasLtMatMuls;
use super::streams::{self, cu_stream};
use super::{memory, modules};
use crate::cudnn::{CudnnAttention, CudnnOptions};
use crate::gpu::lock_unpoisoned;
use crate::{
    AlgorithmChoices, DeviceProperties, Driver, DriverCalls, DriverError, FusedAttention, GpuCall,
    KernelModule, KernelSource, Reply, Stream,
};

/// Options of a [`NativeDriver`].
pub struct NativeOptions {
    /// Permits any matmul algorithm when autotuning, not only those whose results are bitwise equal to the heuristic's
    /// first proposal. Another run may choose other algorithms, and its sums then differ in their last bits.
    pub allow_nondeterministic: bool,
    /// Options of attention by cuDNN, if installed; `None` disables it.
    pub attention: Option<CudnnOptions>,
}

impl Default for NativeOptions {
    fn default() -> NativeOptions {
        NativeOptions { allow_nondeterministic: false, attention: Some(CudnnOptions::default()) }
    }
}

/// One GPU over the vendor's libraries. Ranks of one process may share it.
pub struct NativeDriver {
    ordinal: usize,
    context: Arc<DeviceContext>,
    compiler: KernelCompiler,
    modules: Mutex<HashMap<KernelSource, Arc<LoadOnce>>>,
    matmuls: CublasLtMatMuls,
    attention: Result<CudnnAttention, String>,
}

/// A module that is loaded once; concurrent requests wait.
type LoadOnce = OnceLock<Result<KernelModule, DriverError>>;

impl NativeDriver {
    /// Creates the driver of device `ordinal` among the visible devices.
    ///
    /// Fails with one message if a library is missing or too old, or the device does not exist.
    pub fn new(ordinal: usize) -> Result<Arc<NativeDriver>, DriverError> {
        NativeDriver::with_options(ordinal, NativeOptions::default())
    }

    /// Creates a driver as [`new`](Self::new), with options.
    pub fn with_options(
        ordinal: usize,
        options: NativeOptions,
    ) -> Result<Arc<NativeDriver>, DriverError> {
        let context = Arc::new(DeviceContext::new(ordinal)?);
        let compiler = KernelCompiler::new(&context)?;
        let matmuls = CublasLtMatMuls::new(&context, options.allow_nondeterministic)?;
        let attention = match options.attention {
            Some(options) => cudnn_attention(&context, options),
            None => Err("cuDNN is switched off".to_string()),
        };
        let modules = Mutex::default();
        Ok(Arc::new(NativeDriver { ordinal, context, compiler, modules, matmuls, attention }))
    }

    /// Compiles sources in parallel, on all cores, so that the first step does not compile them one after another.
    pub fn preload(&self, sources: &[&KernelSource]) -> Result<(), DriverError> {
        sources.par_iter().try_for_each(|source| self.load(source).map(drop))
    }

    /// Returns attention by cuDNN, or the reason why it is not available.
    pub fn cudnn(&self) -> Result<&CudnnAttention, &str> {
        self.attention.as_ref().map_err(String::as_str)
    }

    /// Returns the `CUstream` of a stream, for libraries that submit work to it.
    pub fn raw_stream(&self, stream: Stream) -> *mut c_void {
        stream.0 as *mut c_void
    }

    /// Makes the device's context current on the calling thread, for libraries that use the current context.
    pub fn make_current(&self) -> Result<(), DriverError> {
        self.context.make_current()
    }

    fn required_attention(&self) -> Result<&CudnnAttention, DriverError> {
        self.cudnn().map_err(|reason| DriverError::Library(reason.to_owned()))
    }

    /// Destroys a stream after its work is done, with the library workspaces that it has.
    ///
    /// # Safety
    /// The stream is live and not used any more.
    unsafe fn destroy_stream(&self, stream: Stream) -> Result<(), DriverError> {
        self.synchronize(stream)?;
        self.matmuls.free_stream(&self.context, stream)?;
        if let Ok(attention) = &self.attention {
            attention.free_stream(stream)?;
        }
        // SAFETY: as the caller promises, and the work of the stream is done.
        unsafe { call!(self.context.api, cuStreamDestroy_v2(cu_stream(stream))) }
    }

    /// Returns the module of a source. Other sources compile concurrently; each source is compiled once.
    fn load_module(&self, source: &KernelSource) -> Result<KernelModule, DriverError> {
        let module = Arc::clone(lock_unpoisoned(&self.modules).entry(source.clone()).or_default());
        module.get_or_init(|| self.compile_module(source)).clone()
    }

    fn compile_module(&self, source: &KernelSource) -> Result<KernelModule, DriverError> {
        let code = self.compiler.machine_code(source)?;
        self.context.make_current()?;
        modules::load_module(&self.context, &code)
    }
}

impl fmt::Debug for NativeDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} ({})", self.ordinal, self.context.properties.name)
    }
}

impl Drop for NativeDriver {
    fn drop(&mut self) {
        // Streams and memory are already freed by their owners. Errors cannot be handled here.
        if self.context.make_current().is_err() {
            return;
        }
        self.matmuls.free_all(&self.context);
        for module in
            lock_unpoisoned(&self.modules).values().filter_map(|module| module.get()?.as_ref().ok())
        {
            // SAFETY: no work uses its functions any more.
            unsafe { (self.context.api.cuModuleUnload)(module.0 as CUmodule) };
        }
    }
}

impl Driver for NativeDriver {
    fn properties(&self) -> &DeviceProperties {
        &self.context.properties
    }

    unsafe fn submit(&self, call: GpuCall<'_>) -> Result<Reply, DriverError> {
        let context = &*self.context;
        let api = context.api;
        context.make_current()?;
        // SAFETY: streams, events and graphs are live, because this driver created them and only it destroys them; CUDA
        // keeps events and graphs until the work that uses them is done. The caller promises the rest.
        let reply: Reply = unsafe {
            match call {
                GpuCall::FreeMemory {} => memory::free_bytes(context)?.into(),
                GpuCall::Alloc { bytes } => memory::alloc(context, bytes)?.into(),
                GpuCall::Free { address, .. } => memory::free(context, address)?.into(),
                GpuCall::AllocPinned { bytes } => memory::alloc_pinned(context, bytes)?.into(),
                GpuCall::FreePinned { memory, .. } => memory::free_pinned(context, memory)?.into(),
                GpuCall::NewStream { high_priority } => {
                    streams::new_stream(context, high_priority)?.into()
                }
                GpuCall::FreeStream { stream } => self.destroy_stream(stream)?.into(),
                GpuCall::Synchronize { stream } => {
                    call!(api, cuStreamSynchronize(cu_stream(stream)))?.into()
                }
                GpuCall::NewEvent { timed } => streams::new_event(context, timed)?.into(),
                GpuCall::FreeEvent { event } => {
                    call!(api, cuEventDestroy_v2(event.0 as CUevent))?.into()
                }
                GpuCall::Record { event, stream } => {
                    call!(api, cuEventRecord(event.0 as CUevent, cu_stream(stream)))?.into()
                }
                GpuCall::RecordInGraph { event, stream } => {
                    let flags = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
                    let (event, stream) = (event.0 as CUevent, cu_stream(stream));
                    call!(api, cuEventRecordWithFlags(event, stream, flags))?.into()
                }
                GpuCall::Wait { stream, event } => {
                    let (event, stream) = (event.0 as CUevent, cu_stream(stream));
                    call!(api, cuStreamWaitEvent(stream, event, 0))?.into()
                }
                GpuCall::IsDone { event } => streams::is_done(context, event)?.into(),
                GpuCall::ElapsedMs { from, to } => streams::elapsed_ms(context, from, to)?.into(),
                GpuCall::Upload { stream, dst, src, bytes } => {
                    call!(api, cuMemcpyHtoDAsync_v2(dst, src, bytes, cu_stream(stream)))?.into()
                }
                GpuCall::Download { stream, dst, src, bytes } => {
                    call!(api, cuMemcpyDtoHAsync_v2(dst, src, bytes, cu_stream(stream)))?.into()
                }
                GpuCall::Copy { stream, dst, src, bytes } => {
                    call!(api, cuMemcpyDtoDAsync_v2(dst, src, bytes, cu_stream(stream)))?.into()
                }
                GpuCall::Zero { stream, dst, bytes } => {
                    call!(api, cuMemsetD8Async(dst, 0, bytes, cu_stream(stream)))?.into()
                }
                GpuCall::Load { source } => self.load_module(source)?.into(),
                GpuCall::Function { module, name } => {
                    modules::kernel_function(context, module, name)?.into()
                }
                GpuCall::Launch { stream, function, grid, args } => {
                    modules::launch(context, stream, function, grid, args)?.into()
                }
                GpuCall::HasMatMul { shape } => self.matmuls.is_supported(shape).into(),
                GpuCall::MatMul { stream, shape, operands } => {
                    self.matmuls.execute(self, context, stream, shape, operands)?.into()
                }
                GpuCall::Attention { stream, shape, operands } => {
                    self.required_attention()?.forward(stream, shape, operands)?.into()
                }
                GpuCall::AttentionBackward { stream, shape, operands, gradients } => {
                    self.required_attention()?.backward(stream, shape, operands, gradients)?.into()
                }
                GpuCall::BeginCapture { stream } => {
                    // Relaxed mode: this and other threads may allocate memory during capture.
                    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
                    call!(api, cuStreamBeginCapture_v2(cu_stream(stream), mode))?.into()
                }
                GpuCall::EndCapture { stream } => streams::end_capture(context, stream)?.into(),
                GpuCall::LaunchGraph { stream, graph } => {
                    call!(api, cuGraphLaunch(graph.0 as CUgraphExec, cu_stream(stream)))?.into()
                }
                GpuCall::FreeGraph { graph } => {
                    call!(api, cuGraphExecDestroy(graph.0 as CUgraphExec))?.into()
                }
            }
        };
        Ok(reply)
    }

    fn attention(&self) -> Option<&dyn FusedAttention> {
        self.attention.as_ref().ok().map(|attention| attention as &dyn FusedAttention)
    }

    fn workspace_bytes(&self, stream: Stream) -> usize {
        self.context.workspaces.bytes(stream)
    }

    fn algorithm_choices(&self) -> AlgorithmChoices {
        let attention =
            self.attention.as_ref().map_or_else(|_| Vec::new(), CudnnAttention::algorithm_choices);
        AlgorithmChoices { matmuls: self.matmuls.choices(), attention }
    }
}
