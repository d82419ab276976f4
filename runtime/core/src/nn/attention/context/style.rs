//! Styles of context parallelism, as values and as types.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use crate::layout::{Seal, Whole};

/// Style of attention that the ranks of `cp` compute together, over a sequence that they share. All styles compute the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContextStyle {
    /// Keys and values travel around a ring of ranks (Liu et al., "Ring Attention", 2023).
    Ring,
    /// Ranks exchange positions for heads (Jacobs et al., "DeepSpeed Ulysses", 2023).
    Ulysses,
    /// Each rank gathers the keys and values of all ranks (Dubey et al., "The Llama 3 Herd of Models", 2024).
    Gather,
    /// This many neighbors exchange positions for heads, and the ranks that then have the same heads form a ring (Fang
    /// and Zhao, "USP", 2024). `None`: as many as divide the ranks, and the heads of queries and of keys.
    Hybrid(Option<usize>),
}

/// Context parallelism over the axis `A`, in style `S`: the sequence is declared over `A`.
#[derive(Debug, Clone, Copy)]
pub struct ContextParallel<A, S>(PhantomData<(A, S)>);

/// The sharding style `cp = "ring"`: [`ContextStyle::Ring`].
pub type Ring<A> = ContextParallel<A, RingStyle>;
/// The sharding style `cp = "ulysses"`: [`ContextStyle::Ulysses`].
pub type Ulysses<A> = ContextParallel<A, UlyssesStyle>;
/// The sharding style `cp = "gather"`: [`ContextStyle::Gather`].
pub type GatheredKeys<A> = ContextParallel<A, GatherStyle>;
/// The sharding style `cp = "hybrid"`: [`ContextStyle::Hybrid`].
pub type Hybrid<A> = ContextParallel<A, HybridStyle>;

/// A [`ContextStyle`] as a type.
pub trait TypedContextStyle: 'static {
    /// The style, unless that of [`Sizes::context`](crate::nn::Sizes::context) replaces it.
    const STYLE: ContextStyle;
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! styles {
    ($($(#[$doc:meta])* $name:ident: $style:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl TypedContextStyle for $name {
            const STYLE: ContextStyle = $style;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

styles! {
    /// [`ContextStyle::Ring`].
    RingStyle: ContextStyle::Ring;
    /// [`ContextStyle::Ulysses`].
    UlyssesStyle: ContextStyle::Ulysses;
    /// [`ContextStyle::Gather`].
    GatherStyle: ContextStyle::Gather;
    /// [`ContextStyle::Hybrid`] of as many ranks as possible.
    HybridStyle: ContextStyle::Hybrid(None);
}

/// A sequence that each rank holds whole, as attention without context parallelism needs it.
#[diagnostic::on_unimplemented(
    message = "attention cannot read along `{Self}`: no rank holds the whole dim",
    label = "each rank would attend to its own part of `{Self}` only",
    note = "a dim declared `@ cp` needs a context-parallel attention: put `#[sharded(cp = \"ring\")]`, `\"ulysses\"`, \
            `\"gather\"` or `\"hybrid\"` on its field; or declare the dim without `@`",
    note = "a `Split<Seq, Tp>` is made whole by column-parallel projections of queries, keys and values, or by \
            `.gather(Seq)`"
)]
pub trait Attended: crate::layout::Dim {
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<S: crate::layout::Local> Attended for S {
    const SEAL: Seal = Seal::new();
}

/// A sequence that is declared over the axis `A`, as attention with context parallelism over `A` needs it.
#[diagnostic::on_unimplemented(
    message = "context-parallel attention over `{A}` needs a sequence that is distributed over `{A}`, and `{Self}` is \
               not",
    label = "nothing to exchange with the ranks of `{A}`",
    note = "declare the dim of the sequence with its axis, `dims! {{ Seq @ cp }}`, or remove `cp = ..` from the \
            attention",
    note = "a `Split<Seq, Tp>` is made whole by column-parallel projections of queries, keys and values, or by \
            `.gather(Seq)`"
)]
pub trait DistributedOver<A>: Whole {
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<S: Whole<Home = A>, A: crate::layout::Home> DistributedOver<A> for S {
    const SEAL: Seal = Seal::new();
}

/// Algorithm of ranks that compute attention together, chosen for their number and their heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::nn) enum ContextAlgorithm {
    Ring,
    Gather,
    /// Head exchange within groups of this size, and a ring across the groups.
    Exchange(usize),
}

impl ContextAlgorithm {
    /// Returns the number of ranks, out of `ranks`, over which attention distributes the positions of the queries.
    pub(in crate::nn) fn position_ranks(self, ranks: usize) -> usize {
        match self {
            ContextAlgorithm::Ring | ContextAlgorithm::Gather => ranks,
            ContextAlgorithm::Exchange(size) => ranks / size,
        }
    }
}

impl ContextStyle {
    /// Returns the algorithm for `ranks` ranks of `cp`, each with `heads` query heads and `kv_heads` key-value heads.
    ///
    /// # Errors
    /// If the heads cannot be exchanged among the ranks: the reason and the fix.
    pub(in crate::nn) fn algorithm(
        self,
        ranks: usize,
        heads: usize,
        kv_heads: usize,
    ) -> Result<ContextAlgorithm, String> {
        let size = match self {
            ContextStyle::Ring => return Ok(ContextAlgorithm::Ring),
            ContextStyle::Gather => return Ok(ContextAlgorithm::Gather),
            ContextStyle::Ulysses => ranks,
            ContextStyle::Hybrid(Some(size)) => size,
            ContextStyle::Hybrid(None) => {
                let divides = |size: &usize| {
                    [ranks, heads, kv_heads].iter().all(|whole| whole.is_multiple_of(*size))
                };
                (1..=ranks).rev().find(divides).unwrap_or(1)
            }
        };
        if size == 0 || !ranks.is_multiple_of(size) {
            return Err(format!(
                "`hybrid={size}` exchanges heads among groups of {size} ranks, but cp = {ranks} is not divisible by \
                 {size}"
            ));
        }
        if !heads.is_multiple_of(size) {
            return Err(format!(
                "{heads} query heads of a rank cannot be exchanged among {size} ranks of cp: use `cp = \"ring\"` or \
                 `cp = \"gather\"`, which take any number, or `--cp ring`"
            ));
        }
        Ok(ContextAlgorithm::Exchange(size))
    }
}

/// `ring`, `ulysses`, `gather`, `hybrid`, `hybrid=2`.
impl FromStr for ContextStyle {
    type Err = String;

    fn from_str(text: &str) -> Result<ContextStyle, String> {
        match text.split_once('=') {
            None => match text {
                "ring" => Ok(ContextStyle::Ring),
                "ulysses" => Ok(ContextStyle::Ulysses),
                "gather" => Ok(ContextStyle::Gather),
                "hybrid" => Ok(ContextStyle::Hybrid(None)),
                _ => Err(format!(
                    "`{text}` is not a style of context parallelism: use `ring`, `ulysses`, `gather`, `hybrid` or \
                     `hybrid=N`"
                )),
            },
            Some(("hybrid", size)) => match size.parse() {
                Ok(size) if size > 0 => Ok(ContextStyle::Hybrid(Some(size))),
                _ => Err(format!(
                    "`{text}`: `hybrid=N` takes the number of ranks that exchange heads"
                )),
            },
            Some((style, _)) => {
                Err(format!("`{text}`: `{style}` takes no number, only `hybrid=N` does"))
            }
        }
    }
}

impl fmt::Display for ContextStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContextStyle::Ring => f.write_str("ring"),
            ContextStyle::Ulysses => f.write_str("ulysses"),
            ContextStyle::Gather => f.write_str("gather"),
            ContextStyle::Hybrid(None) => f.write_str("hybrid"),
            ContextStyle::Hybrid(Some(size)) => write!(f, "hybrid={size}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back() {
        let styles = [ContextStyle::Ring, ContextStyle::Ulysses, ContextStyle::Gather];
        let hybrids = [None, Some(1), Some(4)].map(ContextStyle::Hybrid);
        for style in styles.into_iter().chain(hybrids) {
            assert_eq!(style.to_string().parse(), Ok(style));
        }
        for text in ["", "Ring", "ring=2", "hybrid=", "hybrid=0", "hybrid=x", "hybrid=2=2"] {
            assert!(text.parse::<ContextStyle>().is_err(), "{text}");
        }
    }

    #[test]
    fn hybrid_exchanges_as_many_heads_as_possible() {
        let size = |ranks, heads, kv_heads| {
            ContextStyle::Hybrid(None).algorithm(ranks, heads, kv_heads).unwrap()
        };
        assert_eq!(size(8, 8, 4), ContextAlgorithm::Exchange(4));
        assert_eq!(size(6, 12, 4), ContextAlgorithm::Exchange(2));
        assert_eq!(size(8, 8, 1), ContextAlgorithm::Exchange(1));
        assert_eq!(
            ContextStyle::Hybrid(Some(2)).algorithm(8, 8, 1),
            Ok(ContextAlgorithm::Exchange(2))
        );
    }

    #[test]
    fn heads_that_cannot_be_exchanged_are_refused() {
        let problem = ContextStyle::Ulysses.algorithm(6, 4, 4).unwrap_err();
        assert!(problem.starts_with("4 query heads of a rank cannot be exchanged among 6 ranks"));
        let problem = ContextStyle::Hybrid(Some(3)).algorithm(8, 6, 6).unwrap_err();
        assert!(problem.contains("cp = 8 is not divisible by 3"), "{problem}");
        assert!(ContextStyle::Ulysses.algorithm(8, 8, 1).is_ok());
    }
}
