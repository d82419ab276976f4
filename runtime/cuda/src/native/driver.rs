//! The driver of one GPU.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use cudarc::driver::sys::{
    CUevent, CUevent_record_flags, CUfunction, CUgraphExec, CUmodule, CUstreamCaptureMode,
};
use rayon::prelude::*;

use super::attention::cudnn_attention;
use super::compiler::KernelCompiler;
use super::context::{DeviceContext, call};
use super::matmul::{CublasLtMatMuls, has_dtypes};
use super::streams::{self, cu_stream};
use super::{memory, modules};
use crate::cudnn::{CudnnAttention, CudnnOptions};
use crate::gpu::lock_unpoisoned;
use crate::{
    AlgorithmChoices, DeviceProperties, Driver, DriverError, Event, FusedAttention, Graph, Grid,
    KernelFunction, KernelModule, KernelSource, MatMul, MatMulEpilogue, MatMulOperands, Stream,
};
use meshwright_backend::Gemm;

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

    fn free_memory(&self) -> Result<usize, DriverError> {
        self.context.make_current()?;
        memory::free_bytes(&self.context)
    }

    fn alloc(&self, bytes: usize) -> Result<u64, DriverError> {
        self.context.make_current()?;
        memory::alloc(&self.context, bytes)
    }

    unsafe fn free(&self, address: u64, _bytes: usize) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: as the caller promises.
        unsafe { memory::free(&self.context, address) }
    }

    fn workspace_bytes(&self, streams: &[Stream]) -> usize {
        self.context.workspaces.total_bytes(streams)
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<*mut u8, DriverError> {
        self.context.make_current()?;
        memory::alloc_pinned(&self.context, bytes)
    }

    unsafe fn free_pinned(&self, memory: *mut u8, _bytes: usize) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: as the caller promises.
        unsafe { memory::free_pinned(&self.context, memory) }
    }

    fn new_stream(&self, high_priority: bool) -> Result<Stream, DriverError> {
        self.context.make_current()?;
        streams::new_stream(&self.context, high_priority)
    }

    fn free_stream(&self, stream: Stream) -> Result<(), DriverError> {
        self.synchronize(stream)?;
        self.matmuls.free_stream(&self.context, stream)?;
        if let Ok(attention) = &self.attention {
            attention.free_stream(stream)?;
        }
        // SAFETY: created by this driver, and its work is done.
        unsafe { call!(self.context.api, cuStreamDestroy_v2(cu_stream(stream))) }
    }

    fn synchronize(&self, stream: Stream) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: the stream is live.
        unsafe { call!(self.context.api, cuStreamSynchronize(cu_stream(stream))) }
    }

    fn new_event(&self, timed: bool) -> Result<Event, DriverError> {
        self.context.make_current()?;
        streams::new_event(&self.context, timed)
    }

    fn free_event(&self, event: Event) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: created by this driver. CUDA keeps it until streams that wait for it have passed.
        unsafe { call!(self.context.api, cuEventDestroy_v2(event.0 as CUevent)) }
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: both are live.
        unsafe { call!(self.context.api, cuEventRecord(event.0 as CUevent, cu_stream(stream))) }
    }

    fn record_in_graph(&self, event: Event, stream: Stream) -> Result<(), DriverError> {
        self.context.make_current()?;
        let flags = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        let (event, stream) = (event.0 as CUevent, cu_stream(stream));
        // SAFETY: both are live.
        unsafe { call!(self.context.api, cuEventRecordWithFlags(event, stream, flags)) }
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: both are live.
        unsafe {
            call!(self.context.api, cuStreamWaitEvent(cu_stream(stream), event.0 as CUevent, 0))
        }
    }

    fn is_done(&self, event: Event) -> Result<bool, DriverError> {
        self.context.make_current()?;
        streams::is_done(&self.context, event)
    }

    fn elapsed_ms(&self, from: Event, to: Event) -> Result<f32, DriverError> {
        self.context.make_current()?;
        streams::elapsed_ms(&self.context, from, to)
    }

    unsafe fn upload(
        &self,
        stream: Stream,
        dst: u64,
        src: *const c_void,
        bytes: usize,
    ) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: as the caller promises.
        unsafe { call!(self.context.api, cuMemcpyHtoDAsync_v2(dst, src, bytes, cu_stream(stream))) }
    }

    unsafe fn download(
        &self,
        stream: Stream,
        dst: *mut c_void,
        src: u64,
        bytes: usize,
    ) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: as the caller promises.
        unsafe { call!(self.context.api, cuMemcpyDtoHAsync_v2(dst, src, bytes, cu_stream(stream))) }
    }

    unsafe fn copy(
        &self,
        stream: Stream,
        dst: u64,
        src: u64,
        bytes: usize,
    ) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: as the caller promises.
        unsafe { call!(self.context.api, cuMemcpyDtoDAsync_v2(dst, src, bytes, cu_stream(stream))) }
    }

    unsafe fn zero(&self, stream: Stream, dst: u64, bytes: usize) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: as the caller promises.
        unsafe { call!(self.context.api, cuMemsetD8Async(dst, 0, bytes, cu_stream(stream))) }
    }

    fn load(&self, source: &KernelSource) -> Result<KernelModule, DriverError> {
        // Other sources compile concurrently; each source is compiled once.
        let module = Arc::clone(lock_unpoisoned(&self.modules).entry(source.clone()).or_default());
        module.get_or_init(|| self.compile_module(source)).clone()
    }

    fn function(&self, module: KernelModule, name: &str) -> Result<KernelFunction, DriverError> {
        self.context.make_current()?;
        modules::kernel_function(&self.context, module, name)
    }

    unsafe fn launch(
        &self,
        stream: Stream,
        function: KernelFunction,
        grid: Grid,
        args: &[&[u8]],
    ) -> Result<(), DriverError> {
        self.context.make_current()?;
        let [x, y, z] = grid.blocks;
        let mut args: Vec<*mut c_void> = args.iter().map(|arg| arg.as_ptr() as *mut _).collect();
        // SAFETY: as the caller promises; parameters are read during the call.
        unsafe {
            call!(
                self.context.api,
                cuLaunchKernel(
                    function.0 as CUfunction,
                    x,
                    y,
                    z,
                    grid.threads,
                    1,
                    1,
                    grid.shared,
                    cu_stream(stream),
                    args.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            )
        }
    }

    fn has_matmul(&self, shape: &MatMul) -> Result<bool, DriverError> {
        let Gemm { m, n, k, .. } = shape.gemm;
        if m == 0 || n == 0 || k == 0 || !has_dtypes(shape) {
            return Ok(false);
        }
        self.context.make_current()?;
        Ok(self.matmuls.is_supported(shape))
    }

    unsafe fn matmul(
        &self,
        stream: Stream,
        shape: &MatMul,
        operands: &MatMulOperands,
    ) -> Result<(), DriverError> {
        self.context.make_current()?;
        let gemm = &shape.gemm;
        let is_plain = shape.epilogue == MatMulEpilogue::Plain;
        if is_plain && (gemm.m == 0 || gemm.n == 0 || (gemm.k == 0 && gemm.accumulate)) {
            return Ok(());
        }
        if is_plain && gemm.k == 0 {
            let bytes = gemm.m * gemm.n * shape.result.bytes();
            // SAFETY: as the caller promises.
            return unsafe { self.zero(stream, operands.c, bytes) };
        }
        if !has_dtypes(shape) {
            let (inputs, result) = (shape.inputs, shape.result);
            return Err(DriverError::Call {
                call: "cublasLtMatmul",
                reason: format!("no matmul has {inputs} inputs and a {result} result"),
            });
        }
        // SAFETY: as the caller promises.
        unsafe { self.matmuls.execute(self, &self.context, stream, shape, operands) }
    }

    fn algorithm_choices(&self) -> AlgorithmChoices {
        let attention =
            self.attention.as_ref().map_or_else(|_| Vec::new(), CudnnAttention::algorithm_choices);
        AlgorithmChoices { matmuls: self.matmuls.choices(), attention }
    }

    fn attention(&self) -> Option<&dyn FusedAttention> {
        self.attention.as_ref().ok().map(|attention| attention as &dyn FusedAttention)
    }

    fn begin_capture(&self, stream: Stream) -> Result<(), DriverError> {
        self.context.make_current()?;
        // Relaxed mode: this and other threads may allocate memory during capture.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is live.
        unsafe { call!(self.context.api, cuStreamBeginCapture_v2(cu_stream(stream), mode)) }
    }

    fn end_capture(&self, stream: Stream) -> Result<Graph, DriverError> {
        self.context.make_current()?;
        streams::end_capture(&self.context, stream)
    }

    unsafe fn launch_graph(&self, stream: Stream, graph: Graph) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: as the caller promises.
        unsafe { call!(self.context.api, cuGraphLaunch(graph.0 as CUgraphExec, cu_stream(stream))) }
    }

    fn free_graph(&self, graph: Graph) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: created by this driver. CUDA keeps it until its work is done.
        unsafe { call!(self.context.api, cuGraphExecDestroy(graph.0 as CUgraphExec)) }
    }
}
