//! Names of dims as types that can be compared, by which broadcasting finds the places of dims.
//!
//! A name is the hash (FNV-1a, 32 bits) of a dim's identifier as eight hexadecimal digits, a list of types. Two dims
//! with one name are found at one place; the types themselves must then be equal, so a collision of hashes is a compile
//! error and never a wrong result.

use super::{At, Dim, Dims, Routed, Split, SplitAxes, Whole};

/// True.
#[derive(Debug)]
pub struct Yes;

/// False.
#[derive(Debug)]
pub struct No;

/// [`Yes`] or [`No`].
pub trait Truth {
    /// The comparison of the rest of two names, after equal digits.
    type Then<A: NameDigits, B: NameDigits>: Truth;
    /// `X` if true, otherwise `Y`.
    type If<X, Y>;
}

impl Truth for Yes {
    type Then<A: NameDigits, B: NameDigits> = A::Is<B>;
    type If<X, Y> = X;
}

impl Truth for No {
    type Then<A: NameDigits, B: NameDigits> = No;
    type If<X, Y> = Y;
}

/// A dim whose name can be compared: one that [`dims!`](meshwright_macros::dims) has declared, whole or split.
#[diagnostic::on_unimplemented(
    message = "the name of `{Self}` is not known here",
    label = "a type parameter stands for any dim, so the dims to repeat along cannot be found by name",
    note = "in generic code write `x.mul_along(&y)` or `x.add_along(&y)`, which find the dims by type; or state the \
            bound `(B, S): Broadcast<(B, S, H)>` and combine by operators"
)]
pub trait Named: Dim {
    /// The name as a type.
    type Name: NameDigits;
}

#[diagnostic::do_not_recommend]
impl<D: Named + Whole, A: SplitAxes> Named for Split<D, A> {
    type Name = D::Name;
}

#[diagnostic::do_not_recommend]
impl<L: Dims, E: Dim> Named for Routed<L, E> {
    type Name = (HA, (H0, (H2, (HE, (HE, (H7, (H2, (HE, ()))))))));
}

/// A list of digits.
pub trait NameDigits {
    /// [`Yes`] if `B` is the same list, of as many digits.
    type Is<B: NameDigits>: Truth;
    /// First digit.
    type Head: Digit;
    /// The others.
    type Tail: NameDigits;
}

impl NameDigits for () {
    type Is<B: NameDigits> = Yes;
    type Head = H0;
    type Tail = ();
}

impl<H: Digit, T: NameDigits> NameDigits for (H, T) {
    type Is<B: NameDigits> = <H::Is<B::Head> as Truth>::Then<T, B::Tail>;
    type Head = H;
    type Tail = T;
}

macro_rules! digits {
    ($($digit:ident $is:ident: $($answer:ident)*;)*) => {
        /// A hexadecimal digit.
        pub trait Digit {
            /// [`Yes`] if `D` is the same digit.
            type Is<D: Digit>: Truth;
            $(
                #[doc(hidden)]
                type $is: Truth;
            )*
        }
        $(
            #[doc(hidden)]
            #[derive(Debug)]
            pub struct $digit;

            digits! { @impl $digit $is ($($answer)*) Is0 Is1 Is2 Is3 Is4 Is5 Is6 Is7 Is8 Is9 IsA IsB IsC IsD IsE IsF }
        )*
    };
    (@impl $digit:ident $same:ident ($($answer:ident)*) $($is:ident)*) => {
        impl Digit for $digit {
            type Is<D: Digit> = D::$same;
            $(type $is = $answer;)*
        }
    };
}

digits! {
    H0 Is0: Yes No No No No No No No No No No No No No No No;
    H1 Is1: No Yes No No No No No No No No No No No No No No;
    H2 Is2: No No Yes No No No No No No No No No No No No No;
    H3 Is3: No No No Yes No No No No No No No No No No No No;
    H4 Is4: No No No No Yes No No No No No No No No No No No;
    H5 Is5: No No No No No Yes No No No No No No No No No No;
    H6 Is6: No No No No No No Yes No No No No No No No No No;
    H7 Is7: No No No No No No No Yes No No No No No No No No;
    H8 Is8: No No No No No No No No Yes No No No No No No No;
    H9 Is9: No No No No No No No No No Yes No No No No No No;
    HA IsA: No No No No No No No No No No Yes No No No No No;
    HB IsB: No No No No No No No No No No No Yes No No No No;
    HC IsC: No No No No No No No No No No No No Yes No No No;
    HD IsD: No No No No No No No No No No No No No Yes No No;
    HE IsE: No No No No No No No No No No No No No No Yes No;
    HF IsF: No No No No No No No No No No No No No No No Yes;
}

/// The place of a dim that a shape does not have.
#[derive(Debug)]
pub struct Absent;

/// [`Yes`] if two dims have one name.
type SameName<D, E> = <<D as Named>::Name as NameDigits>::Is<<E as Named>::Name>;
type If<B, X, Y> = <B as Truth>::If<X, Y>;

/// A shape in which a dim with the name of `D` is looked for, whatever its split.
pub trait Find<D> {
    /// The place: [`At`] a position, or [`Absent`].
    type Place;
}

macro_rules! find {
    (@place $d:ident) => { Absent };
    (@place $d:ident $first:ident $at:literal $($rest:tt)*) => {
        If<SameName<$d, $first>, At<$at>, find!(@place $d $($rest)*)>
    };
    ($($($dim:ident $at:literal)+;)*) => {$(
        impl<Sought: Named, $($dim: Named),+> Find<Sought> for ($($dim,)+) {
            type Place = find!(@place Sought $($dim $at)+);
        }
    )*};
}

find! {
    A 0;
    A 0 B 1;
    A 0 B 1 C 2;
    A 0 B 1 C 2 D 3;
    A 0 B 1 C 2 D 3 E 4;
}
