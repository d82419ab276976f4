//! Conformance suite of backends: every kernel against its formula in f64, whatever the device.
//!
//! A family of operations is a module. It has the formula, the sizes, and one function per test, which takes the
//! [`Target`] to test. A backend turns them into tests with one line, [`tests!`]:
//!
//! ```ignore
//! mod conformance {
//!     meshwright_conformance::tests!(crate::on_every_target);
//! }
//! ```
//!
//! A new test is a function in the module of its family, and its name in [`families!`]; a function that is missing
//! there is reported as dead code.

mod compare;
mod target;
mod values;

mod attention;
mod batched_matmul;
mod convolution;
mod copy;
mod embedding;
mod head;
mod index;
mod loss;
mod map;
mod matmul;
mod middle_dim;
mod norm;
mod optim;
mod random;
mod reduce;
mod rope;
mod rounded_states;
mod routing;
mod softmax;
mod strided;

pub use attention::{Case as AttentionCase, Results as AttentionResults, shape as attention_shape};
pub use compare::{assert_close, assert_near, assert_same};
pub use embedding::frequent_tokens;
pub use map::erf;
pub use target::{Operand, Target};
pub use values::{FLOATS, epsilon, scaled, values};

/// Passes the tests of all families to another macro of this crate, after `$run`.
#[doc(hidden)]
#[macro_export]
macro_rules! families {
    ($then:ident $(, $run:path)?) => {
        $crate::$then! {
            $($run)?;
            matmul { formula sums special_values counted_operations }
            batched_matmul { formula counted_operations }
            map {
                formula unused_leaves leaf_and_row nan special_values large_numbers clamped_gradients
                larger_and_smaller powers comparisons selections quotients repeated positions rate blocks
                large_indices
            }
            norm { formula exact_accumulation unneeded_gradients residual parts_of_rows }
            softmax { formula special_values }
            head { finished_logits smoothed_gradients }
            loss { formula single_call special_values sum }
            rope { formula there_and_back }
            middle_dim { reductions functions special_values first_elements }
            reduce { sums broadcasts sums_of_squares batched_sums_of_squares special_squares }
            attention {
                formula random masks scores value_dims biases distant_biases empty rows_without_keys
                rows_without_scores
                long_sequences backward_ranges nan nan_in_document infinite_biases large_scores
                wide_results accumulation random_parts fixed_parts merged_rows dropped
                dropped_at_random dropped_parts dropped_rate
            }
            convolution { causal unfolded }
            copy { updates alignments casts fill_and_scale runs }
            strided { orders repeated }
            embedding { gather gradient frequent }
            index { by_index largest running_sums }
            optim { adamw adamw_groups sgd updates }
            rounded_states { adamw sgd updates sums }
            random { distribution uniform_distribution keys blocks large_indices }
            routing {
                top_k grouping dispatch combine weight_gradients weights penalties no_score
                independent_tokens choice_scores equal_scores
            }
        }
    };
}

/// Declares a test for each function of the suite, in a module per family.
///
/// `$run` is the absolute path of a function that takes the test, an `impl Fn(&Target)`, and calls it for every target
/// of the backend.
#[macro_export]
macro_rules! tests {
    ($run:path) => {
        $crate::families!(declare_tests, $run);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! declare_tests {
    ($run:path; $($family:ident { $($test:ident)* })*) => {
        $(mod $family {
            $(#[test]
            fn $test() {
                $run($crate::suite::$family::$test);
            })*
        })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! export_tests {
    (; $($family:ident { $($test:ident)* })*) => {
        /// The tests of each family.
        pub mod suite {
            $(#[doc = concat!("Tests of the family `", stringify!($family), "`.")]
            pub mod $family {
                $(pub use $crate::$family::$test;)*
            })*
        }
    };
}

families!(export_tests);
