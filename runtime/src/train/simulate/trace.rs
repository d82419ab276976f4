//! The trace of a simulated step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::layout::AxisId;
use crate::mesh::MeshShape;
use crate::trace::Tracer;

use super::SimulatedRun;

/// Returns the trace of a simulated step, with the lanes of a real one, on the last rank at each position along `pp`.
pub fn trace_of(run: &SimulatedRun, mesh: &MeshShape) -> Arc<Tracer> {
    let tracer = Tracer::with_capacity(run.spans.len().max(1));
    let last = mesh.coordinates(mesh.world_size() - 1);
    let begin = Instant::now();
    let mut spans: Vec<_> = run.spans.iter().collect();
    spans.sort_by(|a, b| a.start.total_cmp(&b.start));
    for span in spans {
        let rank = mesh.rank_of(&last.with(AxisId::Pp, span.position));
        let lane = tracer.rank_lane(rank, &span.lane.to_string());
        let start = begin + Duration::from_secs_f64(span.start.max(0.0));
        let end = start + Duration::from_secs_f64(span.duration.max(0.0));
        lane.record_span(span.name.clone(), "simulated", (start, end), Vec::new());
    }
    tracer
}
