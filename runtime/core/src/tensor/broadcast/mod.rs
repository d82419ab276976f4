//! Operands of elementwise operations that are repeated along the dims of the other operand.

use crate::autograd::{Binary, Pointwise, Value};
use crate::context::{Rank, scope};
use crate::layout::{Along, AxisSet, DimInfo, Dims};
use meshwright_comm::Site;
use meshwright_mesh::__internal::check_sizes;
use meshwright_mesh::Extent;

use super::{Param, Tensor, enter_regions};

#[cfg(test)]
mod tests;

/// An operand of an elementwise operation.
pub(super) struct Side<'a> {
    value: &'a Value,
    dims: &'static [DimInfo],
    /// The position in the result of each dim, if the operand has fewer dims.
    places: Option<&'static [usize]>,
}

impl<'a> Side<'a> {
    pub(super) fn new(
        value: &'a Value,
        dims: &'static [DimInfo],
        places: Option<&'static [usize]>,
    ) -> Side<'a> {
        Side { value, dims, places }
    }

    /// Returns the operand, inside of the regions that it has entered, as an expression over the result.
    #[track_caller]
    fn expression(&self, entered: &Value, extents: &[Extent]) -> Pointwise {
        match self.places {
            Some(places) => entered.to_pointwise_along(places, extents),
            None => entered.to_pointwise(),
        }
    }
}

/// Checks that the sizes of two operands fit, lets each enter the regions of its `axes`, and returns them as
/// expressions over the result, with the rank and the extents of the result.
#[track_caller]
pub(super) fn meet(
    sides: [Side<'_>; 2],
    axes: [AxisSet; 2],
) -> (Rank, Vec<Extent>, [Pointwise; 2]) {
    let [left, right] = &sides;
    left.value.rank().check_same(right.value.rank());
    let extents = if left.places.is_some() { right.value.extents() } else { left.value.extents() };
    check_common_sizes(&sides, extents);
    let rank = Rank::of_operands([left.value.rank(), right.value.rank()]);
    let rank = rank.expect("there are two operands");
    let site = || Site::here(scope::current_or("broadcast"));
    let site = if axes == [AxisSet::NONE; 2] { None } else { Some(site()) };
    let entered = [0, 1].map(|side| match &site {
        Some(site) => enter_regions(sides[side].value, axes[side], site),
        None => sides[side].value.clone(),
    });
    let mut expressions =
        [left.expression(&entered[0], extents), right.expression(&entered[1], extents)];
    if !Pointwise::fit_together(&expressions.each_ref()) {
        let large = if left.places.is_some() { 1 } else { 0 };
        expressions[large] = Pointwise::leaf(entered[large].unchanged_computed());
    }
    (rank, extents.to_vec(), expressions)
}

/// Checks that both sides have the same sizes of the dims that they have in common.
#[track_caller]
fn check_common_sizes([left, right]: &[Side<'_>; 2], extents: &[Extent]) {
    let common = |side: &Side<'_>, other: &Side<'_>| match other.places {
        Some(places) => places.iter().map(|place| extents[*place]).collect(),
        None => side.value.extents().to_vec(),
    };
    let dims = if left.places.is_some() { left.dims } else { right.dims };
    check_sizes(
        dims,
        ("the left side", &common(left, right)),
        ("the right side", &common(right, left)),
    );
}

impl<S: Dims> Tensor<S> {
    /// Multiplies by a tensor that is repeated along the dims that it does not have, in code that is generic in dims:
    /// otherwise `x * &gate` does the same.
    ///
    /// Shape: `[B, S, H], [B, S] -> [B, S, H]`, for any dims of the second tensor that the first one has, split alike.
    ///
    /// ```
    /// # use meshwright::prelude::*;
    /// fn gated<B: Dim, S: Dim, H: Dim>(x: &Tensor<(B, S, H)>, gate: &Tensor<(B, S)>) -> Tensor<(B, S, H)> {
    ///     x.mul_along(gate)
    /// }
    /// ```
    ///
    /// # Panics
    /// If both have a dim with other sizes.
    #[track_caller]
    pub fn mul_along<T: Along<S, P>, P>(&self, other: &Tensor<T>) -> Tensor<S> {
        combine_along(self, other, Binary::Mul)
    }

    /// Adds a tensor that is repeated along the dims that it does not have, as [`mul_along`](Self::mul_along).
    #[track_caller]
    pub fn add_along<T: Along<S, P>, P>(&self, other: &Tensor<T>) -> Tensor<S> {
        combine_along(self, other, Binary::Add)
    }
}

#[track_caller]
fn combine_along<S: Dims, T: Along<S, P>, P>(
    left: &Tensor<S>,
    right: &Tensor<T>,
    op: Binary,
) -> Tensor<S> {
    let sides = [
        Side::new(left.value(), S::DIMS, None),
        Side::new(right.value(), T::DIMS, Some(T::PLACES)),
    ];
    let axes = [AxisSet::NONE, S::VARIES.difference(T::VARIES)];
    let (rank, extents, [left, right]) = meet(sides, axes);
    Tensor::from_untyped(Value::deferred(&rank, extents, left.binary(right, op)))
}

impl<S: Dims> Param<S> {
    /// Returns the parameter as a tensor, which is an operand like any other: `x * &self.scale.tensor()` for a scale
    /// over the heads, in the middle of a shape, and `(x * &self.temperature.tensor().exp())` for a scalar,
    /// `Param<()>`.
    ///
    /// Elementwise operations read the parameter itself, and its gradient is reduced with that of its unit. For all
    /// others it is copied in the compute dtype.
    ///
    /// Shape: that of the parameter, without groups: `[Heads, HeadDim]` for `Param<((Heads, HeadDim),)>`.
    #[track_caller]
    pub fn tensor(&self) -> Tensor<S::Ungrouped> {
        let param = self.handle();
        let pointwise = Pointwise::param(param, AxisSet::NONE);
        let extents = param.local_extents().to_vec();
        Tensor::from_untyped(Value::deferred(param.rank(), extents, pointwise))
    }
}
