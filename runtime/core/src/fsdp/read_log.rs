//! Log of the units whose values a part of a forward pass reads.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use crate::context::Rank;

use super::unit::Unit;

/// Nested scopes of a forward pass: a scope logs the units that are read in it, or ignores them.
#[derive(Default)]
pub(crate) struct ReadLog {
    scopes: RefCell<Vec<Option<Vec<Weak<Unit>>>>>,
}

impl ReadLog {
    /// Begins a scope; the units read in it are logged if `is_logged`.
    pub(crate) fn begin_scope(&self, is_logged: bool) {
        self.scopes.borrow_mut().push(is_logged.then(Vec::new));
    }

    /// Ends the innermost scope, and returns the units that were read in it.
    pub(crate) fn end_scope(&self) -> Vec<Weak<Unit>> {
        self.scopes.borrow_mut().pop().flatten().unwrap_or_default()
    }

    fn log_read(&self, unit: &Rc<Unit>) {
        if let Some(Some(units)) = self.scopes.borrow_mut().last_mut()
            && !units.iter().any(|known| std::ptr::eq(known.as_ptr(), Rc::as_ptr(unit)))
        {
            units.push(Rc::downgrade(unit));
        }
    }
}

impl Rank {
    pub(crate) fn read_log(&self) -> &ReadLog {
        self.session_state()
    }
}

impl Unit {
    /// Logs that an operation of a forward function reads the values.
    pub(super) fn log_read(self: &Rc<Unit>) {
        self.rank().read_log().log_read(self);
    }
}
