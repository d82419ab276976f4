//! Errors of object storage, as errors of the system.

use std::io::{Error as IoError, ErrorKind};

use object_store::Error;

/// Returns an error of settings or permissions, which are to be changed.
pub fn refused(reason: impl Into<String>) -> IoError {
    IoError::new(ErrorKind::PermissionDenied, reason.into())
}

/// Returns true if a condition of a request was not met.
pub fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. })
}

/// Describes an error of a request to `bucket`. Its kind is `NotFound` for an object that does not exist,
/// `PermissionDenied` and `Unsupported` for what is to be changed, and else one of a connection that may be better
/// later.
pub fn to_io(error: Error, bucket: &str) -> IoError {
    let text = error.to_string();
    // The services of S3, Azure and Google.
    let has_no_bucket = ["NoSuchBucket", "ContainerNotFound", "specified bucket does not exist"];
    if has_no_bucket.iter().any(|code| text.contains(code)) {
        return refused(format!("there is no bucket `{bucket}`; create it, or correct its name"));
    }
    let kind = match &error {
        Error::NotFound { .. } => ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            return refused(format!(
                "access is denied: check the credentials in the environment, and their permission to read, write, \
                 list and delete in `{bucket}` ({})",
                short(&text)
            ));
        }
        Error::NotSupported { .. } | Error::NotImplemented { .. } => ErrorKind::Unsupported,
        Error::InvalidPath { .. } | Error::UnknownConfigurationKey { .. } => {
            ErrorKind::InvalidInput
        }
        // Settings that are missing or wrong: no request was made.
        Error::Generic { .. } if !text.contains("Error performing") && !is_of_connection(&text) => {
            ErrorKind::InvalidInput
        }
        _ => ErrorKind::ConnectionAborted,
    };
    IoError::new(kind, short(&text))
}

fn is_of_connection(text: &str) -> bool {
    ["HTTP error", "request", "retries", "body", "response"].iter().any(|word| text.contains(word))
}

/// Returns the text of an error in one line, without the answer of the server beyond its beginning.
fn short(text: &str) -> String {
    const MAX: usize = 400;
    let line: Vec<&str> = text.split_whitespace().collect();
    let line = line.join(" ");
    match line.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line,
    }
}
