//! A driver that does nothing, for measuring launch overhead and recording the calls that the backend makes.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::driver::{
    CallKind, DeviceProperties, Driver, DriverError, Event, FusedAttention, GpuCall, Graph,
    KernelFunction, KernelModule, KernelSource, Reply, Stream,
};
use super::fused_shape::FusedShape;
use super::gpu::lock_unpoisoned;

/// An observer of calls and their replies.
type Observer = dyn Fn(&GpuCall<'_>, Reply) + Send + Sync;

/// A driver whose calls return immediately and do nothing.
///
/// Addresses and handles are numbers without memory behind them, except page-locked host memory, which is real.
/// Functions are numbered from 0.
pub struct NullDriver {
    properties: DeviceProperties,
    observer: Box<Observer>,
    attention: Option<NullAttention>,
    sources: Mutex<Vec<KernelSource>>,
    functions: AtomicU64,
    next: AtomicU64,
}

/// Fused attention that does nothing, and supports every shape.
pub struct NullAttention {
    /// True if it supports the backward pass.
    pub supports_backward: bool,
}

impl NullDriver {
    /// Creates a driver that reports the limits of an H200 and has no fused attention. `observer` receives its calls
    /// with their replies.
    pub fn new(observer: impl Fn(&GpuCall<'_>, Reply) + Send + Sync + 'static) -> NullDriver {
        let properties = DeviceProperties {
            name: "null".to_string(),
            capability: (9, 0),
            multiprocessors: 132,
            memory: 141 << 30,
            shared_memory: 227 << 10,
        };
        NullDriver {
            properties,
            observer: Box::new(observer),
            attention: None,
            sources: Mutex::default(),
            functions: AtomicU64::new(0),
            next: AtomicU64::new(1 << 20),
        }
    }

    /// Adds fused attention that supports every shape.
    pub fn with_attention(self) -> NullDriver {
        NullDriver { attention: Some(NullAttention { supports_backward: true }), ..self }
    }

    /// Returns the sources loaded so far, each once.
    pub fn loaded_sources(&self) -> Vec<KernelSource> {
        lock_unpoisoned(&self.sources).clone()
    }

    fn new_handle(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Returns the reply to a call that does not submit work.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn reply(&self, call: &GpuCall<'_>) -> Result<Reply, DriverError> {
        Ok(match *call {
            GpuCall::FreeMemory {} => self.properties.memory.into(),
            GpuCall::Alloc { bytes } => {
                self.next.fetch_add(bytes as u64 + 512, Relaxed).next_multiple_of(256).into()
            }
            GpuCall::AllocPinned { bytes } => alloc_pinned(bytes)?.into(),
            GpuCall::FreePinned { memory, bytes } => {
                // SAFETY: as the caller promises.
                unsafe { free_pinned(memory, bytes) };
                ().into()
            }
            GpuCall::NewStream { .. } => Stream(self.new_handle()).into(),
            GpuCall::NewEvent { .. } => Event(self.new_handle()).into(),
            GpuCall::IsDone { .. } | GpuCall::HasMatMul { .. } => true.into(),
            GpuCall::ElapsedMs { .. } => 0.0f32.into(),
            GpuCall::Load { source } => self.load(source).into(),
            GpuCall::Function { .. } => KernelFunction(self.functions.fetch_add(1, Relaxed)).into(),
            GpuCall::EndCapture { .. } => Graph(self.new_handle()).into(),
            _ => ().into(),
        })
    }

    fn load(&self, source: &KernelSource) -> KernelModule {
        let mut sources = lock_unpoisoned(&self.sources);
        let known = sources.iter().position(|known| known == source);
        let index = known.unwrap_or_else(|| {
            sources.push(source.clone());
            sources.len() - 1
        });
        KernelModule(index as u64)
    }
}

impl fmt::Debug for NullDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NullDriver")
    }
}

impl Driver for NullDriver {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    unsafe fn submit(&self, call: GpuCall<'_>) -> Result<Reply, DriverError> {
        // Most calls concern a stream, and only one of these has a value.
        let has_value = call.stream().is_none() || call.kind() == CallKind::EndCapture;
        // SAFETY: as the caller promises.
        let reply = if has_value { unsafe { self.reply(&call) }? } else { ().into() };
        (self.observer)(&call, reply);
        Ok(reply)
    }

    fn attention(&self) -> Option<&dyn FusedAttention> {
        self.attention.as_ref().map(|attention| attention as &dyn FusedAttention)
    }
}

impl FusedAttention for NullAttention {
    fn supports(&self, _: &FusedShape) -> bool {
        true
    }

    fn supports_backward(&self, _: &FusedShape, _: usize) -> bool {
        self.supports_backward
    }
}

/// Alignment of page-locked memory.
const PAGE: usize = 4096;

fn alloc_pinned(bytes: usize) -> Result<*mut u8, DriverError> {
    match Layout::from_size_align(bytes, PAGE) {
        // SAFETY: the layout is not empty.
        Ok(layout) if bytes > 0 => Ok(unsafe { alloc_zeroed(layout) }),
        _ => Err(DriverError::OutOfMemory { bytes }),
    }
}

/// # Safety
/// [`alloc_pinned`] allocated the memory with the same `bytes`, and nothing uses it any more.
unsafe fn free_pinned(memory: *mut u8, bytes: usize) {
    if let Ok(layout) = Layout::from_size_align(bytes, PAGE) {
        // SAFETY: as the caller promises.
        unsafe { dealloc(memory, layout) };
    }
}
