//! Per-rank state of the modules above the context: the tape, the FSDP units, the prefetcher and others.

use std::any::{Any, TypeId};
use std::cell::OnceCell;

/// One state of each type, created by its `Default` when it is first used.
///
/// The context of a rank does not depend on the modules that keep state in it, so these are layered above it. There
/// are few types, in a list that only grows: a lookup compares type ids.
#[derive(Default)]
pub(super) struct Session {
    first: OnceCell<Box<SessionState>>,
}

struct SessionState {
    type_id: TypeId,
    state: Box<dyn Any>,
    next: OnceCell<Box<SessionState>>,
}

impl Session {
    /// Returns the state of type `T`.
    pub(super) fn state<T: Any + Default>(&self) -> &T {
        let type_id = TypeId::of::<T>();
        let mut cell = &self.first;
        loop {
            let entry = cell.get_or_init(|| {
                Box::new(SessionState {
                    type_id,
                    state: Box::new(T::default()),
                    next: OnceCell::new(),
                })
            });
            if entry.type_id == type_id {
                return entry.state.downcast_ref().expect("the state has the type of its id");
            }
            cell = &entry.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn each_type_has_one_state() {
        let session = Session::default();
        session.state::<Cell<u32>>().set(1);
        session.state::<Cell<i64>>().set(-2);
        assert_eq!(session.state::<Cell<u32>>().get(), 1);
        assert_eq!(session.state::<Cell<i64>>().get(), -2);
        assert_eq!(session.state::<Cell<u8>>().get(), 0);
    }
}
