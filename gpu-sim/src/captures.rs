//! Stream captures: their begin and end, and launches of their graphs.

use std::sync::Arc;

use meshwright_cuda::{DriverError, Graph};

use crate::graph::{Capture, Replay};
use crate::memory::failure;
use crate::state::{State, Work};

impl State {
    /// Begins a capture on a stream.
    pub(crate) fn begin_capture(&mut self, stream: u64) -> Result<(), DriverError> {
        let capture = self.new_handle();
        let origin = self.stream("begin_capture", stream)?;
        origin.require_live("begin_capture")?;
        origin.capture = Some(capture);
        self.captures.insert(capture, Capture::new(stream));
        Ok(())
    }

    /// Ends the capture that began on a stream, and returns its graph if `logged` is no failure.
    pub(crate) fn end_capture(
        &mut self,
        stream: u64,
        logged: Result<(), DriverError>,
    ) -> Result<Graph, DriverError> {
        let capture = self.stream("end_capture", stream)?.capture;
        let began_here =
            |capture: &u64| self.captures.get(capture).is_some_and(|c| c.origin == stream);
        let ended = capture.filter(began_here).and_then(|capture| self.captures.remove(&capture));
        let Some(ended) = ended else {
            return Err(failure("end_capture", "no capture began on this stream".to_string()));
        };
        for joined in ended.streams() {
            if let Some(stream) = self.streams.get_mut(&joined) {
                stream.capture = None;
            }
        }
        logged?;
        let graph = self.new_handle();
        self.graphs.insert(graph, Arc::new(ended.end()?));
        Ok(Graph(graph))
    }

    /// Launches a graph on a stream.
    pub(crate) fn launch_graph(&mut self, stream: u64, graph: u64) -> Result<(), DriverError> {
        let Some(graph) = self.graphs.get(&graph).cloned() else {
            return Err(failure("launch_graph", format!("there is no graph {graph}")));
        };
        let target = self.stream("launch_graph", stream)?;
        target.require_live("launch_graph")?;
        target.queue.push_back(Work::Graph(Replay::new(graph)));
        self.run_some()
    }
}
