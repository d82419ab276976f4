//! Object storage: a blocking client of S3, Google Cloud Storage and Azure, for threads that write and read files.
//!
//! Credentials and endpoints are those of the environment, as the tools of each service name them. Requests that fail
//! for a reason that may pass are repeated; then they are errors of the system, with a kind from which a program knows
//! if its settings are to be changed.

mod bucket;
mod error;
mod folder;
mod object;
mod ranges;
mod upload;

pub use folder::{Condition, ObjectContent, ObjectFolder, ObjectVersion};
pub use object::OpenedObject;

/// Schemes of URLs of objects.
pub const SCHEMES: [&str; 3] = ["s3", "gs", "az"];
