//! Comparison of methods in a plain impl block and in one with `#[forward]`.

/// Defines a test that `forward` computes the given number from 3, with and without the macro.
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
