//! Initial values by the attribute of a field.

use std::cell::Cell;

use crate::tensor::Init;

/// `#[init(..)]` of a field.
pub(super) struct FieldInit {
    /// The path of the field.
    pub path: String,
    /// The name of the parameters, if it is not of all.
    pub param: Option<String>,
    pub init: Init,
    /// True if a parameter inside the field has this name.
    pub is_used: Cell<bool>,
}
