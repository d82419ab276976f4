//! Products that add a bias, take GELU, or sum columns beside, on a simulated device.

mod support;

use std::sync::Arc;

use meshwright::backend::cuda::DriverError;
use meshwright::backend::{DType, Expr, Gemm, GemmEnding, Node};
use meshwright_gpu_sim::{Kind, SimDevice};
use support::{
    FLOATS, Operand, Side, assert_close, assert_same, device, device_with, epsilon, host, values,
};

const SIZES: (usize, usize, usize) = (5, 16, 11);

fn gemm(trans_b: bool) -> Gemm {
    let (m, n, k) = SIZES;
    Gemm { m, n, k, trans_a: false, trans_b, accumulate: false }
}

/// Factors and a bias.
fn operands(side: &Side, dtype: DType) -> [Operand; 3] {
    let (m, n, k) = SIZES;
    [(m * k, 1), (k * n, 2), (n, 3)].map(|(len, seed)| side.floats(dtype, &values(len, seed)))
}

/// The product with its bias, and GELU of that, by several kernels of the host with operands in f32 that are rounded as
/// those of `dtype`.
fn expected(dtype: DType, trans_b: bool) -> [Vec<f32>; 2] {
    let side = host();
    let rounded = operands(&side, dtype).map(|x| side.floats(DType::F32, &x.numbers()));
    let [a, b, bias] = &rounded;
    let (m, n, _) = SIZES;
    let [mut product, mut sum, mut activated] = [(); 3].map(|()| side.blank(DType::F32, m * n));
    let backend = side.backend();
    backend.gemm(&gemm(trans_b), a.view(), b.view(), product.view_mut());
    let added = Expr { nodes: vec![Node::Leaf(0), Node::Row(1), Node::Add(0, 1)] };
    backend.map(&added, &[product.view(), bias.view()], sum.view_mut());
    let gelu = Expr { nodes: vec![Node::Leaf(0), Node::GeluTanh(0)] };
    backend.map(&gelu, &[sum.view()], activated.view_mut());
    [sum.numbers(), activated.numbers()]
}

#[test]
fn a_bias_and_gelu_come_with_the_product() {
    let side = device(1, 0);
    let (m, n, _) = SIZES;
    for dtype in FLOATS {
        for trans_b in [false, true] {
            let [sum, activated] = expected(dtype, trans_b);
            let [a, b, bias] = operands(&side, dtype);
            let run = |ending: GemmEnding<'_>| {
                let mut out = side.blank(dtype, m * n);
                let (a, b) = (a.view(), b.view());
                assert!(side.backend().gemm_with(&gemm(trans_b), a, b, ending, out.view_mut()));
                out.numbers()
            };
            let near = |what: &str, got: &[f32], expected: &[f32]| {
                assert_close(&format!("{what} {dtype}"), got, expected, epsilon(dtype), 1e-5);
            };
            near("bias", &run(GemmEnding::Bias(bias.view())), &sum);
            let ending = GemmEnding::BiasGelu { bias: bias.view(), inside: None };
            near("gelu", &run(ending), &activated);
            let mut inside = side.blank(dtype, m * n);
            let to = Some(inside.view_mut());
            let ending = GemmEnding::BiasGelu { bias: bias.view(), inside: to };
            near("gelu, kept", &run(ending), &activated);
            near("what GELU is taken of", &inside.numbers(), &sum);
        }
    }
}

#[test]
fn sums_of_columns_come_with_the_gradient_of_a_weight() {
    let side = device(2, 0);
    let (k, n, m) = SIZES;
    for dtype in FLOATS {
        let gemm = Gemm { m, n, k, trans_a: true, trans_b: false, accumulate: true };
        let x = side.floats(dtype, &values(k * m, 4));
        let dy = side.floats(dtype, &values(k * n, 5));
        let mut plain = side.floats(DType::F32, &values(m * n, 6));
        let mut with_sums = side.floats(DType::F32, &values(m * n, 6));
        let mut sums = side.blank(DType::F32, n);
        side.backend().gemm(&gemm, x.view(), dy.view(), plain.view_mut());
        let ending = GemmEnding::Sums(sums.view_mut());
        let to = with_sums.view_mut();
        assert!(side.backend().gemm_with(&gemm, x.view(), dy.view(), ending, to));
        assert_same("gradient of the weight", &with_sums.numbers(), &plain.numbers());
        let dy = dy.numbers();
        let expected: Vec<f32> =
            (0..n).map(|col| (0..k).map(|row| dy[row * n + col]).sum()).collect();
        assert_close("gradient of the bias", &sums.numbers(), &expected, 1e-6, 1e-6);
    }
}

/// A product that is refused when it is submitted is none, and the next one is asked for again.
#[test]
fn a_refused_product_is_none() {
    let device = SimDevice::new(4);
    let side = device_with(Arc::new(device.driver()), 0);
    let (m, n, _) = SIZES;
    let [a, b, bias] = operands(&side, DType::Bf16);
    let run = || {
        let mut out = side.blank(DType::Bf16, m * n);
        let ending = GemmEnding::Bias(bias.view());
        let (a, b) = (a.view(), b.view());
        let is_there = side.backend().gemm_with(&gemm(false), a, b, ending, out.view_mut());
        (is_there, out.numbers())
    };
    let refused = DriverError::Refused { call: "cublasLtMatmul", reason: "no".to_owned() };
    device.fail(Kind::MatMul, 0, refused);
    let (is_there, out) = run();
    assert!(!is_there && out.iter().all(|x| x.is_nan()));
    assert_eq!(side.backend().flops(), 0);
    let (is_there, out) = run();
    assert!(is_there);
    assert_close("bias", &out, &expected(DType::Bf16, false)[0], epsilon(DType::Bf16), 1e-5);
}

#[test]
fn where_there_is_no_such_product_nothing_is_done() {
    // Operands that are not aligned, sizes that the library does not take, and the host.
    let (m, n, _) = SIZES;
    for (side, gemm) in [
        (device(3, 1), gemm(false)),
        (device(3, 0), Gemm { n: n - 1, ..gemm(false) }),
        (host(), gemm(false)),
    ] {
        let (a, b) =
            (side.floats(DType::F32, &values(gemm.m * gemm.k, 1)), values(gemm.k * gemm.n, 2));
        let (b, bias) = (side.floats(DType::F32, &b), side.floats(DType::F32, &values(gemm.n, 3)));
        let mut out = side.blank(DType::F32, m * gemm.n);
        let ending = GemmEnding::Bias(bias.view());
        assert!(!side.backend().gemm_with(&gemm, a.view(), b.view(), ending, out.view_mut()));
        assert!(out.numbers().iter().all(|x| x.is_nan()));
        assert_eq!(side.backend().flops(), 0);
    }
}
