//! A difference between a mesh and one rank.

use std::fmt;

use super::observed::{Field, Kind};

/// Numbers of a mesh that differ from one rank's.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    pub(crate) field: Field,
    how: How,
}

#[derive(Debug, Clone)]
enum How {
    /// A difference of more than rounding explains, relative to the norm of the numbers.
    Distance { distance: f64, allowed: f64 },
    /// Between two ranks that hold the same numbers.
    BetweenRanks([usize; 2]),
    /// Recorded by this rank, but not by the first one of its stage.
    OfSomeRanks(usize),
    /// Recorded by only one of mesh and one rank.
    OnlyOn(&'static str),
    /// Infinite or NaN on one rank already.
    NotFinite,
}

impl Difference {
    pub(super) fn distance(field: Field, distance: f64, allowed: f64) -> Difference {
        Difference { field, how: How::Distance { distance, allowed } }
    }

    pub(super) fn between_ranks(field: Field, ranks: [usize; 2]) -> Difference {
        Difference { field, how: How::BetweenRanks(ranks) }
    }

    pub(super) fn of_some_ranks(field: Field, rank: usize) -> Difference {
        Difference { field, how: How::OfSomeRanks(rank) }
    }

    pub(super) fn only_on(field: Field, place: &'static str) -> Difference {
        Difference { field, how: How::OnlyOn(place) }
    }

    pub(super) fn not_finite(field: Field) -> Difference {
        Difference { field, how: How::NotFinite }
    }

    /// Returns what the kind of field says about the cause.
    pub(super) fn hint(&self) -> &'static str {
        match (self.field.kind, self.field.step) {
            (Kind::Parameter, 0) => "the initialization depends on the mesh",
            (Kind::Parameter, _) => {
                "gradients agree: the update of the optimizer depends on the mesh"
            }
            (Kind::Gradient, _) => {
                "losses agree: a backward depends on the mesh, in the first field below or between it and the loss"
            }
            (Kind::Loss | Kind::Value, 1) => "the forward pass, or its input, depends on the mesh",
            (Kind::Loss | Kind::Value, _) => {
                "the steps before agree: the forward pass, its input or the learning rate of this step depends on the \
                 mesh"
            }
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { field, how } = self;
        match how {
            How::Distance { distance, allowed } if distance.is_finite() => {
                write!(
                    f,
                    "{field}: differs by {distance:.1e} of its norm; rounding explains {allowed:.1e}"
                )
            }
            How::Distance { .. } => {
                write!(f, "{field}: infinite, NaN, of another size, or zero on one rank only")
            }
            How::BetweenRanks([first, other]) => {
                write!(f, "{field}: ranks {first} and {other} hold different numbers of it")
            }
            How::OfSomeRanks(rank) => write!(
                f,
                "{field}: recorded by rank {rank}, but not by the first rank of its pipeline stage; record it on all \
                 ranks"
            ),
            How::OnlyOn(place) => write!(f, "{field}: recorded on {place} only"),
            How::NotFinite => write!(f, "{field}: infinite or NaN on one rank"),
        }
    }
}
