//! Parameters as fields of a model: initialization and sharding styles.

use crate::layout::{Axis, ParamShape, WholeFeature};
use crate::tensor::{Init, Param};

use super::{Build, Builder, Col, Row, Shard};

impl<S: ParamShape> Build for Param<S> {
    /// Initializes a matrix from a normal distribution, and a vector with ones.
    fn build(builder: &mut Builder<'_>) -> Self {
        let init =
            if S::DIMS.len() > 1 { Init::Normal(builder.sizes().init_std) } else { Init::Ones };
        builder.field_param(init)
    }
}

/// A vector over the output of a column-parallel layer, a dim or a pair, which is split.
#[diagnostic::do_not_recommend]
impl<D: WholeFeature, A: Axis> Shard<Col<A>> for Param<(D,)> {
    type Sharded = Param<(D::Split<A>,)>;
}

#[diagnostic::do_not_recommend]
impl<I: WholeFeature, O: WholeFeature, A: Axis> Shard<Col<A>> for Param<(I, O)> {
    type Sharded = Param<(I, O::Split<A>)>;
}

#[diagnostic::do_not_recommend]
impl<I: WholeFeature, O: WholeFeature, A: Axis> Shard<Row<A>> for Param<(I, O)> {
    type Sharded = Param<(I::Split<A>, O)>;
}
