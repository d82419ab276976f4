//! Attention by cuDNN on a GPU, compared with the CPU kernels and with itself.
//!
//! Without a GPU or cuDNN the tests say so and check nothing; with `MESHWRIGHT_REQUIRE_CUDNN_DEVICE=1` they fail.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use half::bf16;
use meshwright::backend::cpu::CpuBackend;
use meshwright::backend::ops::attention::{AttentionArgs, AttentionBackwardArgs};
use meshwright::backend::{AttentionOps, AttentionShape, Band, SequenceLayout, View, ViewMut};
use meshwright_cuda::cudnn::{AttentionPass, CudnnHandle, CudnnOptions, DeviceDescription};
use meshwright_cuda::native::{NativeDriver, NativeOptions};
use meshwright_cuda::{AttentionGradients, AttentionOperands, DriverCalls, FusedShape, Stream};

use crate::support::values;

/// Returns the device with attention as the options select; `None` if not available.
fn device(options: CudnnOptions) -> Option<Arc<NativeDriver>> {
    let native = NativeOptions { attention: Some(options), ..NativeOptions::default() };
    let found = NativeDriver::with_options(0, native).map_err(|error| error.to_string());
    let found = found.and_then(|driver| {
        driver.cudnn().map(drop).map_err(str::to_string)?;
        Ok(driver)
    });
    if let Err(why) = &found {
        let required = std::env::var("MESHWRIGHT_REQUIRE_CUDNN_DEVICE").is_ok_and(|v| v == "1");
        assert!(!required, "MESHWRIGHT_REQUIRE_CUDNN_DEVICE is set, but {why}");
        let _ = writeln!(std::io::stderr(), "NOT CHECKED, cuDNN on a GPU: {why}");
    }
    found.ok()
}

/// Returns pseudo-random numbers between -1 and 1, rounded to bf16. They have no correlations: the correlations of a
/// sine, for instance, make gradients so much smaller than their terms that the roundings inside of attention show in
/// them.
fn numbers(seed: u64, len: usize) -> Vec<bf16> {
    values(len, seed).into_iter().map(bf16::from_f32).collect()
}

/// All operands of attention.
struct Results {
    out: Vec<bf16>,
    lse: Vec<f32>,
    dq: Vec<bf16>,
    dk: Vec<bf16>,
    dv: Vec<bf16>,
}

struct Case {
    shape: AttentionShape,
    q: Vec<bf16>,
    k: Vec<bf16>,
    v: Vec<bf16>,
    dout: Vec<bf16>,
}

impl Case {
    fn new(shape: AttentionShape) -> Case {
        let AttentionShape { batch, queries, keys, heads, kv_heads, head_dim, value_dim, .. } =
            shape;
        let of_queries = |dim| batch * queries.len * heads * dim;
        let of_keys = |dim| batch * keys.pitch * kv_heads * dim;
        let lens =
            [of_queries(head_dim), of_keys(head_dim), of_keys(value_dim), of_queries(value_dim)];
        let mut seed = 0;
        let [q, k, v, dout] = lens.map(|len| {
            seed += 1;
            numbers(seed, len)
        });
        Case { shape, q, k, v, dout }
    }

    /// Returns results before they are computed.
    fn empty(&self) -> Results {
        let s = &self.shape;
        // Between the samples of keys, it stays.
        let like = |x: &Vec<bf16>| vec![bf16::from_f32(0.5); x.len()];
        let lse = vec![f32::NAN; s.batch * s.heads * s.queries.len];
        let (out, dq) = (like(&self.dout), like(&self.q));
        Results { out, lse, dq, dk: like(&self.k), dv: like(&self.v) }
    }

    fn on_cpu(&self) -> Results {
        let cpu = CpuBackend::new(2).expect("threads");
        let mut r = self.empty();
        let [q, k, v, dout] = [&self.q, &self.k, &self.v, &self.dout].map(|x| &x[..]);
        let s = &self.shape;
        let (out, lse) = (ViewMut::from(&mut r.out[..]), ViewMut::from(&mut r.lse[..]));
        cpu.attention(
            s,
            AttentionArgs {
                q: View::from(q),
                k: View::from(k),
                v: View::from(v),
                ranges: None,
                bias: None,
                sinks: None,
                out,
                lse,
            },
        );
        cpu.attention_backward(
            s,
            AttentionBackwardArgs {
                q: View::from(q),
                k: View::from(k),
                v: View::from(v),
                ranges: None,
                bias: None,
                sinks: None,
                out: View::from(&r.out[..]),
                lse: View::from(&r.lse[..]),
                dout: View::from(dout),
                accumulate: false,
                dq: ViewMut::from(&mut r.dq[..]),
                dk: ViewMut::from(&mut r.dk[..]),
                dv: ViewMut::from(&mut r.dv[..]),
                dbias: None,
                dsinks: None,
            },
        );
        r
    }

    fn on_device(&self, driver: &NativeDriver, stream: Stream) -> Results {
        let mut r = self.empty();
        let given = [&self.q, &self.k, &self.v, &self.dout];
        let [q, k, v, dout] = given.map(|x| upload(driver, stream, x));
        let [out, dq, dk, dv] = [&r.out, &r.dq, &r.dk, &r.dv].map(|x| upload(driver, stream, x));
        let lse = upload(driver, stream, &r.lse);
        let attention = driver.cudnn().expect("checked when the device was opened");
        let s = &FusedShape::from_attention(&self.shape).expect("a fused shape");
        for pass in [AttentionPass::Forward, attention.backward_pass()] {
            assert_eq!(attention.refusal_reason(s, pass, usize::MAX), None);
        }
        let operands = AttentionOperands { q, k, v, out, lse };
        let gradients = AttentionGradients { dout, dq, dk, dv };
        // SAFETY: each allocation has as many elements as its operand, and all work is on one stream.
        unsafe {
            attention.forward(stream, s, &operands).expect("it runs");
            attention.backward(stream, s, &operands, &gradients).expect("it runs");
        }
        for (address, bytes) in [
            (out, bytemuck::cast_slice_mut(&mut r.out)),
            (lse, bytemuck::cast_slice_mut(&mut r.lse)),
            (dq, bytemuck::cast_slice_mut(&mut r.dq)),
            (dk, bytemuck::cast_slice_mut(&mut r.dk)),
            (dv, bytemuck::cast_slice_mut(&mut r.dv)),
        ] {
            download(driver, stream, address, bytes);
        }
        let free = |address, bytes| {
            // SAFETY: allocated above with these bytes, and all work is done.
            unsafe { driver.free(address, bytes) }.expect("memory");
        };
        [dout, out].into_iter().for_each(|address| free(address, 2 * r.out.len()));
        [q, dq].into_iter().for_each(|address| free(address, 2 * r.dq.len()));
        [k, dk].into_iter().for_each(|address| free(address, 2 * r.dk.len()));
        [v, dv].into_iter().for_each(|address| free(address, 2 * r.dv.len()));
        free(lse, 4 * r.lse.len());
        r
    }
}

fn upload<T: bytemuck::Pod>(driver: &NativeDriver, stream: Stream, values: &[T]) -> u64 {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let address = driver.alloc(bytes.len()).expect("memory");
    // SAFETY: a new allocation of this size; the host memory is valid until the stream is synchronized.
    unsafe { driver.upload(stream, address, bytes.as_ptr().cast(), bytes.len()) }.expect("upload");
    driver.synchronize(stream).expect("upload");
    address
}

fn download(driver: &NativeDriver, stream: Stream, address: u64, bytes: &mut [u8]) {
    let (host, len) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: as in `upload`.
    unsafe { driver.download(stream, host, address, len) }.expect("download");
    driver.synchronize(stream).expect("download");
}

fn shapes() -> [AttentionShape; 5] {
    let shape = |batch, seq, heads, kv_heads, head_dim, causal| {
        let band = if causal { Band::CAUSAL } else { Band::ALL };
        AttentionShape::new(batch, seq, [heads, kv_heads, head_dim], band)
    };
    [
        shape(2, 128, 4, 4, 64, true),
        shape(1, 256, 8, 2, 128, true),
        shape(3, 77, 2, 1, 64, true),
        shape(2, 200, 4, 4, 64, false),
        shape(1, 1000, 5, 5, 64, true),
    ]
}

/// Windows, other keys than queries, gaps between samples, and values of another width, which a version may refuse on a
/// device: then, our own kernels compute them.
fn other_shapes() -> Vec<AttentionShape> {
    let square = AttentionShape::new(2, 300, [4, 2, 64], Band::CAUSAL);
    let window = |before, after| AttentionShape {
        band: Band { offset: 0, before: Some(before), after },
        ..square
    };
    let keys =
        |len, pitch, band| AttentionShape { keys: SequenceLayout { len, pitch }, band, ..square };
    let at_the_end = |before| Band { offset: 161, before, after: Some(0) };
    vec![
        window(99, Some(0)),
        window(0, Some(0)),
        window(127, Some(63)),
        window(50, None),
        keys(461, 461, Band::ALL),
        keys(77, 77, Band::ALL),
        keys(77, 77, Band::CAUSAL),
        keys(461, 500, Band::ALL),
        keys(461, 500, at_the_end(None)),
        keys(461, 500, at_the_end(Some(70))),
        AttentionShape { value_dim: 128, ..square },
        AttentionShape { head_dim: 192, value_dim: 128, ..square },
    ]
}

fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// Returns the largest difference relative to `scale`; NaN if there is any.
fn difference(got: &[f32], expected: &[f32], scale: f32) -> f32 {
    let worst = |most: f32, (x, y): (&f32, &f32)| {
        let difference = (x - y).abs();
        if difference <= most { most } else { difference }
    };
    got.iter().zip(expected).fold(0.0, worst) / scale
}

fn widened(x: &[bf16]) -> Vec<f32> {
    x.iter().map(|x| x.to_f32()).collect()
}

/// Returns true if cuDNN takes both passes of a shape; reports the reason if not.
fn is_taken(driver: &NativeDriver, shape: &AttentionShape) -> bool {
    let attention = driver.cudnn().expect("checked when the device was opened");
    let fused = FusedShape::from_attention(shape).expect("a fused shape");
    [AttentionPass::Forward, attention.backward_pass()].into_iter().all(|pass| {
        let reason = attention.refusal_reason(&fused, pass, usize::MAX);
        if let Some(reason) = &reason {
            let _ = writeln!(std::io::stderr(), "NOT CHECKED, {pass} of {shape:?}: {reason}");
        }
        reason.is_none()
    })
}

#[test]
fn attention_agrees_with_the_cpu() {
    for deterministic in [true, false] {
        let Some(driver) = device(CudnnOptions { deterministic, ..CudnnOptions::default() }) else {
            return;
        };
        let stream = driver.new_stream(false).expect("a stream");
        for shape in shapes()
            .into_iter()
            .chain(other_shapes().into_iter().filter(|shape| is_taken(&driver, shape)))
        {
            let case = Case::new(shape);
            let (got, expected) = (case.on_device(&driver, stream), case.on_cpu());
            let lse = difference(&got.lse, &expected.lse, largest(&expected.lse));
            assert!(lse <= 1e-4, "lse of {shape:?} is off by {lse}");
            // A query of one key has the weight 1 whatever the scores are: the gradients of query and key are 0, and
            // cuDNN's are rounding errors.
            let least = 0.01 * largest(&widened(&expected.dv));
            for (what, got, expected) in [
                ("out", &got.out, &expected.out),
                ("dq", &got.dq, &expected.dq),
                ("dk", &got.dk, &expected.dk),
                ("dv", &got.dv, &expected.dv),
            ] {
                // Weights and score gradients are rounded to bf16, 8 bits, before they are multiplied.
                let expected = widened(expected);
                let worst = difference(&widened(got), &expected, largest(&expected).max(least));
                assert!(worst <= 0.02, "{what} of {shape:?} is off by {worst}");
            }
        }
        driver.free_stream(stream).expect("a stream");
    }
}

#[test]
fn deterministic_attention_repeats_bitwise() {
    let Some(driver) = device(CudnnOptions::default()) else { return };
    let streams = [false, true].map(|urgent| driver.new_stream(urgent).expect("a stream"));
    for shape in shapes() {
        let case = Case::new(shape);
        let first = case.on_device(&driver, streams[0]);
        for run in 0..4 {
            let again = case.on_device(&driver, streams[run % 2]);
            let bits = |r: &Results| {
                [&r.out, &r.dq, &r.dk, &r.dv]
                    .map(|x| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
            };
            assert!(bits(&first) == bits(&again), "{shape:?} differs from run to run");
        }
    }
    for stream in streams {
        driver.free_stream(stream).expect("a stream");
    }
}

/// Checks that the device descriptions of the plan tests have the fields of the library's own, which is printed to
/// become a fixture.
#[test]
fn a_device_is_described_as_the_fixtures_are() {
    let Some(driver) = device(CudnnOptions::default()) else { return };
    driver.make_current().expect("the device is there");
    let handle = CudnnHandle::new().expect("the device is there");
    let properties = DeviceDescription::of_handle(&handle).expect("the device has properties");
    let described = properties.to_json().expect("they are text");
    let _ = writeln!(std::io::stderr(), "{described}");
    let keys = |json: &str| -> BTreeSet<String> {
        let fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(json).expect("an object");
        fields.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(
        keys(&described),
        keys(include_str!("../../../runtime/tests/fixtures/cudnn/h200.json"))
    );
}
