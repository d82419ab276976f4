//! Operators that never apply, so that the message of a bound explains the fix.

/// Implements operators on `$left` for right operands with the bound `$rule`, which has no impl; `in place` those that
/// assign.
macro_rules! never_applies {
    (in place $operand:ident <$param:ident> $left:ty, $rule:ident:
        $($operator:ident $method:ident;)*
    ) => {
        /// An operand of an operator that assigns. The bound is one of its tuple, because the compiler shows no message
        /// of a bound of the left side's own type.
        pub trait $operand {
            #[doc(hidden)]
            fn never_implemented() -> !;
        }

        impl<R> $operand for R
        where
            (R,): $rule,
        {
            fn never_implemented() -> ! {
                <(R,) as $rule>::never_implemented()
            }
        }

        $(
            /// Never applies; the message of its bound explains why.
            impl<$param, R: $operand> $operator<R> for $left {
                fn $method(&mut self, _: R) {
                    R::never_implemented()
                }
            }
        )*
    };
    (<$($param:tt),+> $left:ty, $rule:ident: $($operator:ident $method:ident;)*) => {
        never_applies! { @ {<$($param),+> $left, $rule} $($operator $method;)* }
    };
    (@ $left:tt $($operator:ident $method:ident;)*) => {$(
        never_applies! { one $left $operator $method }
    )*};
    (one {<$($param:tt),+> $left:ty, $rule:ident} $operator:ident $method:ident) => {
        /// Never applies; the message of its bound explains why.
        impl<$($param,)+ R: $rule> $operator<R> for $left {
            type Output = $left;

            fn $method(self, _: R) -> $left {
                R::never_implemented()
            }
        }
    };
}

pub(in crate::tensor) use never_applies;
