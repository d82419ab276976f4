//! Profiled calls of a simulated device.

use std::sync::Arc;

use meshwright::backend::{AttentionShape, Band, DType, Gemm};
use meshwright_cuda::{CallKind, Driver, DriverCalls, Profile};
use meshwright_gpu_sim::{SimDevice, not_checked_on_gpu};

use crate::support::{device_with, values};
use meshwright_conformance::AttentionCase;

/// Returns the rows of the first table, as values.
fn calls(text: &str) -> Vec<Vec<&str>> {
    let table = text.split("\n\n").next().unwrap();
    table.lines().skip(2).map(|line| line.split(',').collect()).collect()
}

#[test]
fn every_kind_of_call_is_timed() {
    if not_checked_on_gpu() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.csv");
    let device = SimDevice::new(3);
    let profile = Profile::new(file.clone());
    let side = device_with(profile.driver(Arc::new(device.driver()), 2), 0);
    let (m, n, k) = (6, 8, 10);
    let gemm = Gemm { m, n, k, trans_a: false, trans_b: true, accumulate: false };
    let [a, b] =
        [(m * k, 1), (k * n, 2)].map(|(len, seed)| side.floats(DType::Bf16, &values(len, seed)));
    let mut c = side.blank(DType::F32, m * n);
    for _ in 0..3 {
        side.backend().gemm(&gemm, a.view(), b.view(), c.view_mut());
    }
    for _ in 0..2 {
        side.backend().scale(c.view_mut(), 2.0);
    }
    // The results are those without a profile.
    let plain = device_with(Arc::new(SimDevice::new(3).driver()), 0);
    let [x, y] = [&a, &b].map(|operand| plain.floats(DType::Bf16, &operand.numbers()));
    let mut expected = plain.blank(DType::F32, m * n);
    plain.backend().gemm(&gemm, x.view(), y.view(), expected.view_mut());
    let expected: Vec<f32> = expected.numbers().iter().map(|x| 4.0 * x).collect();
    assert_eq!(c.numbers(), expected);
    drop((a, b, c, side));
    assert!(!file.exists(), "it is written at the end");
    drop(profile);

    let text = std::fs::read_to_string(&file).unwrap();
    let calls = calls(&text);
    let find = |name: &str, shape: &str| {
        let mut found = calls.iter().filter(|call| call[0] == name && call[1].contains(shape));
        let call = found.next().unwrap_or_else(|| panic!("{name} {shape} in {text}"));
        assert!(found.next().is_none(), "{text}");
        call.clone()
    };
    // The first call of each kind is reported separately.
    let product = find("matmul", "6 x 8 x 10 NT bf16 -> f32");
    assert_eq!(product[2..5], ["2", "0", "2"]);
    let times: Vec<f64> = product[5..].iter().map(|time| time.parse().unwrap()).collect();
    assert!(times.iter().all(|time| *time > 0.0) && times[1] <= times[2], "{times:?}");
    assert_eq!(find("scale_f32", "1 x 1 x 1 blocks of")[2..5], ["2", "0", "1"]);
    find("upload", "126 bytes");
    find("download", "204 bytes");
    // Every event is freed.
    let kinds: Vec<_> = device.log().iter().map(|entry| entry.kind).collect();
    let count = |kind: CallKind| kinds.iter().filter(|other| **other == kind).count();
    assert!(count(CallKind::NewEvent) > 0);
    assert_eq!(count(CallKind::NewEvent), count(CallKind::FreeEvent));
}

/// The kernels of attention that is not the vendor library's are listed once for each shape.
#[test]
fn own_attention_kernels_are_listed() {
    if not_checked_on_gpu() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.csv");
    let profile = Profile::new(file.clone());
    let window = Band { before: Some(3), ..Band::CAUSAL };
    for (rank, dtype) in [DType::F32, DType::Bf16].into_iter().enumerate() {
        let side = device_with(profile.driver(Arc::new(SimDevice::new(3).driver()), rank), 0);
        let case = AttentionCase::new(AttentionShape::new(2, 9, [4, 2, 16], window), dtype);
        case.run(&side);
        case.run(&side);
    }
    drop(profile);
    let text = std::fs::read_to_string(&file).unwrap();
    let shape = "2 x 9 x 9; 4/2 heads of 16; 3 before and 0 after 0";
    for expected in [
        "forward f32; {},1,2,0,attention_plain",
        "backward f32; {},1,2,0,attention_plain",
        "forward bf16; {},1,2,0,attention_forward_16_ranges",
        "backward bf16; {},1,2,0,attention_backward_keys_16_ranges attention_backward_queries_16_ranges",
    ] {
        let expected = expected.replace("{}", shape);
        assert_eq!(text.lines().filter(|line| **line == expected).count(), 1, "{expected}: {text}");
    }
}

#[test]
fn capture_is_refused() {
    if not_checked_on_gpu() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let profile = Profile::new(folder.path().join("profile.csv"));
    let device = SimDevice::new(3);
    let driver = profile.driver(Arc::new(device.driver()) as Arc<dyn Driver>, 0);
    let stream = driver.new_stream(false).unwrap();
    let error = driver.begin_capture(stream).unwrap_err().to_string();
    assert!(error.contains("MESHWRIGHT_PROFILE") && error.contains("captured"), "{error}");
    assert!(!device.log().iter().any(|entry| entry.kind == CallKind::BeginCapture));
    driver.free_stream(stream).unwrap();
}
