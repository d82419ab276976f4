//! Methods that are written twice, into a plain impl block and into one with `#[forward]`, and called in both.

/// A test that `forward` of the given methods computes a number from 3, with the macro and without.
macro_rules! same {
    ($name:ident, $expected:expr, $($methods:tt)*) => {
        #[test]
        fn $name() {
            struct Plain;
            impl Plain { $($methods)* }
            struct Forward;
            #[meshwright_macros::forward(crate = crate::mock)]
            impl Forward { $($methods)* }
            let expected: f64 = $expected;
            assert_eq!(Plain.forward(&3.0), expected, "without the macro");
            assert_eq!(Forward.forward(&3.0), expected, "with the macro");
        }
    };
}
