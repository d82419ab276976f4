//! Keeps the rules between shapes, and the functions behind them, to this crate.

/// Proof that an impl is the library's own. Other crates cannot name it.
///
/// A rule such as "a norm over `H` takes `S`" holds because of how the impl was derived. An impl written by hand would
/// assert it instead, and the numbers would be wrong without a message.
#[derive(Debug, Clone, Copy)]
pub struct Seal(());

impl Seal {
    /// The proof.
    pub(crate) const fn new() -> Seal {
        Seal(())
    }
}

/// Proof that a call is the library's own. Other crates cannot name it, nor get one: unlike a [`Seal`], it is in no
/// constant.
#[derive(Debug, Clone, Copy)]
pub struct Internal(());

impl Internal {
    /// The proof.
    pub(crate) const fn new() -> Internal {
        Internal(())
    }
}
