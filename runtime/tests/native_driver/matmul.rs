//! Matmuls and epilogues.

use std::sync::Mutex;

use meshwright::backend::{DType, Gemm};
use meshwright_cuda::{
    DriverCalls, DriverError, MatMul, MatMulBatch, MatMulEpilogue, MatMulOperands,
};

use super::{download, driver, folders, free, upload};

/// Held by tests of matmuls, since the stub's counters are global.
pub static MATMUL_LOCK: Mutex<()> = Mutex::new(());

/// Returns a variable of the cuBLASLt stub.
pub fn stub_number(name: &str) -> i32 {
    // SAFETY: only tests that hold the lock access it.
    unsafe { *stub_place(name) }
}

pub fn set_stub_number(name: &str, value: i32) {
    // SAFETY: as above.
    unsafe { *stub_place(name) = value };
}

fn stub_place(name: &str) -> *mut i32 {
    let path = folders().0.join("libcublasLt.so.13");
    // SAFETY: the stub is loaded permanently, and its variables are `int`s.
    unsafe {
        let library = libloading::Library::new(path).unwrap();
        *library.get::<*mut i32>(name).unwrap()
    }
}

#[test]
fn matmuls_are_row_major() {
    let _alone = MATMUL_LOCK.lock();
    let driver = driver();
    let stream = driver.new_stream(false).unwrap();
    let (m, n, k) = (3, 5, 4);
    // Small integers, which are exact in bf16.
    let a: Vec<f32> = (0..m * k).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    let b: Vec<f32> = (0..k * n).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
    let half = |values: &[f32]| -> Vec<half::bf16> {
        values.iter().map(|value| half::bf16::from_f32(*value)).collect()
    };
    let f32s = [upload(&driver, stream, &a), upload(&driver, stream, &b)];
    let bf16s = [upload(&driver, stream, &half(&a)), upload(&driver, stream, &half(&b))];
    for form in 0..8 {
        let [trans_a, trans_b, accumulate] = [1, 2, 4].map(|bit| form & bit != 0);
        let gemm = Gemm { m, n, k, trans_a, trans_b, accumulate };
        for (inputs, [from_a, from_b]) in [(DType::F32, f32s), (DType::Bf16, bf16s)] {
            let c = upload(&driver, stream, &vec![100.0f32; m * n]);
            let (result, epilogue) = (DType::F32, MatMulEpilogue::Plain);
            let shape = MatMul { gemm, inputs, result, epilogue, is_grouped: false, batch: None };
            let operands = MatMulOperands::plain(from_a, from_b, c);
            // SAFETY: the matrices have these sizes.
            unsafe { driver.matmul(stream, &shape, &operands) }.unwrap();
            let expected: Vec<f32> = (0..m * n)
                .map(|at| {
                    let (row, col) = (at / n, at % n);
                    let product = |i: usize| {
                        a[if trans_a { i * m + row } else { row * k + i }]
                            * b[if trans_b { col * k + i } else { i * n + col }]
                    };
                    (0..k).map(product).sum::<f32>() + if accumulate { 100.0 } else { 0.0 }
                })
                .collect();
            assert_eq!(download::<f32>(&driver, stream, c, m * n), expected, "{gemm:?} {inputs}");
            free(&driver, &[c]);
        }
    }
    free(&driver, &f32s);
    free(&driver, &bf16s);
    driver.free_stream(stream).unwrap();
}

/// Matrices of `a` lie side by side, in rows of both; those of `b` and `c` follow each other.
#[test]
fn batched_matmuls_are_row_major() {
    let _alone = MATMUL_LOCK.lock();
    let driver = driver();
    let stream = driver.new_stream(false).unwrap();
    let (count, m, n, k) = (2, 3, 5, 4);
    let a: Vec<f32> = (0..count * m * k).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    let b: Vec<f32> = (0..count * k * n).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
    let [at_a, at_b] = [&a, &b].map(|values| upload(&driver, stream, values));
    let c = upload(&driver, stream, &vec![0f32; count * m * n]);
    let gemm = Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false };
    let batch = MatMulBatch { count, lead: [count * k, n, n], strides: [k, k * n, m * n] };
    let (inputs, result, epilogue) = (DType::F32, DType::F32, MatMulEpilogue::Plain);
    let shape = MatMul { gemm, inputs, result, epilogue, is_grouped: false, batch: Some(batch) };
    let operands = MatMulOperands::plain(at_a, at_b, c);
    // SAFETY: the matrices have these sizes.
    unsafe { driver.matmul(stream, &shape, &operands) }.unwrap();
    let element = |at: usize| {
        let (matrix, row, col) = (at / n / m, at / n % m, at % n);
        let product = |i: usize| a[(row * count + matrix) * k + i] * b[(matrix * k + i) * n + col];
        (0..k).map(product).sum::<f32>()
    };
    let expected: Vec<f32> = (0..count * m * n).map(element).collect();
    assert_eq!(download::<f32>(&driver, stream, c, count * m * n), expected);
    free(&driver, &[at_a, at_b, c]);
    driver.free_stream(stream).unwrap();
}

#[test]
fn epilogues_are_row_major() {
    let _alone = MATMUL_LOCK.lock();
    let driver = driver();
    let stream = driver.new_stream(false).unwrap();
    let (m, n, k) = (3, 8, 5);
    let a: Vec<f32> = (0..m * k).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    let b: Vec<f32> = (0..k * n).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
    let bias: Vec<f32> = (0..n).map(|i| 1000.0 * (i + 1) as f32).collect();
    let [at_a, at_b, at_bias] = [&a, &b, &bias].map(|values| upload(&driver, stream, values));
    let [c, aux] = [(); 2].map(|()| upload(&driver, stream, &vec![0f32; m * n]));
    let gemm = Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false };
    let with = |epilogue| MatMul {
        gemm,
        inputs: DType::F32,
        result: DType::F32,
        epilogue,
        is_grouped: false,
        batch: None,
    };
    let run = |epilogue, bias, aux| {
        assert_eq!(driver.has_matmul(&with(epilogue)), Ok(true));
        let operands = MatMulOperands { a: at_a, b: at_b, c, bias, aux };
        // SAFETY: the operands have these sizes.
        unsafe { driver.matmul(stream, &with(epilogue), &operands) }.unwrap();
        download::<f32>(&driver, stream, c, m * n)
    };
    let product = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum::<f32>();
    let plain: Vec<f32> = (0..m * n).map(product).collect();
    let biased: Vec<f32> = (0..m * n).map(|at| plain[at] + bias[at % n]).collect();
    // The stub doubles instead of GELU.
    let doubled: Vec<f32> = biased.iter().map(|x| 2.0 * x).collect();
    assert_eq!(run(MatMulEpilogue::Plain, 0, 0), plain);
    assert_eq!(run(MatMulEpilogue::Bias, at_bias, 0), biased);
    assert_eq!(run(MatMulEpilogue::BiasGelu { aux: false }, at_bias, 0), doubled);
    assert_eq!(run(MatMulEpilogue::BiasGelu { aux: true }, at_bias, aux), doubled);
    assert_eq!(download::<f32>(&driver, stream, aux, m * n), biased);
    // Another bias of the same matmul.
    let other = upload(&driver, stream, &vec![0f32; n]);
    assert_eq!(run(MatMulEpilogue::Bias, other, 0), plain);

    let narrow = MatMul { gemm: Gemm { n: 6, ..gemm }, ..with(MatMulEpilogue::Bias) };
    assert_eq!(driver.has_matmul(&narrow), Ok(false));
    assert_eq!(
        driver.has_matmul(&MatMul { gemm: Gemm { k: 0, ..gemm }, ..with(MatMulEpilogue::Bias) }),
        Ok(false)
    );
    free(&driver, &[at_a, at_b, at_bias, c, aux, other]);
    driver.free_stream(stream).unwrap();
}

/// A refusal is remembered, whether the heuristic or an execution reports it, and does not affect plain matmuls.
#[test]
fn refused_epilogues_are_remembered() {
    let _alone = MATMUL_LOCK.lock();
    let (m, n, k) = (4, 8, 5);
    let gemm = Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false };
    let with = |epilogue| MatMul {
        gemm,
        inputs: DType::F32,
        result: DType::F32,
        epilogue,
        is_grouped: false,
        batch: None,
    };
    for when in [1, 2] {
        let driver = driver();
        let stream = driver.new_stream(false).unwrap();
        let ones = vec![1f32; 64];
        let [a, b, c, bias] = [(); 4].map(|()| upload(&driver, stream, &ones));
        let operands = MatMulOperands { a, b, c, bias, aux: 0 };
        // SAFETY: the operands have at least these sizes.
        let run = |epilogue| unsafe { driver.matmul(stream, &with(epilogue), &operands) };
        set_stub_number("stub_refuses", when);
        for epilogue in [MatMulEpilogue::Bias, MatMulEpilogue::BiasGelu { aux: false }] {
            assert_eq!(driver.has_matmul(&with(epilogue)), Ok(when == 2), "{epilogue:?}");
            let refused = run(epilogue);
            assert!(matches!(refused, Err(DriverError::Refused { .. })), "{when} {refused:?}");
            // Also if the library would support them now.
            set_stub_number("stub_refuses", 0);
            assert_eq!(driver.has_matmul(&with(epilogue)), Ok(false), "{epilogue:?}");
            set_stub_number("stub_refuses", when);
        }
        run(MatMulEpilogue::Plain).unwrap();
        assert_eq!(download::<f32>(&driver, stream, c, m * n), vec![k as f32; m * n]);
        set_stub_number("stub_refuses", 0);
        free(&driver, &[a, b, c, bias]);
        driver.free_stream(stream).unwrap();
    }
}

#[test]
fn matmuls_without_terms_are_zero() {
    let _alone = MATMUL_LOCK.lock();
    let driver = driver();
    let stream = driver.new_stream(false).unwrap();
    let c = upload(&driver, stream, &[5.0f32; 4]);
    let product = |k, accumulate, inputs, result| {
        let gemm = Gemm { m: 2, n: 2, k, trans_a: false, trans_b: false, accumulate };
        let epilogue = MatMulEpilogue::Plain;
        let shape = MatMul { gemm, inputs, result, epilogue, is_grouped: false, batch: None };
        // SAFETY: without terms no inputs are read, and a refused matmul reads nothing.
        unsafe { driver.matmul(stream, &shape, &MatMulOperands::plain(c, c, c)) }
    };
    product(0, true, DType::F32, DType::F32).unwrap();
    assert_eq!(download::<f32>(&driver, stream, c, 4), [5.0; 4]);
    product(0, false, DType::F32, DType::F32).unwrap();
    assert_eq!(download::<f32>(&driver, stream, c, 4), [0.0; 4]);
    let error = product(1, false, DType::F32, DType::Bf16).unwrap_err().to_string();
    assert_eq!(error, "cublasLtMatmul failed: no matmul has f32 inputs and a bf16 result");
    free(&driver, &[c]);
    driver.free_stream(stream).unwrap();
}
