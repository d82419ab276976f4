//! Errors of a calibration.

use std::io;
use std::path::PathBuf;

/// Records that calibrate no cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// No record is given.
    #[error("no record is given: write one by --record FILE.json of a training program")]
    NoFile,
    /// A file that cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// A file that is no record.
    #[error("{}: {found}; calibrate reads records, which --record FILE.json of a training program writes",
            path.display())]
    NoRecord {
        /// The file.
        path: PathBuf,
        /// The kind of the file: `is a trace`.
        found: String,
    },
    /// Records of two devices.
    #[error("{} is of `{}`, but {} is of `{}`: calibrate one device at a time", paths[0].display(), devices[0],
            paths[1].display(), devices[1])]
    Devices {
        /// The files.
        paths: [PathBuf; 2],
        /// Their devices.
        devices: [String; 2],
    },
    /// Records of two dtypes.
    #[error("{} has --dtype {}, but {} has --dtype {}: record runs of one dtype", paths[0].display(), dtypes[0],
            paths[1].display(), dtypes[1])]
    DTypes {
        /// The files.
        paths: [PathBuf; 2],
        /// Their dtypes.
        dtypes: [String; 2],
    },
    /// Too few shapes for a curve.
    #[error("{}: has {shapes} shapes of matmuls, from which no curve follows: record a step of a whole model",
            path.display())]
    OneShape {
        /// The first file.
        path: PathBuf,
        /// Number of shapes.
        shapes: usize,
    },
}
