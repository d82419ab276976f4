//! Errors of descriptions of clusters.

use std::io;
use std::path::PathBuf;

use meshwright_backend::DType;

/// An error of a description of a cluster, or of a request for one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// A file that cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// A faulty description.
    #[error("{file}:{line}: {message}")]
    Faulty {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The key, the fault, and what is allowed.
        message: String,
    },
    /// Two files that describe one name.
    #[error("{} and {} both describe the {kind} `{name}`: rename one", paths[0].display(), paths[1].display())]
    Duplicate {
        /// `cluster` or `GPU`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The files.
        paths: [PathBuf; 2],
    },
    /// A name without a description.
    #[error("unknown {kind} `{name}`; {hint}")]
    Unknown {
        /// `cluster` or `GPU`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The nearest names, and all of them.
        hint: String,
    },
    /// A request for a number of GPUs that the cluster does not have.
    #[error("{request}: {message}")]
    Size {
        /// The request: `h100x17`.
        request: String,
        /// The fault, and possible numbers.
        message: String,
    },
    /// A GPU without a peak for a dtype.
    #[error("the GPU `{gpu}` has no peak for {dtype} (it has {known}): add `{dtype}` to its table `gpu.peak_tflop_s`, \
             or use another --dtype", dtype = dtype.name())]
    NoPeak {
        /// Name of the GPU.
        gpu: String,
        /// The dtype.
        dtype: DType,
        /// The dtypes that it has.
        known: String,
    },
}
