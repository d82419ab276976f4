//! The call site of a collective.

use std::panic::Location;
use std::sync::Arc;

use super::MessageId;

/// The call site of a collective, for error messages and traces: a model field, and its source line if known.
///
/// Cloning it increments one reference count.
#[derive(Debug, Clone)]
pub struct Site {
    field: Arc<str>,
    location: Option<&'static Location<'static>>,
    message: Option<MessageId>,
}

impl Site {
    /// Creates the site of a model field, by its path: `"blocks.3.mlp.down"`.
    pub fn new(field: impl Into<Arc<str>>) -> Site {
        Site { field: field.into(), location: None, message: None }
    }

    /// Creates the site of a field, at the line of the caller.
    #[track_caller]
    pub fn here(field: impl Into<Arc<str>>) -> Site {
        Site::new(field).at_location(Location::caller())
    }

    /// Returns the same field at a source location.
    pub fn at_location(self, location: &'static Location<'static>) -> Site {
        Site { location: Some(location), ..self }
    }

    /// Returns the same site for one point-to-point message. Its receive must have the same identity, or none.
    pub fn with_message(self, message: MessageId) -> Site {
        Site { message: Some(message), ..self }
    }

    /// Path of the field.
    pub fn field(&self) -> &str {
        &self.field
    }

    #[doc(hidden)]
    pub fn shared_field(&self) -> &Arc<str> {
        &self.field
    }

    /// Source location, if one was recorded.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.location
    }

    /// Identity of the point-to-point message, if it has one.
    pub fn message(&self) -> Option<MessageId> {
        self.message
    }
}

/// `blocks.3.mlp.down (src/model.rs:12:9)`; the identity of a message follows the field.
impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.field)?;
        if let Some(message) = &self.message {
            write!(f, ", {message}")?;
        }
        match self.location {
            Some(location) => write!(f, " ({location})"),
            None => Ok(()),
        }
    }
}
