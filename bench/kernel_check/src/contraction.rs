//! Contraction of multiplications and additions to fused multiply-adds, which round once instead of twice.
//!
//! The compiler contracts `a * b + c` as it sees fit, and so not necessarily alike in two kernels. Intrinsics such as
//! `__fmul_rn` keep it from that; in PTX their instructions name the rounding mode (`mul.rn.f32`), and the assembler
//! contracts only instructions without one.

use std::collections::HashSet;

use meshwright_backend::UnaryFunction;

/// Fixed sources all of whose f32 arithmetic is rounded one operation at a time: their kernels have the bits of the
/// host, or several of them have the same bits.
const EXACT: [&str; 4] = ["elements", "loss", "random", "rope"];

/// Returns true if no kernel of a source may contract operations. These are the sources above, updates of optimizers,
/// and elementwise expressions without functions.
pub fn is_exact(source: &str) -> bool {
    let has_function =
        || UnaryFunction::ALL.iter().any(|function| source.contains(function.name()));
    EXACT.contains(&source)
        || source.starts_with("update_")
        || source.starts_with("map_") && !has_function()
}

/// Returns the names of the kernels in which f32 operations are contracted, or may be by the assembler.
pub fn contracting_kernels(ptx: &str) -> Vec<&str> {
    let entries = ptx.split(".entry ").skip(1);
    let contracting = entries.filter(|entry| is_contracting(entry));
    contracting.filter_map(|entry| Some(entry.split('(').next()?.trim())).collect()
}

/// Returns true if a kernel has a fused multiply-add, or adds a product although neither names its rounding.
fn is_contracting(entry: &str) -> bool {
    let mut products = HashSet::new();
    let mut terms = HashSet::new();
    for line in entry.lines() {
        let Some((operation, operands)) = line.trim().split_once(char::is_whitespace) else {
            continue;
        };
        let mut operands = operands.trim_end_matches(';').split(',').map(str::trim);
        let words: Vec<&str> = operation.split('.').collect();
        // Also pairs, `f32x2`.
        let is_float = words.last().is_some_and(|dtype| dtype.starts_with("f32"));
        match words[0] {
            "fma" if is_float => return true,
            _ if words.contains(&"rn") => {}
            "mul" if is_float => products.extend(operands.next()),
            "add" | "sub" if is_float => terms.extend(operands.skip(1)),
            _ => {}
        }
    }
    !products.is_disjoint(&terms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
.visible .entry fused(
\t.param .u64 fused_param_0
)
{
\tfma.rn.f32 \t%f3, %f1, %f2, %f0;
}
.visible .entry left_to_the_assembler(
)
{
\tmul.f32 \t%f2, %f0, %f1;
\tsub.f32 \t%f3, %f4, %f2;
}
.visible .entry exponential(
)
{
\tsub.f32 \t%f1, %f0, %f9;
\tmul.f32 \t%f2, %f1, 0f3FB8AA3B;
\tex2.approx.f32 \t%f3, %f2;
\tadd.f32 \t%f4, %f4, %f3;
}
.visible .entry rounded(
)
{
\tmul.rn.f32 \t%f2, %f0, %f1;
\tadd.rn.f32 \t%f3, %f4, %f2;
\tadd.f32 \t%f5, %f2, %f3;
}
";

    #[test]
    fn products_that_are_added_may_be_contracted() {
        assert_eq!(contracting_kernels(PTX), ["fused", "left_to_the_assembler"]);
        assert_eq!(contracting_kernels(""), [""; 0]);
    }

    #[test]
    fn exact_sources_have_no_functions() {
        for exact in ["rope", "update_p_g_mul_sub_f32_none", "map_x0_x1_row2_add_dropout_add_f32"] {
            assert!(is_exact(exact), "{exact}");
        }
        for other in ["norm", "optim", "map_x0_row1_add_gelu_tanh_f32", "attention_forward_64"] {
            assert!(!is_exact(other), "{other}");
        }
    }
}
