//! Units at ZeRO stage 3 that stay unsharded from a forward pass to its backward.

use std::rc::{Rc, Weak};

use super::unit::Unit;

/// Returns the units that stay unsharded from a forward pass on, of those that its backward will read, in order: the
/// first one, and the next ones as long as each is larger than all before it together. So of a model that ends with a
/// norm these are the norm and the last layer, and never more than the largest unit twice.
pub(super) fn first_units(backward: impl Iterator<Item = Rc<Unit>>) -> Vec<Weak<Unit>> {
    let (mut first, mut len) = (Vec::new(), 0);
    for unit in backward.take_while(|unit| unit.rank().keeps_last_units()) {
        if unit.len() <= len {
            break;
        }
        len += unit.len();
        first.push(Rc::downgrade(&unit));
    }
    first
}
