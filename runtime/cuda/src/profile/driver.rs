//! A driver that measures the time of every call.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use super::{CallKey, PROFILE_VARIABLE, Profile};
use crate::FusedShape;
use crate::algorithm_choices::{AlgorithmChoices, AttentionChoice};
use crate::gpu::lock_unpoisoned;
use crate::{
    DeviceProperties, Driver, DriverCalls, DriverError, Event, FusedAttention, GpuCall, Grid,
    KernelFunction, Reply, Stream,
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
    names: Mutex<Names>,
    spans: Mutex<Spans>,
    /// Passes of attention on our own kernels.
    attention: Mutex<Vec<AttentionChoice>>,
}

/// Names of kernels and streams.
#[derive(Default)]
struct Names {
    kernels: HashMap<KernelFunction, Arc<str>>,
    streams: HashMap<Stream, Arc<str>>,
    /// Number of streams created so far.
    stream_count: usize,
}

/// Submitted calls whose times are unread, and free events.
#[derive(Default)]
struct Spans {
    unread: Vec<EventSpan>,
    free: Vec<[Event; 2]>,
}

/// Work that is measured.
struct Work {
    name: Arc<str>,
    shape: String,
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
            spans: Mutex::default(),
            attention: Mutex::default(),
        }
    }

    /// Makes a call between two recorded events.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn timed_call(
        &self,
        stream: Stream,
        work: Work,
        call: GpuCall<'_>,
    ) -> Result<Reply, DriverError> {
        let events = match lock_unpoisoned(&self.spans).free.pop() {
            Some(events) => events,
            None => [self.inner.new_event(true)?, self.inner.new_event(true)?],
        };
        self.inner.record(events[0], stream)?;
        // SAFETY: as the caller promises.
        let done = unsafe { self.inner.submit(call) };
        if done.is_err() {
            lock_unpoisoned(&self.spans).free.push(events);
            return done;
        }
        self.inner.record(events[1], stream)?;
        let stream_name = lock_unpoisoned(&self.names).streams.get(&stream).cloned();
        let stream_name = stream_name.unwrap_or_else(|| "?".into());
        let Work { name, shape } = work;
        let call = CallKey { name, shape, rank: self.rank, stream: stream_name };
        let mut spans = lock_unpoisoned(&self.spans);
        spans.unread.push(EventSpan { call, stream, events });
        if spans.unread.len() >= READ_THRESHOLD {
            drop(spans);
            self.read_times(|_| true)?;
        }
        done
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

    /// Describes the work that a call submits and that is measured; `None` for other calls.
    fn describe_work(&self, call: &GpuCall<'_>) -> Option<Work> {
        let (name, shape) = match *call {
            GpuCall::Upload { bytes, .. } => ("upload", format!("{bytes} bytes")),
            GpuCall::Download { bytes, .. } => ("download", format!("{bytes} bytes")),
            GpuCall::Copy { bytes, .. } => ("copy", format!("{bytes} bytes")),
            GpuCall::Zero { bytes, .. } => ("zero", format!("{bytes} bytes")),
            GpuCall::MatMul { shape, .. } => ("matmul", shape.to_string()),
            GpuCall::Attention { shape, .. } => ("attention", shape_text(shape)),
            GpuCall::AttentionBackward { shape, .. } => ("attention backward", shape_text(shape)),
            GpuCall::Launch { function, grid: Grid { blocks: [x, y, z], threads, .. }, .. } => {
                let name = lock_unpoisoned(&self.names).kernels.get(&function).cloned();
                let shape = format!("{x} x {y} x {z} blocks of {threads}");
                return Some(Work { name: name.unwrap_or_else(|| "?".into()), shape });
            }
            _ => return None,
        };
        Some(Work { name: name.into(), shape })
    }
}

impl Driver for ProfiledDriver {
    fn properties(&self) -> &DeviceProperties {
        self.inner.properties()
    }

    unsafe fn submit(&self, call: GpuCall<'_>) -> Result<Reply, DriverError> {
        if let (Some(stream), Some(work)) = (call.stream(), self.describe_work(&call)) {
            // SAFETY: as the caller promises.
            return unsafe { self.timed_call(stream, work, call) };
        }
        match call {
            GpuCall::BeginCapture { .. } => {
                let reason = "captured calls cannot be timed one by one".to_owned();
                return Err(DriverError::Refused { call: PROFILE_VARIABLE, reason });
            }
            GpuCall::FreeStream { stream } => {
                self.synchronize(stream)?;
                lock_unpoisoned(&self.names).streams.remove(&stream);
            }
            _ => (),
        }
        // SAFETY: as the caller promises.
        let reply = unsafe { self.inner.submit(call) }?;
        match (call, reply) {
            (GpuCall::Synchronize { stream }, _) => self.read_times(|other| other == stream)?,
            (GpuCall::Function { name, .. }, Reply::Function(function)) => {
                lock_unpoisoned(&self.names).kernels.insert(function, name.into());
            }
            (GpuCall::NewStream { high_priority }, Reply::Stream(stream)) => {
                let names = &mut *lock_unpoisoned(&self.names);
                let priority = if high_priority { " (high priority)" } else { "" };
                names.streams.insert(stream, format!("{}{priority}", names.stream_count).into());
                names.stream_count += 1;
            }
            _ => (),
        }
        Ok(reply)
    }

    fn attention(&self) -> Option<&dyn FusedAttention> {
        self.inner.attention()
    }

    fn workspace_bytes(&self, stream: Stream) -> usize {
        self.inner.workspace_bytes(stream)
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
