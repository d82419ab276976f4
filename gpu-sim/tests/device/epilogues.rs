//! Matmuls with bias, GELU or bias-gradient epilogues, on a simulated device or on a GPU. cuBLASLt may lack an epilogue
//! for f32, which is printed as `NOT FUSED` and not a failure. It must have all of them for bf16.

use std::io::Write;
use std::sync::Arc;

use meshwright::backend::{DType, Expr, Gemm, GemmEpilogue, Node, UnaryFunction};
use meshwright_cuda::{CallKind, DriverError};
use meshwright_gpu_sim::{SimDevice, not_checked_on_gpu, on_gpu};

use crate::support::{
    FLOATS, Operand, Target, assert_close, device, device_with, epsilon, host, values,
};

/// Rows and columns of a matmul, and the length of its sums.
type Sizes = (usize, usize, usize);

/// Returns the sizes for the device under test; cuBLASLt needs multiples of 8.
fn sizes() -> &'static [Sizes] {
    if on_gpu() { &[(64, 96, 128), (16384, 768, 3072)] } else { &[(5, 16, 11)] }
}

fn gemm((m, n, k): Sizes, trans_b: bool) -> Gemm {
    Gemm { m, n, k, trans_a: false, trans_b, accumulate: false }
}

/// Returns the inputs and a bias.
fn operands(side: &Target, (m, n, k): Sizes, dtype: DType) -> [Operand; 3] {
    [(m * k, 1), (k * n, 2), (n, 3)].map(|(len, seed)| side.floats(dtype, &values(len, seed)))
}

/// Returns the absolute error of a sum of `k` terms in another order. The results of a GPU have millions of such sums.
fn rounding(k: usize) -> f32 {
    let each = if on_gpu() { 3e-5 } else { 1e-5 };
    each * (k as f32 / 11.0).sqrt()
}

/// Returns the absolute error of GELU: cuBLASLt may use a tanh instruction with 11 correct bits.
fn gelu_rounding(k: usize) -> f32 {
    rounding(k) + if on_gpu() { 2e-3 } else { 0.0 }
}

/// Returns true if the matmul was computed; prints a permitted refusal.
fn is_fused(fused: bool, what: &str, dtype: DType, sizes: Sizes) -> bool {
    if !fused {
        assert!(on_gpu() && dtype == DType::F32, "{what} {dtype} {sizes:?} is refused");
        // A closed stderr is not an error.
        let _ = writeln!(std::io::stderr(), "NOT FUSED, {what} {dtype} {sizes:?}");
    }
    fused
}

/// Returns the matmul with bias, and its GELU, by separate CPU kernels on f32 operands that are rounded to `dtype`.
fn expected(sizes: Sizes, dtype: DType, trans_b: bool) -> [Vec<f32>; 2] {
    let side = host();
    let rounded = operands(&side, sizes, dtype).map(|x| side.floats(DType::F32, &x.numbers()));
    let [a, b, bias] = &rounded;
    let (m, n, _) = sizes;
    let [mut product, mut sum, mut activated] = [(); 3].map(|()| side.blank(DType::F32, m * n));
    let backend = side.backend();
    backend.gemm(&gemm(sizes, trans_b), a.view(), b.view(), product.view_mut());
    let added = Expr { nodes: vec![Node::Leaf(0), Node::Row(1), Node::Add(0, 1)] };
    backend.map(&added, &[product.view(), bias.view()], sum.view_mut());
    let gelu = Expr { nodes: vec![Node::Leaf(0), Node::Apply(UnaryFunction::GeluTanh, 0)] };
    backend.map(&gelu, &[sum.view()], activated.view_mut());
    [sum.numbers(), activated.numbers()]
}

#[test]
fn bias_and_gelu_are_fused() {
    for &sizes in sizes() {
        for dtype in FLOATS {
            for trans_b in [false, true] {
                check_bias_and_gelu(sizes, dtype, trans_b);
            }
        }
    }
}

fn check_bias_and_gelu(sizes: Sizes, dtype: DType, trans_b: bool) {
    let side = device(1, 0);
    let (m, n, k) = sizes;
    let [sum, activated] = expected(sizes, dtype, trans_b);
    let [a, b, bias] = operands(&side, sizes, dtype);
    let run = |what: &str, ending: GemmEpilogue<'_>| {
        let mut out = side.blank(dtype, m * n);
        let gemm = gemm(sizes, trans_b);
        let fused =
            side.backend().gemm_with_epilogue(&gemm, a.view(), b.view(), ending, out.view_mut());
        is_fused(fused, what, dtype, sizes).then(|| out.numbers())
    };
    let near = |what: &str, got: &[f32], expected: &[f32], floor: f32| {
        assert_close(&format!("{what} {dtype} {sizes:?}"), got, expected, epsilon(dtype), floor);
    };
    if let Some(got) = run("bias", GemmEpilogue::Bias(bias.view())) {
        near("bias", &got, &sum, rounding(k));
    }
    let ending = GemmEpilogue::BiasGelu { bias: bias.view(), pre_activation: None };
    if let Some(got) = run("gelu", ending) {
        near("gelu", &got, &activated, gelu_rounding(k));
    }
    let mut inside = side.blank(dtype, m * n);
    let ending =
        GemmEpilogue::BiasGelu { bias: bias.view(), pre_activation: Some(inside.view_mut()) };
    if let Some(got) = run("gelu, kept", ending) {
        near("gelu, kept", &got, &activated, gelu_rounding(k));
        near("pre-activation", &inside.numbers(), &sum, rounding(k));
    }
}

/// A matmul refused at submission falls back, and the next one is tried again.
#[test]
fn refused_matmul_falls_back() {
    if not_checked_on_gpu() {
        return;
    }
    let sizes = sizes()[0];
    let device = SimDevice::new(4);
    let side = device_with(Arc::new(device.driver()), 0);
    let (m, n, _) = sizes;
    let [a, b, bias] = operands(&side, sizes, DType::Bf16);
    let run = || {
        let mut out = side.blank(DType::Bf16, m * n);
        let ending = GemmEpilogue::Bias(bias.view());
        let (a, b) = (a.view(), b.view());
        let is_there =
            side.backend().gemm_with_epilogue(&gemm(sizes, false), a, b, ending, out.view_mut());
        (is_there, out.numbers())
    };
    let refused = DriverError::Refused { call: "cublasLtMatmul", reason: "no".to_owned() };
    device.fail(CallKind::MatMul, 0, refused);
    let (is_there, out) = run();
    assert!(!is_there && out.iter().all(|x| x.is_nan()));
    assert_eq!(side.backend().flops(), 0);
    let (is_there, out) = run();
    assert!(is_there);
    assert_close("bias", &out, &expected(sizes, DType::Bf16, false)[0], epsilon(DType::Bf16), 1e-5);
}

#[test]
fn unsupported_epilogues_do_nothing() {
    // Unaligned operands, unsupported sizes, and the CPU.
    let sizes @ (m, n, k) = sizes()[0];
    let narrow = (m, n - 1, k);
    for (side, sizes) in [(device(3, 1), sizes), (device(3, 0), narrow), (host(), sizes)] {
        let [a, b, bias] = operands(&side, sizes, DType::F32);
        let mut out = side.blank(DType::F32, m * sizes.1);
        let (ending, to) = (GemmEpilogue::Bias(bias.view()), out.view_mut());
        let gemm = gemm(sizes, false);
        let fused = side.backend().gemm_with_epilogue(&gemm, a.view(), b.view(), ending, to);
        let out = out.numbers();
        if fused {
            // cuBLASLt also takes these in f32.
            assert!(on_gpu());
            let [sum, _] = expected(sizes, DType::F32, false);
            assert_close("bias", &out, &sum, f32::EPSILON, rounding(k));
        } else {
            assert!(out.iter().all(|x| x.is_nan()));
            assert_eq!(side.backend().flops(), 0);
        }
    }
}
