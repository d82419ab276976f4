//! Proofs that seal the rules between shapes, and the functions behind them, within this crate.

/// Proof that an impl belongs to this crate. Other crates cannot name it.
///
/// A rule such as "a norm over `H` takes `S`" holds because its impl is derived. A hand-written impl in another crate
/// could only assert it, and a false assertion would give wrong numbers without a message.
#[derive(Debug, Clone, Copy)]
pub struct Seal(());

impl Seal {
    /// Creates the proof.
    pub(crate) const fn new() -> Seal {
        Seal(())
    }
}

/// Proof that a call comes from this crate. Other crates can neither name nor obtain it: unlike a `Seal`, it is not
/// in a public constant.
#[derive(Debug, Clone, Copy)]
pub struct Internal(());

impl Internal {
    /// Creates the proof.
    #[doc(hidden)]
    pub const fn new() -> Internal {
        Internal(())
    }
}
