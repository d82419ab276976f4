//! The streams of one position during a replay, and how its time is spent.

use meshwright_mesh::AxisSet;

use super::computation::Computation;
use super::position_time::PositionTime;

/// Start and end, in seconds.
pub type Interval = (f64, f64);

/// The streams of a position: the times up to which their work is known, in seconds.
pub struct Streams {
    /// End of the compute stream.
    pub compute: f64,
    /// Time at which the host is done with its launches so far.
    pub host: f64,
    /// Ends of the streams of collectives.
    collectives: Vec<f64>,
    /// End of the last collective in a CUDA graph, whose calls are one branch.
    pub branch: f64,
    /// End of the stream of transfers, and of the last copy to the host.
    transfers: f64,
    copied_out: f64,
    /// End of the last collective. From its issue on, some collective runs until then: one that has not begun waits for
    /// another one on its stream.
    communicating_until: f64,
    /// The time of the current step.
    pub spent: PositionTime,
}

impl Streams {
    pub fn new(collectives: usize) -> Streams {
        Streams {
            compute: 0.0,
            host: 0.0,
            collectives: vec![0.0; collectives],
            branch: 0.0,
            transfers: 0.0,
            copied_out: 0.0,
            communicating_until: 0.0,
            spent: PositionTime::default(),
        }
    }

    /// Launches a kernel on the compute stream, and returns its start and end. Collectives beside it slow it by the
    /// fraction `interference`.
    pub fn launch(&mut self, computation: Computation, work: f64, interference: f64) -> Interval {
        let start = self.compute.max(self.host);
        self.spent.launches += start - self.compute;
        let slowed = (self.communicating_until - start).min(work * (1.0 + interference)).max(0.0);
        let end = start + work + slowed * interference / (1.0 + interference);
        self.spent.computation[computation as usize] += end - start;
        self.compute = end;
        (start, end)
    }

    /// Runs a collective on its stream, not before `earliest`, and returns its start and end.
    pub fn run_collective(&mut self, stream: usize, earliest: f64, seconds: f64) -> Interval {
        let start = self.compute.max(self.host).max(earliest).max(self.collectives[stream]);
        let end = start + seconds;
        self.collectives[stream] = end;
        self.communicating_until = self.communicating_until.max(end);
        (start, end)
    }

    /// Copies to the host, or from there, and returns the start and end. Kernels wait for a fetch, and before it for
    /// all copies to the host; a copy to the host makes them wait for the one before it, whose memory is freed.
    pub fn transfer(&mut self, seconds: f64, is_fetch: bool) -> Interval {
        let start = self.compute.max(self.host).max(self.transfers);
        let end = start + seconds;
        self.transfers = end;
        let awaited = if is_fetch { end } else { std::mem::replace(&mut self.copied_out, end) };
        self.spent.transfers += self.wait_until(awaited);
        (start, end)
    }

    /// Makes the compute stream wait for a collective over `axes`.
    pub fn await_collective(&mut self, axes: AxisSet, end: f64) {
        let exposed = self.wait_until(end);
        self.spent.add_exposed(axes, exposed);
    }

    /// Makes the compute stream wait for other positions.
    pub fn await_positions(&mut self, end: f64) {
        self.spent.waiting += self.wait_until(end);
    }

    fn wait_until(&mut self, end: f64) -> f64 {
        let waited = (end - self.compute).max(0.0);
        self.compute = self.compute.max(end);
        waited
    }
}
