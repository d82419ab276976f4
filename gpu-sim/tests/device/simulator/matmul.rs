//! Matmuls on the simulated device.

use half::bf16;
use meshwright::backend::{DType, Gemm};
use meshwright_cuda::{DriverCalls, MatMul, MatMulEpilogue, MatMulOperands};

use super::rig::Rig;

const GEMM: Gemm = Gemm { m: 3, n: 2, k: 4, trans_a: false, trans_b: true, accumulate: true };

/// c[3, 2] += a[3, 4] b[2, 4]^T.
fn expected(c: f32) -> Vec<f32> {
    let (a, b) = (|i, k| (i * 4 + k) as f32, |j, k| (j * 4 + k) as f32 - 3.0);
    let at = |i, j| c + (0..4).map(|k| a(i, k) * b(j, k)).sum::<f32>();
    (0..6).map(|i| at(i / 2, i % 2)).collect()
}

fn inputs() -> (Vec<f32>, Vec<f32>) {
    ((0..12).map(|i| i as f32).collect(), (0..8).map(|i| i as f32 - 3.0).collect())
}

fn narrow(values: &[f32]) -> Vec<bf16> {
    values.iter().copied().map(bf16::from_f32).collect()
}

#[test]
fn every_dtype_is_multiplied_as_on_the_host() {
    let rig = Rig::new(1);
    let (a, b) = inputs();
    let (wide_a, wide_b) = (rig.put(&a), rig.put(&b));
    let (narrow_a, narrow_b) = (rig.put(&narrow(&a)), rig.put(&narrow(&b)));
    let wide_c = || rig.put(&[1f32; 6]);
    let narrow_c = rig.put(&narrow(&[1.0; 6]));
    for (inputs, result, a, b, c) in [
        (DType::F32, DType::F32, wide_a, wide_b, wide_c()),
        (DType::Bf16, DType::F32, narrow_a, narrow_b, wide_c()),
        (DType::Bf16, DType::Bf16, narrow_a, narrow_b, narrow_c),
    ] {
        let shape = MatMul {
            gemm: GEMM,
            inputs,
            result,
            epilogue: MatMulEpilogue::Plain,
            is_grouped: false,
            batch: None,
        };
        // SAFETY: the operands have the sizes of the matmul.
        unsafe { rig.driver.matmul(rig.stream, &shape, &MatMulOperands::plain(a, b, c)) }
            .expect("a product");
        let got: Vec<f32> = match result {
            DType::Bf16 => {
                rig.get::<bf16>(c, 6).expect("values").into_iter().map(f32::from).collect()
            }
            _ => rig.get(c, 6).expect("values"),
        };
        let expected = expected(1.0);
        let rounded =
            |x: &f32| if result == DType::Bf16 { bf16::from_f32(*x).to_f32() } else { *x };
        assert_eq!(got, expected.iter().map(rounded).collect::<Vec<_>>(), "{inputs} to {result}");
    }
}

#[test]
fn operands_must_be_there() {
    let rig = Rig::new(1);
    let (a, b) = inputs();
    let (a, b, c) = (rig.put(&a), rig.put(&b), rig.put(&[0f32; 5]));
    let (inputs, result) = (DType::F32, DType::F32);
    let shape = MatMul {
        gemm: GEMM,
        inputs,
        result,
        epilogue: MatMulEpilogue::Plain,
        is_grouped: false,
        batch: None,
    };
    // SAFETY: the driver detects that the last operand is too short.
    let submitted =
        unsafe { rig.driver.matmul(rig.stream, &shape, &MatMulOperands::plain(a, b, c)) };
    let told = submitted
        .and_then(|()| rig.driver.synchronize(rig.stream))
        .expect_err("too short")
        .to_string();
    assert!(
        told.contains("matmul failed: 24 bytes at")
            && told.contains("byte 0 of an allocation of 20"),
        "{told}"
    );
}
