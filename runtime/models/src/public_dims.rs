//! Dims of the families, under names that do not make those of programs ambiguous.
//!
//! The compiler prints the dims of a program without their path, `Seq` rather than `model::Seq`, if no other type that
//! the program can name is called so. Aliases do not count.

/// Makes dims of a module public, each as an alias of its type and a constant of its value.
macro_rules! public_dims {
    ($module:ident: $($dim:ident),*) => {
        $(
            #[doc = concat!("The dim `", stringify!($dim), "` of the model, as a type and as a value.")]
            pub type $dim = $module::$dim;
            #[doc(hidden)]
            #[expect(non_upper_case_globals, reason = "the value of a dim has the name of its type")]
            pub const $dim: $module::$dim = $module::$dim;
        )*
    };
}
