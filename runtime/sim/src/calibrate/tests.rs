//! Known constants are recovered from records that they predict.

use std::path::PathBuf;

use meshwright_backend::{DType, Kernel, KernelOp};

use super::*;
use crate::cluster::Level;
use crate::time::{GroupLevel, collective_seconds, kernel_seconds, start_seconds};
use crate::{CommOpKind, tests::fixture};

/// Shapes of matmuls `[m, n, k]`.
const MATMULS: [[u32; 3]; 12] = [
    [4096, 704, 256],
    [4096, 256, 704],
    [704, 256, 4096],
    [256, 256, 4096],
    [4096, 256, 256],
    [64, 64, 64],
    [128, 512, 32],
    [2048, 2048, 2048],
    [16, 512, 512],
    [512, 16, 1024],
    [300, 700, 48],
    [1024, 1024, 16],
];

/// The description that records are made of.
fn known() -> Gpu {
    let mut gpu = Gpu::clone(&fixture::h100().gpu);
    gpu.name = "cpu".into();
    (gpu.units, gpu.tile) = (4, [64, 64]);
    gpu.peak = vec![(DType::F32, fixture::figure(200e9))];
    gpu.memory_bandwidth = fixture::figure(20e9);
    for (figure, value) in [
        (&mut gpu.matmul.efficiency, 0.8),
        (&mut gpu.matmul.wave_exponent, 0.2),
        (&mut gpu.matmul.half_k, 24.0),
        (&mut gpu.matmul.start, 2e-6),
        (&mut gpu.passes.start, 2e-6),
        (&mut gpu.passes.others, 0.9),
    ] {
        figure.value = value;
    }
    gpu.attention.clear();
    gpu.passes.of = [(KernelOp::Map, 0.9), (KernelOp::Adamw, 0.6), (KernelOp::RmsNormKernel, 0.4)]
        .map(|(op, fraction)| (op, fixture::figure(fraction)))
        .into();
    gpu
}

fn level() -> Level {
    let mut level = fixture::h100().levels[0].clone();
    (level.size, level.all_reduce_bandwidth) = (64, None);
    level.latency.value = 30e-6;
    level.latency_per_doubling.value = 10e-6;
    level.collective_bandwidth.value = 5e9;
    level
}

/// Returns a record of kernels that `ranks` ranks make slower by `slowdown`, and of calls.
fn record(ranks: usize, slowdown: [f64; 2]) -> StepRecord {
    let gpu = known();
    let (format, version) = StepRecord::format();
    let matmuls = MATMULS.iter().map(|[m, n, k]| Kernel {
        op: KernelOp::Gemm,
        dims: [*m, *n, *k, 0],
        dtype: DType::F32,
        flops: 2 * u64::from(*m) * u64::from(*n) * u64::from(*k),
        read: 4 * u64::from(m * k + n * k),
        written: 4 * u64::from(m * n),
    });
    let attention =
        [AttentionShape(128, false), AttentionShape(512, false), AttentionShape(512, true)];
    let attention = attention.iter().map(|AttentionShape(keys, is_backward)| Kernel {
        op: if *is_backward { KernelOp::AttentionBackward } else { KernelOp::AttentionKernel },
        dims: [*keys, *keys, 64, 32],
        dtype: DType::F32,
        flops: 4 * u64::from(*keys) * u64::from(*keys) * 64 * 32,
        read: 0,
        written: 0,
    });
    let ops = [KernelOp::Map, KernelOp::Adamw, KernelOp::RmsNormKernel];
    let passes = ops.into_iter().flat_map(|op| {
        [256, 65536, 1 << 20].map(|elements| Kernel {
            op,
            dims: [elements, 0, 0, 0],
            dtype: DType::F32,
            flops: 0,
            read: 8 * u64::from(elements),
            written: 4 * u64::from(elements),
        })
    });
    let kernels = matmuls.chain(attention).chain(passes).map(|kernel| {
        let is_compute = kernel.op.is_matmul() || kernel.op.is_attention();
        let start = start_seconds(&gpu, &kernel);
        let work = kernel_seconds(&gpu, &kernel).unwrap() - start;
        let Kernel { op, dims, dtype, flops, read, written } = kernel;
        let (op, dtype) = (op.name().to_owned(), dtype.name().to_owned());
        let seconds = start + work * slowdown[usize::from(!is_compute)];
        KernelRecord { op, dims, dtype, count: 4, flops, read, written, seconds }
    });
    let calls = [1u64, 1 << 12, 1 << 20, 1 << 23].map(|bytes| {
        let level = level();
        let group = GroupLevel { level: &level, inside: 1.0, groups: ranks as f64 };
        let seconds = collective_seconds(CommOpKind::AllGather, bytes as f64, &[group]);
        CallRecord { op: "all_gather".into(), group: ranks, bytes, count: 2, seconds }
    });
    StepRecord {
        format,
        version,
        device: RecordedDevice {
            kind: "cpu".into(),
            name: "A CPU".into(),
            units: 4,
            memory: 1 << 34,
        },
        mesh: format!("dp={ranks}"),
        ranks,
        sharing_ranks: ranks,
        dtype: "f32".into(),
        step_seconds: 1.0,
        recorded_seconds: 1.0,
        host_seconds: 0.0,
        measured_steps: 1,
        kernels: kernels.collect(),
        calls: if ranks > 1 { calls.to_vec() } else { Vec::new() },
    }
}

/// Keys, and true for the backward pass.
struct AttentionShape(u32, bool);

fn records(all: Vec<StepRecord>) -> Vec<(PathBuf, StepRecord)> {
    all.into_iter()
        .enumerate()
        .map(|(idx, record)| (format!("r{idx}.json").into(), record))
        .collect()
}

fn three() -> Vec<(PathBuf, StepRecord)> {
    records(vec![record(1, [1.0; 2]), record(2, [1.9, 1.3]), record(4, [3.7, 3.1])])
}

fn error_of(calibration: &Calibration, kind: &str) -> CurveError {
    *calibration.errors.iter().find(|error| error.kind == kind).unwrap()
}

#[test]
fn known_constants_are_recovered() {
    let calibration = calibrate(&three(), "this").unwrap();
    let (gpu, expected) = (&calibration.cluster.gpu, known());
    for (_, record) in three().iter().take(1) {
        for kernel in record.kernels.iter().filter_map(KernelRecord::kernel) {
            let [found, known] = [gpu, &expected].map(|gpu| kernel_seconds(gpu, &kernel).unwrap());
            assert!((found / known - 1.0).abs() < 0.03, "{kernel:?}: {found} {known}");
        }
    }
    for (kind, left_out) in [("matmuls", 2), ("other kernels", 1), ("collectives", 1)] {
        let error = error_of(&calibration, kind);
        assert!(error.left_out == left_out && error.mean < 0.05, "{error:?}");
    }
    let factors: Vec<_> =
        gpu.sharing.iter().map(|own| (own.ranks, own.compute.value, own.memory.value)).collect();
    for (found, (ranks, compute, memory)) in
        factors.iter().zip([(1, 1.0, 1.0), (2, 1.9, 1.3), (4, 3.7, 3.1)])
    {
        assert_eq!(found.0, ranks);
        assert!((found.1 / compute - 1.0).abs() < 0.05 && (found.2 / memory - 1.0).abs() < 0.05);
    }
    let found = &calibration.cluster.levels[0];
    for (found, known) in [
        (&found.collective_bandwidth, &level().collective_bandwidth),
        (&found.latency, &level().latency),
    ] {
        assert!((found.value / known.value - 1.0).abs() < 0.05, "{found:?}");
    }
}

/// Calls without kernels, as `meshwright bench comm` measures them, only change the link.
#[test]
fn calls_without_steps_calibrate_the_link() {
    let mut all = three();
    let kernels = calibrate(&all, "this").unwrap().cluster.gpu;
    for (_, record) in &mut all {
        record.calls.clear();
    }
    let mut calls = record(2, [1.0; 2]);
    (calls.step_seconds, calls.measured_steps) = (0.0, 0);
    calls.kernels.clear();
    // Each size is measured for the same time.
    calls.calls.iter_mut().for_each(|call| call.count = (0.2 / call.seconds) as u64);
    all.extend([("comm.json".into(), calls.clone())]);
    let found = calibrate(&all, "this").unwrap().cluster;
    // Sources name the files.
    let curves = |gpu: &Gpu| format!("{gpu:?}").replace(" comm.json", "");
    assert_eq!(curves(&found.gpu), curves(&kernels));
    let level = level();
    for (found, known) in [
        (&found.levels[0].collective_bandwidth, &level.collective_bandwidth),
        (&found.levels[0].latency, &level.latency),
    ] {
        assert!((found.value / known.value - 1.0).abs() < 0.05, "{found:?}");
    }
    let alone = calibrate(&records(vec![calls]), "this").unwrap_err().to_string();
    assert!(alone.starts_with("r0.json: has 0 shapes of matmuls"), "{alone}");
}

/// The file has everything, and its uncertainty is that of measured rates.
#[test]
fn files_have_the_calibrated_cluster() {
    let cluster = calibrate(&three(), "this").unwrap().cluster;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("this.toml");
    std::fs::write(&path, cluster.to_toml()).unwrap();
    let read = Catalog::new().cluster(path.to_str().unwrap()).unwrap();
    assert_eq!(read.to_toml(), cluster.to_toml());
    assert!(read.gpu.is_shared());
    assert_eq!((read.name.as_str(), read.uncertainty(false)), ("this", 0.08));
}

#[test]
fn a_changed_shape_raises_its_error() {
    let mut all = three();
    let before = error_of(&calibrate(&all, "this").unwrap(), "matmuls").mean;
    // The fifth shape is left out of the first fit.
    all[0].1.kernels[4].seconds *= 1.5;
    let after = error_of(&calibrate(&all, "this").unwrap(), "matmuls").mean;
    assert!(before < 0.05 && after > 0.1, "{before} {after}");
}

/// Kernels of ranks that wait for cores have no times of their own.
#[test]
fn ranks_beyond_the_cores_are_no_factors() {
    let mut all = three();
    for (_, record) in &mut all {
        record.device.units = 2;
    }
    let gpu = calibrate(&all, "this").unwrap().cluster.gpu;
    assert_eq!(gpu.sharing.iter().map(|own| own.ranks).collect::<Vec<_>>(), [1, 2]);
    let [two, four] = [2.0, 4.0].map(|ranks| gpu.slowdown(ranks)[0]);
    assert!((four / two - 2.0).abs() < 1e-9);
}

/// A GPU of the catalog keeps what no record has.
#[test]
fn a_known_gpu_keeps_its_peak() {
    let mut own = record(1, [1.0; 2]);
    own.device.kind = "cuda".into();
    own.device.name = "NVIDIA H100 80GB HBM3".into();
    own.device.memory = 80_000_000_000;
    let cluster = calibrate(&records(vec![own]), "mine").unwrap().cluster;
    let catalog = Catalog::new().cluster("h100").unwrap();
    assert_eq!((&cluster.gpu.peak, cluster.node()), (&catalog.gpu.peak, 8));
    assert!(!cluster.gpu.is_shared());
    assert_eq!(cluster.gpu.trust(), Trust::Measured);
}

#[test]
fn records_that_do_not_fit_are_refused() {
    let error = |all: Vec<StepRecord>| calibrate(&records(all), "this").unwrap_err().to_string();
    assert!(error(Vec::new()).starts_with("no record is given"));
    let mut other = record(2, [1.0; 2]);
    other.device.name = "B CPU".into();
    assert_eq!(
        error(vec![record(1, [1.0; 2]), other]),
        "r0.json is of `A CPU`, but r1.json is of `B CPU`: calibrate one device at a time"
    );
    let mut other = record(2, [1.0; 2]);
    other.dtype = "bf16".into();
    assert_eq!(
        error(vec![record(1, [1.0; 2]), other]),
        "r0.json has --dtype f32, but r1.json has --dtype bf16: record runs of one dtype"
    );
    let mut one = record(1, [1.0; 2]);
    one.kernels.truncate(1);
    assert!(error(vec![one]).starts_with("r0.json: has 1 shapes of matmuls"));
}

#[test]
fn other_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        StepRecord::read(&path).unwrap_err().to_string()
    };
    let mut version = serde_json::to_value(record(1, [1.0; 2])).unwrap();
    version["version"] = 7.into();
    for (name, text, found) in [
        ("a", "", "is empty"),
        ("b", "[gpu]\nname = \"a\"", "is TOML"),
        ("c", "{\"traceEvents\":[]}", "is a trace"),
        ("d", "{\"kernels\":[]}", "is the log of a dry run, which has no durations"),
        ("e", "{\"step_s\":1}", "is the log of a dry run"),
        ("f", "{}", "is other JSON"),
        ("g", "{\"format\":\"meshwright step record\",\"version\":1}", "is an incomplete record"),
        ("h", &version.to_string(), "has the version 7"),
    ] {
        let error = read(name, text);
        assert!(error.contains(&format!("/{name}: {found}")), "{error}");
        assert!(error.contains("calibrate reads records"), "{error}");
    }
    let missing = StepRecord::read(&folder.path().join("none")).unwrap_err().to_string();
    assert!(missing.contains("none: No such file"), "{missing}");
    let path = folder.path().join("good");
    let good = record(2, [1.0; 2]);
    std::fs::write(&path, serde_json::to_string(&good).unwrap()).unwrap();
    assert_eq!(StepRecord::read(&path).unwrap(), good);
}
