//! A driver that measures the time of every call.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::{CallKey, PROFILE_VARIABLE, Profile};
use crate::FusedShape;
use crate::algorithm_choices::{AlgorithmChoices, AttentionChoice};
use crate::gpu::lock_unpoisoned;
use crate::{
    AttentionGradients, AttentionOperands, DeviceProperties, Driver, DriverError, Event,
    FusedAttention, Graph, Grid, KernelFunction, KernelModule, KernelSource, MatMul,
    MatMulOperands, Stream,
};
use meshwright_backend::Band;

/// Number of unread spans at which completed ones are read.
const READ_THRESHOLD: usize = 1024;

/// Wraps the driver of a rank and measures the time of its device work. It refuses stream capture: the calls of a
/// launched CUDA graph cannot be timed one by one.
pub struct ProfiledDriver {
    inner: Arc<dyn Driver>,
    profile: Arc<Profile>,
    rank: usize,
    names: Mutex<HashMap<KernelFunction, Arc<str>>>,
    streams: Mutex<HashMap<Stream, Arc<str>>>,
    stream_count: AtomicUsize,
    spans: Mutex<Spans>,
    /// Passes of attention on our own kernels.
    attention: Mutex<Vec<AttentionChoice>>,
}

/// Submitted calls whose times are unread, and free events.
#[derive(Default)]
struct Spans {
    unread: Vec<EventSpan>,
    free: Vec<[Event; 2]>,
}

/// A call between two events.
struct EventSpan {
    call: CallKey,
    stream: Stream,
    events: [Event; 2],
}

impl ProfiledDriver {
    /// Creates a driver that forwards the calls of `rank` to `inner`.
    pub fn new(inner: Arc<dyn Driver>, profile: Arc<Profile>, rank: usize) -> ProfiledDriver {
        ProfiledDriver {
            inner,
            profile,
            rank,
            names: Mutex::default(),
            streams: Mutex::default(),
            stream_count: AtomicUsize::new(0),
            spans: Mutex::default(),
            attention: Mutex::default(),
        }
    }

    /// Makes a call between two recorded events.
    fn timed_call(
        &self,
        stream: Stream,
        name: impl Into<Arc<str>>,
        shape: String,
        call: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let events = match lock_unpoisoned(&self.spans).free.pop() {
            Some(events) => events,
            None => [self.inner.new_event(true)?, self.inner.new_event(true)?],
        };
        self.inner.record(events[0], stream)?;
        let done = call();
        if done.is_err() {
            lock_unpoisoned(&self.spans).free.push(events);
            return done;
        }
        self.inner.record(events[1], stream)?;
        let of_stream = lock_unpoisoned(&self.streams).get(&stream).cloned();
        let call = CallKey {
            name: name.into(),
            shape,
            rank: self.rank,
            stream: of_stream.unwrap_or_else(|| "?".into()),
        };
        let mut spans = lock_unpoisoned(&self.spans);
        spans.unread.push(EventSpan { call, stream, events });
        if spans.unread.len() < READ_THRESHOLD {
            return Ok(());
        }
        drop(spans);
        self.read_times(|_| true)
    }

    /// Reads the times of completed calls on the selected streams.
    fn read_times(&self, of: impl Fn(Stream) -> bool) -> Result<(), DriverError> {
        let mut spans = lock_unpoisoned(&self.spans);
        let unread = std::mem::take(&mut spans.unread);
        for span in unread {
            let [from, to] = span.events;
            if !of(span.stream) || !self.inner.is_done(to)? {
                spans.unread.push(span);
                continue;
            }
            self.profile.record_time(span.call, self.inner.elapsed_ms(from, to)?);
            spans.free.push(span.events);
        }
        Ok(())
    }
}

impl Drop for ProfiledDriver {
    fn drop(&mut self) {
        // If the device has failed, unread times are lost; the failed call has reported the error.
        let _ = self.read_times(|_| true);
        let spans = std::mem::take(&mut *lock_unpoisoned(&self.spans));
        let unread = spans.unread.into_iter().map(|span| span.events);
        for event in spans.free.into_iter().chain(unread).flatten() {
            let _ = self.inner.free_event(event);
        }
        self.profile.note_choices(self.algorithm_choices());
    }
}

impl fmt::Debug for ProfiledDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, profiled", self.inner)
    }
}

/// Forwards methods that are not measured.
macro_rules! unchanged {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> $result {
            self.inner.$name($($arg),*)
        })*
    };
}

type Done<T = ()> = Result<T, DriverError>;

impl Driver for ProfiledDriver {
    unchanged! {
        properties() -> &DeviceProperties;
        free_memory() -> Done<usize>;
        alloc(bytes: usize) -> Done<u64>;
        workspace_bytes(streams: &[Stream]) -> usize;
        alloc_pinned(bytes: usize) -> Done<*mut u8>;
        new_event(timed: bool) -> Done<Event>;
        free_event(event: Event) -> Done;
        record(event: Event, stream: Stream) -> Done;
        record_in_graph(event: Event, stream: Stream) -> Done;
        wait(stream: Stream, event: Event) -> Done;
        is_done(event: Event) -> Done<bool>;
        elapsed_ms(from: Event, to: Event) -> Done<f32>;
        load(source: &KernelSource) -> Done<KernelModule>;
        has_matmul(shape: &MatMul) -> Done<bool>;
        end_capture(stream: Stream) -> Done<Graph>;
        free_graph(graph: Graph) -> Done;
    }

    fn algorithm_choices(&self) -> AlgorithmChoices {
        let mut choices = self.inner.algorithm_choices();
        choices.attention.extend(lock_unpoisoned(&self.attention).iter().cloned());
        choices
    }

    fn note_attention(&self, choice: &dyn Fn() -> AttentionChoice) {
        let choice = choice();
        let mut noted = lock_unpoisoned(&self.attention);
        if !noted.contains(&choice) {
            noted.push(choice);
        }
    }

    unsafe fn free(&self, address: u64, bytes: usize) -> Done {
        // SAFETY: as the caller promises.
        unsafe { self.inner.free(address, bytes) }
    }

    unsafe fn free_pinned(&self, memory: *mut u8, bytes: usize) -> Done {
        // SAFETY: as the caller promises.
        unsafe { self.inner.free_pinned(memory, bytes) }
    }

    fn new_stream(&self, high_priority: bool) -> Done<Stream> {
        let stream = self.inner.new_stream(high_priority)?;
        let number = self.stream_count.fetch_add(1, Ordering::Relaxed);
        let name =
            if high_priority { format!("{number} (high priority)") } else { number.to_string() };
        lock_unpoisoned(&self.streams).insert(stream, name.into());
        Ok(stream)
    }

    fn free_stream(&self, stream: Stream) -> Done {
        self.synchronize(stream)?;
        lock_unpoisoned(&self.streams).remove(&stream);
        self.inner.free_stream(stream)
    }

    fn synchronize(&self, stream: Stream) -> Done {
        self.inner.synchronize(stream)?;
        self.read_times(|other| other == stream)
    }

    unsafe fn upload(&self, stream: Stream, dst: u64, src: *const c_void, bytes: usize) -> Done {
        self.timed_call(stream, "upload", size_text(bytes), || {
            // SAFETY: as the caller promises.
            unsafe { self.inner.upload(stream, dst, src, bytes) }
        })
    }

    unsafe fn download(&self, stream: Stream, dst: *mut c_void, src: u64, bytes: usize) -> Done {
        self.timed_call(stream, "download", size_text(bytes), || {
            // SAFETY: as the caller promises.
            unsafe { self.inner.download(stream, dst, src, bytes) }
        })
    }

    unsafe fn copy(&self, stream: Stream, dst: u64, src: u64, bytes: usize) -> Done {
        self.timed_call(stream, "copy", size_text(bytes), || {
            // SAFETY: as the caller promises.
            unsafe { self.inner.copy(stream, dst, src, bytes) }
        })
    }

    unsafe fn zero(&self, stream: Stream, dst: u64, bytes: usize) -> Done {
        self.timed_call(stream, "zero", size_text(bytes), || {
            // SAFETY: as the caller promises.
            unsafe { self.inner.zero(stream, dst, bytes) }
        })
    }

    fn function(&self, module: KernelModule, name: &str) -> Done<KernelFunction> {
        let function = self.inner.function(module, name)?;
        lock_unpoisoned(&self.names).insert(function, name.into());
        Ok(function)
    }

    unsafe fn launch(
        &self,
        stream: Stream,
        function: KernelFunction,
        grid: Grid,
        args: &[&[u8]],
    ) -> Done {
        let name =
            lock_unpoisoned(&self.names).get(&function).cloned().unwrap_or_else(|| "?".into());
        let ([x, y, z], threads) = (grid.blocks, grid.threads);
        self.timed_call(stream, name, format!("{x} x {y} x {z} blocks of {threads}"), || {
            // SAFETY: as the caller promises.
            unsafe { self.inner.launch(stream, function, grid, args) }
        })
    }

    unsafe fn matmul(&self, stream: Stream, shape: &MatMul, operands: &MatMulOperands) -> Done {
        self.timed_call(stream, "matmul", shape.to_string(), || {
            // SAFETY: as the caller promises.
            unsafe { self.inner.matmul(stream, shape, operands) }
        })
    }

    fn attention(&self) -> Option<&dyn FusedAttention> {
        self.inner.attention().map(|_| self as &dyn FusedAttention)
    }

    fn begin_capture(&self, _: Stream) -> Done {
        let reason = "captured calls cannot be timed one by one".to_owned();
        Err(DriverError::Refused { call: PROFILE_VARIABLE, reason })
    }

    unsafe fn launch_graph(&self, stream: Stream, graph: Graph) -> Done {
        // SAFETY: as the caller promises.
        unsafe { self.inner.launch_graph(stream, graph) }
    }
}

/// Forwards to the fused attention of the inner driver, which is present if this one is used.
impl FusedAttention for ProfiledDriver {
    fn supports(&self, shape: &FusedShape) -> bool {
        self.inner.attention().is_some_and(|attention| attention.supports(shape))
    }

    fn supports_backward(&self, shape: &FusedShape, free_bytes: usize) -> bool {
        self.inner
            .attention()
            .is_some_and(|attention| attention.supports_backward(shape, free_bytes))
    }

    unsafe fn forward(
        &self,
        stream: Stream,
        shape: &FusedShape,
        operands: &AttentionOperands,
    ) -> Done {
        let attention = self.inner.attention().ok_or_else(missing_attention)?;
        self.timed_call(stream, "attention", shape_text(shape), || {
            // SAFETY: as the caller promises.
            unsafe { attention.forward(stream, shape, operands) }
        })
    }

    unsafe fn backward(
        &self,
        stream: Stream,
        shape: &FusedShape,
        operands: &AttentionOperands,
        gradients: &AttentionGradients,
    ) -> Done {
        let attention = self.inner.attention().ok_or_else(missing_attention)?;
        self.timed_call(stream, "attention backward", shape_text(shape), || {
            // SAFETY: as the caller promises.
            unsafe { attention.backward(stream, shape, operands, gradients) }
        })
    }
}

fn missing_attention() -> DriverError {
    DriverError::Library("the driver has no attention".to_owned())
}

fn size_text(bytes: usize) -> String {
    format!("{bytes} bytes")
}

fn shape_text(shape: &FusedShape) -> String {
    let FusedShape { batch, queries, keys, heads, kv_heads, head_dim, value_dim, .. } = shape;
    let keys = if keys.len == *queries { String::new() } else { format!(" x {}", keys.len) };
    let dim = if value_dim == head_dim { String::new() } else { format!("/{value_dim}") };
    let mask = match shape.band {
        Band::ALL => "",
        Band::CAUSAL => " causal",
        _ => " window",
    };
    format!("{batch} x {queries}{keys} x {heads}/{kv_heads} x {head_dim}{dim}{mask}")
}
