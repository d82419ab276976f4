//! Execution traces of all ranks, as a file for [Perfetto](https://ui.perfetto.dev) or `chrome://tracing`.
//!
//! A rank is a process of the trace, and has **lanes** (threads in the file format): one for its main thread, and one
//! for each process group it communicates in. Lanes hold spans; the spans of one lane either nest or do not overlap.
//!
//! ```
//! use meshwright::trace::Tracer;
//!
//! let tracer = Tracer::new();
//! let lane = tracer.rank_lane(0, "compute");
//! {
//!     let _step = lane.open_span("step");
//!     let _forward = lane.open_span(("forward", "blocks.3"));
//! }
//! let mut file = Vec::new();
//! tracer.write_to(&mut file)?;
//! assert!(String::from_utf8(file)?.contains(r#""name":"forward blocks.3""#));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Recording a [`Span`] has a small overhead on its thread. Without a tracer, [`Lane::disabled`] costs one comparison
//! and does not format the name.

mod event;
mod file;
mod lane;
mod tracer;

pub use event::{Arg, Name};
pub use file::TraceError;
pub use file::is_trace;
pub use lane::{Lane, Span};
pub use tracer::Tracer;

/// The name of the lane of a rank's main thread.
pub const COMPUTE: &str = "compute";

#[cfg(test)]
mod tests;
