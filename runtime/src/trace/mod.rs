//! A record of what each rank does, as a file for [Perfetto](https://ui.perfetto.dev) or `chrome://tracing`.
//!
//! A rank is a process of the trace, and has **lanes** (its threads): one for what its own thread does, and one for each
//! group of ranks it communicates in. Lanes hold spans; the spans of one lane either nest or do not overlap.
//!
//! ```
//! use meshwright::trace::Tracer;
//!
//! let tracer = Tracer::new();
//! let lane = tracer.lane(0, "compute");
//! {
//!     let _step = lane.span("step");
//!     let _forward = lane.span(("forward", "blocks.3"));
//! }
//! let mut file = Vec::new();
//! tracer.write_to(&mut file)?;
//! assert!(String::from_utf8(file)?.contains(r#""name":"forward blocks.3""#));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Recording takes a moment of the thread that records ([`Span`]), and nothing where there is no tracer:
//! [`Lane::off`] looks at one `Option` and does not even make the name.

mod event;
mod file;
mod lane;
mod tracer;

pub use event::{Arg, Name};
pub use file::TraceError;
pub use lane::{Lane, Span};
pub use tracer::Tracer;

/// The lane of what a rank's own thread does.
pub const COMPUTE: &str = "compute";

#[cfg(test)]
mod tests;
