//! Events: records, waits and queries, eager and captured.

use std::sync::Arc;
use std::time::Instant;

use meshwright_cuda::DriverError;

use crate::memory::failure;
use crate::state::{Last, Replayed, State, Work};
use crate::task::Task;

impl State {
    /// Records an event on a stream.
    pub(crate) fn record(&mut self, event: u64, stream: u64) -> Result<(), DriverError> {
        self.event("record", event)?;
        let source = self.stream("record", stream)?;
        let last = match source.capture {
            None => {
                let ticket = Arc::default();
                source.queue.push_back(Work::Record(Arc::clone(&ticket)));
                Last::Submitted(ticket)
            }
            Some(capture) => {
                let after = self
                    .captures
                    .get(&capture)
                    .map_or_else(Vec::new, |capture| capture.head(stream));
                Last::Captured { capture, after }
            }
        };
        self.event("record", event)?.last = last;
        self.run_some()
    }

    /// Records an event in each replay of the graph that is being captured.
    pub(crate) fn record_in_graph(&mut self, event: u64, stream: u64) -> Result<(), DriverError> {
        let call = "record_in_graph";
        if self.stream(call, stream)?.capture.is_none() {
            return Err(failure(call, "the stream is not being captured".to_string()));
        }
        let replayed: Replayed = Arc::default();
        self.event(call, event)?.last = Last::Replayed(Arc::clone(&replayed));
        let record = move || *replayed.lock().expect("no panic") = Some(Instant::now());
        self.submit(call, stream, Task::Other(Arc::new(record)))
    }

    /// Makes a stream wait for the last record of an event.
    pub(crate) fn wait(&mut self, stream: u64, event: u64) -> Result<(), DriverError> {
        let last = self.event("wait", event)?.last.clone();
        let waiting = self.stream("wait", stream)?;
        match (last, waiting.capture) {
            // An event that was never recorded is complete.
            (Last::Never, _) => Ok(()),
            (Last::Submitted(ticket), None) => {
                waiting.queue.push_back(Work::Wait(ticket));
                self.run_some()
            }
            (Last::Replayed(_), _) => {
                Err(failure("wait", "the event is recorded in a graph".to_string()))
            }
            (Last::Submitted(_), Some(_)) => Err(failure(
                "wait",
                "a captured stream waits for an event that is not captured".to_string(),
            )),
            (Last::Captured { capture, after }, own) => {
                if own.is_some_and(|own| own != capture) {
                    return Err(failure(
                        "wait",
                        "a captured stream waits for an event of another capture".to_string(),
                    ));
                }
                let Some(active) = self.captures.get_mut(&capture) else {
                    return Err(failure(
                        "wait",
                        "the event belongs to a capture that has ended".to_string(),
                    ));
                };
                active.join(stream, &after);
                self.stream("wait", stream)?.capture = Some(capture);
                Ok(())
            }
        }
    }

    /// Returns true if the last record of an event is complete.
    pub(crate) fn is_done(&mut self, event: u64) -> Result<bool, DriverError> {
        match self.event("is_done", event)?.last.clone() {
            Last::Never => Ok(true),
            Last::Submitted(ticket) => {
                // Polling makes progress, so that repeated queries succeed eventually.
                if ticket.get().is_none() {
                    self.advance()?;
                }
                Ok(ticket.get().is_some())
            }
            Last::Replayed(replayed) => Ok(replayed.lock().expect("no panic").is_some()),
            Last::Captured { .. } => {
                Err(failure("is_done", "the event was recorded during capture".to_string()))
            }
        }
    }

    /// Returns the milliseconds between two timed events.
    pub(crate) fn elapsed_ms(&mut self, from: u64, to: u64) -> Result<f32, DriverError> {
        let mut happened = |event: u64| {
            let state = self.event("elapsed_ms", event)?;
            match &state.last {
                Last::Submitted(ticket) if state.timed => ticket.get().copied(),
                Last::Replayed(replayed) if state.timed => *replayed.lock().expect("no panic"),
                _ => None,
            }
            .ok_or_else(|| {
                failure("elapsed_ms", "both events must be timed and complete".to_string())
            })
        };
        let (from, to) = (happened(from)?, happened(to)?);
        let sign = if to < from { -1.0 } else { 1.0 };
        Ok(sign * (to.max(from) - to.min(from)).as_secs_f32() * 1e3)
    }
}
