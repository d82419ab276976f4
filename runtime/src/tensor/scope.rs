//! Which forward function runs now, for the messages of collectives that belong to no field.

use std::cell::RefCell;

thread_local! {
    static OPEN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// Names the running forward function until it is dropped. Made by `#[forward]`.
#[must_use = "the name holds until the guard is dropped"]
pub struct Scope(());

/// Opens a scope: `name` is that of the forward function, `Mlp::forward`.
pub fn scope(name: &'static str) -> Scope {
    OPEN.with_borrow_mut(|open| open.push(name));
    Scope(())
}

/// The innermost open scope, or `otherwise`.
pub(crate) fn current_or(otherwise: &'static str) -> &'static str {
    OPEN.with_borrow(|open| open.last().copied().unwrap_or(otherwise))
}

impl Drop for Scope {
    fn drop(&mut self) {
        OPEN.with_borrow_mut(|open| open.pop());
    }
}
