//! Numbers of the host that a dry run leaves out.

use std::cell::RefCell;
use std::sync::Arc;

use super::Rank;

/// State of a rank: zeros in place of all numbers that are left out. They take no memory, as nothing writes them, and
/// few addresses.
#[derive(Default)]
struct Zeros(RefCell<Arc<Vec<u32>>>);

impl Rank {
    /// Returns true if `len` numbers of the host are left out: in a dry run, unless they are few. It takes
    /// [zeros](Self::zeros) for them.
    #[doc(hidden)]
    pub fn leaves_out_numbers(&self, len: usize) -> bool {
        const KEPT: usize = 1 << 20;
        len > KEPT && self.backend().is_dry_run()
    }

    /// Returns at least `len` zeros.
    #[doc(hidden)]
    pub fn zeros(&self, len: usize) -> Arc<Vec<u32>> {
        let Zeros(zeros) = self.session_state();
        if zeros.borrow().len() < len {
            zeros.replace(Arc::new(vec![0; len]));
        }
        Arc::clone(&zeros.borrow())
    }
}
