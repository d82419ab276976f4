//! The effort of a search.

/// Plans that are printed if `--top` is not given.
pub const TOP: usize = 5;

/// The effort of a search. It is counted and not timed, so that a search has one result.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Plans that fit and are simulated.
    pub plans: usize,
    /// Most candidates that are simulated, whether they fit or not.
    pub candidates: usize,
}

impl Effort {
    /// The effort of `--plan` that prints `top` plans.
    pub fn to_rank(top: usize) -> Effort {
        Effort { plans: 10.max(2 * top), candidates: 14.max(3 * top) }
    }

    /// The effort before a run.
    pub const TO_TRAIN: Effort = Effort { plans: 6, candidates: 10 };

    /// The effort to find a plan that fits.
    pub const TO_FIT: Effort = Effort { plans: 1, candidates: 4 };
}
