//! Equality of shapes: elementwise operations combine tensors of the same shape, without broadcasting.

/// A shape that elementwise operations can combine with `Self`: the same shape.
///
/// Every pair of tuples has an impl whose bound reports the mismatch: [`Identical`] if both sides have as many dims,
/// [`Broadcast`] if one side has fewer.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` cannot be combined with one shaped `{T}`",
    label = "not known to be the same shape"
)]
pub trait SameShape<T: ?Sized> {}

/// The same dims, split alike.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` cannot be combined with one shaped `{T}`",
    label = "their dims or splits differ",
    note = "both sides must have the same dims, split alike: `.gather(Dim)` makes a `Split<Dim, A>` whole, \
            `.slice(Dim, Tp)` splits a whole dim; one declared `@` stays distributed",
    note = "rows of experts go back to their tokens first: `routing.combine(&rows)`"
)]
pub trait Identical<T> {}

#[diagnostic::do_not_recommend]
impl<S> Identical<S> for S {}

/// Broadcasting to a shape with more or fewer dims. Never implemented.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` cannot be combined with one shaped `{T}`: tensors are not broadcast",
    label = "one side has more dims than the other",
    note = "give both sides the same shape: create a constant with it, `Tensor::from_fn(x.rank(), &x.sizes(), ..)`, or \
            drop a dim of the larger side by a sum or mean",
    note = "a learned vector or matrix that repeats along the leading dims is a parameter over the trailing ones: \
            `gain: Param<(Hidden,)>` and `x * &self.gain`"
)]
pub trait Broadcast<T> {}

macro_rules! pairs {
    ($rule:ident: $(($($left:ident),*) and ($($right:ident),*);)*) => {$(
        impl<$($left,)* $($right),*> SameShape<($($right,)*)> for ($($left,)*)
        where
            ($($left,)*): $rule<($($right,)*)>,
        {
        }
    )*};
}

pairs! { Identical:
    () and ();
    (A) and (V);
    (A, B) and (V, W);
    (A, B, C) and (V, W, X);
    (A, B, C, D) and (V, W, X, Y);
    (A, B, C, D, E) and (V, W, X, Y, Z);
}

pairs! { Broadcast:
    () and (V);
    () and (V, W);
    () and (V, W, X);
    () and (V, W, X, Y);
    () and (V, W, X, Y, Z);
    (A) and ();
    (A) and (V, W);
    (A) and (V, W, X);
    (A) and (V, W, X, Y);
    (A) and (V, W, X, Y, Z);
    (A, B) and ();
    (A, B) and (V);
    (A, B) and (V, W, X);
    (A, B) and (V, W, X, Y);
    (A, B) and (V, W, X, Y, Z);
    (A, B, C) and ();
    (A, B, C) and (V);
    (A, B, C) and (V, W);
    (A, B, C) and (V, W, X, Y);
    (A, B, C) and (V, W, X, Y, Z);
    (A, B, C, D) and ();
    (A, B, C, D) and (V);
    (A, B, C, D) and (V, W);
    (A, B, C, D) and (V, W, X);
    (A, B, C, D) and (V, W, X, Y, Z);
    (A, B, C, D, E) and ();
    (A, B, C, D, E) and (V);
    (A, B, C, D, E) and (V, W);
    (A, B, C, D, E) and (V, W, X);
    (A, B, C, D, E) and (V, W, X, Y);
}
