//! Keeps the rules between shapes to this crate.

/// Proof that an impl, or a call, is the library's own. Other crates cannot name it.
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
