//! State of a simulated device, and the scheduler of its streams.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use meshwright_cuda::{DriverError, GpuCall, KernelSource};

use crate::graph::{Capture, CapturedTasks, Replay};
use crate::kernel::{Kernel, Library};
use crate::log::{Entry, Fault};
use crate::memory::{Memory, failure};
use crate::random::Random;
use crate::task::Task;

/// State of one device; its lock serializes the calls of several ranks.
pub(crate) struct State {
    pub(crate) random: Random,
    pub(crate) memory: Memory,
    pub(crate) pinned: HashMap<usize, Box<[u8]>>,
    pub(crate) streams: BTreeMap<u64, StreamState>,
    pub(crate) events: HashMap<u64, EventState>,
    pub(crate) modules: Vec<(KernelSource, Arc<Library>)>,
    pub(crate) functions: Vec<Kernel>,
    pub(crate) captures: HashMap<u64, Capture>,
    pub(crate) graphs: HashMap<u64, Arc<CapturedTasks>>,
    pub(crate) log: Vec<Entry>,
    pub(crate) faults: Vec<Fault>,
    /// Stream that the scheduler currently prefers.
    preferred: u64,
    /// A failure of submitted work, which every later call returns.
    failed: Option<DriverError>,
    handles: u64,
}

/// Pending work of a stream.
#[derive(Default)]
pub(crate) struct StreamState {
    pub(crate) queue: VecDeque<Work>,
    /// The capture that the stream takes part in.
    pub(crate) capture: Option<u64>,
}

/// An entry of a stream.
pub(crate) enum Work {
    Task(Task),
    Record(Arc<Ticket>),
    Wait(Arc<Ticket>),
    Graph(Replay),
}

/// One record of an event: the time of its completion.
pub(crate) type Ticket = OnceLock<Instant>;

/// The time of the last record of an event in a replay.
pub(crate) type Replayed = Arc<Mutex<Option<Instant>>>;

/// State of an event.
pub(crate) struct EventState {
    pub(crate) timed: bool,
    pub(crate) last: Last,
}

/// The last record of an event.
#[derive(Clone)]
pub(crate) enum Last {
    Never,
    Submitted(Arc<Ticket>),
    /// Record during capture, after these tasks of the graph.
    Captured {
        capture: u64,
        after: Vec<usize>,
    },
    /// Work in each replay of a graph.
    Replayed(Replayed),
}

impl State {
    pub(crate) fn new(seed: u64, memory: usize) -> State {
        State {
            random: Random(seed),
            memory: Memory::new(memory),
            pinned: HashMap::new(),
            streams: BTreeMap::new(),
            events: HashMap::new(),
            modules: Vec::new(),
            functions: Vec::new(),
            captures: HashMap::new(),
            graphs: HashMap::new(),
            log: Vec::new(),
            faults: Vec::new(),
            preferred: 0,
            failed: None,
            handles: 0,
        }
    }

    /// Returns a unique handle.
    pub(crate) fn new_handle(&mut self) -> u64 {
        self.handles += 1;
        self.handles
    }

    /// Logs a call; returns an error if a fault is injected or the device has failed.
    pub(crate) fn log_call(
        &mut self,
        driver: usize,
        call: &GpuCall<'_>,
    ) -> Result<(), DriverError> {
        let kernel = match *call {
            GpuCall::Launch { function, .. } => self.functions.get(function.0 as usize),
            _ => None,
        };
        self.log.push(Entry::new(driver, call, kernel.map(|kernel| kernel.name.clone())));
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let kind = call.kind();
        let mut due = None;
        for (index, fault) in
            self.faults.iter_mut().enumerate().filter(|(_, fault)| fault.kind == kind)
        {
            if fault.left == 0 {
                due = Some(index);
                break;
            }
            fault.left -= 1;
        }
        due.map_or(Ok(()), |index| Err(self.faults.remove(index).error))
    }

    /// Allocates page-locked memory, filled with NaN.
    pub(crate) fn alloc_pinned(&mut self, bytes: usize) -> *mut u8 {
        let mut memory = vec![0xffu8; bytes.max(1)].into_boxed_slice();
        let address = memory.as_mut_ptr();
        self.pinned.insert(address as usize, memory);
        address
    }

    /// Frees page-locked memory.
    pub(crate) fn free_pinned(&mut self, memory: *mut u8, bytes: usize) -> Result<(), DriverError> {
        let block = self.pinned.get(&(memory as usize));
        if block.is_none_or(|block| block.len() != bytes.max(1)) {
            let reason = format!("no {bytes} bytes were allocated at {memory:p}");
            return Err(failure("free_pinned", reason));
        }
        self.pinned.remove(&(memory as usize));
        Ok(())
    }

    /// Returns the state of a stream.
    pub(crate) fn stream(
        &mut self,
        call: &'static str,
        stream: u64,
    ) -> Result<&mut StreamState, DriverError> {
        self.streams
            .get_mut(&stream)
            .ok_or_else(|| failure(call, format!("there is no stream {stream}")))
    }

    /// Returns the state of an event.
    pub(crate) fn event(
        &mut self,
        call: &'static str,
        event: u64,
    ) -> Result<&mut EventState, DriverError> {
        self.events
            .get_mut(&event)
            .ok_or_else(|| failure(call, format!("there is no event {event}")))
    }

    /// Appends work to a stream or its capture, and executes some pending work at random.
    pub(crate) fn submit(
        &mut self,
        call: &'static str,
        stream: u64,
        task: Task,
    ) -> Result<(), DriverError> {
        let state = self.stream(call, stream)?;
        match state.capture {
            Some(capture) => {
                if let Some(capture) = self.captures.get_mut(&capture) {
                    capture.add(stream, task);
                }
                Ok(())
            }
            None => {
                state.queue.push_back(Work::Task(task));
                self.run_some()
            }
        }
    }

    /// Submits a transfer. Refuses empty ones, as a driver may: the address of an empty block belongs to no allocation.
    pub(crate) fn transfer(
        &mut self,
        call: &'static str,
        stream: u64,
        bytes: usize,
        task: Task,
    ) -> Result<(), DriverError> {
        match bytes {
            0 => Err(failure(call, "of 0 bytes".to_owned())),
            _ => self.submit(call, stream, task),
        }
    }

    /// Executes a random amount of work, so that work is neither always early nor always late.
    pub(crate) fn run_some(&mut self) -> Result<(), DriverError> {
        while self.random.below(4) == 0 && self.advance()? {}
        Ok(())
    }

    /// Executes one entry of a ready stream; returns false if none is ready.
    pub(crate) fn advance(&mut self) -> Result<bool, DriverError> {
        let ready: Vec<u64> = self
            .streams
            .iter()
            .filter(|(_, state)| state.is_ready())
            .map(|(&stream, _)| stream)
            .collect();
        if ready.is_empty() {
            return Ok(false);
        }
        // Preferring one stream lets it run far ahead, which detects more missing events than round-robin.
        if !ready.contains(&self.preferred) || self.random.below(8) == 0 {
            self.preferred = ready[self.random.below(ready.len())];
        }
        let result = self.run_head(self.preferred);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result.map(|()| true)
    }

    /// Returns true if a stream waits for an event outside of the device, or has just ended such a wait.
    pub(crate) fn waits_outside(&self) -> bool {
        self.streams.values().any(StreamState::waits_outside)
    }

    fn run_head(&mut self, stream: u64) -> Result<(), DriverError> {
        let seed = self.random.next();
        let Some(state) = self.streams.get_mut(&stream) else { return Ok(()) };
        match state.queue.pop_front() {
            None | Some(Work::Wait(_)) => Ok(()),
            Some(Work::Record(ticket)) => {
                // Each record has a new ticket, so it is never already set.
                let _ = ticket.set(Instant::now());
                Ok(())
            }
            Some(Work::Task(task)) => task.run(&self.memory, seed),
            Some(Work::Graph(mut replay)) => {
                replay.run_one(&self.memory, &mut self.random)?;
                if !replay.is_done() {
                    state.queue.push_front(Work::Graph(replay));
                }
                Ok(())
            }
        }
    }
}

impl StreamState {
    /// Returns an error if the stream is being captured.
    pub(crate) fn require_live(&self, call: &'static str) -> Result<(), DriverError> {
        match self.capture {
            Some(_) => Err(failure(call, "the stream is being captured".to_string())),
            None => Ok(()),
        }
    }

    fn is_ready(&self) -> bool {
        match self.queue.front() {
            None => false,
            Some(Work::Wait(ticket)) => ticket.get().is_some(),
            Some(Work::Task(task)) => task.is_ready(),
            Some(Work::Record(_)) => true,
            Some(Work::Graph(replay)) => replay.is_done() || replay.has_ready(),
        }
    }

    fn waits_outside(&self) -> bool {
        match self.queue.front() {
            Some(Work::Task(task)) => matches!(task, Task::When(..)),
            Some(Work::Graph(replay)) => replay.waits_outside(),
            _ => false,
        }
    }
}
