mod broken_files;

use std::fs;
use std::path::{Path, PathBuf};

use meshwright_backend::{DType, KernelOp};

use super::*;

/// Writes a file of a folder and returns its path.
fn write(dir: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, content).unwrap();
    path
}

/// A file for each built-in cluster, read back from its printed form.
#[test]
fn printed_files_describe_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for cluster in Catalog::new().clusters() {
        let path = write(dir.path(), "copy.toml", cluster.to_toml());
        let read = Catalog::new().cluster(path.to_str().unwrap());
        assert_eq!(&read.unwrap_or_else(|error| panic!("{error}")), cluster);
    }
}

#[test]
fn built_in_figures_have_si_units() {
    let catalog = Catalog::new();
    let h100 = catalog.cluster("h100").unwrap();
    let gpu = &h100.gpu;
    assert_eq!(gpu.peak_of(DType::Bf16).unwrap().value, 989.4e12);
    assert_eq!(gpu.memory.value, 80e9);
    assert_eq!(gpu.memory_bandwidth.value, 3.35e12);
    assert_eq!(gpu.matmul.start.value, 4.0 * 1e-6);
    assert_eq!(gpu.passes.of[&KernelOp::RmsNormBackward].value, 0.72);
    // bench/results/h100.md: 432 and 355 TFLOP/s for heads of 64 at 4096 tokens.
    let rate = |is_backward| {
        let curve = gpu
            .attention
            .iter()
            .find(|curve| curve.head_dim == 64 && curve.is_backward == is_backward);
        curve.unwrap().rates.iter().find(|(length, _)| *length == 4096).unwrap().1
    };
    assert_eq!([rate(false), rate(true)], [432e12, 355e12]);
    assert_eq!((h100.node(), h100.gpus, h100.levels[1].size), (8, None, MAX_GPUS));
    let llama3 = catalog.cluster("llama3").unwrap();
    let sizes: Vec<usize> = llama3.levels.iter().map(|level| level.size).collect();
    assert_eq!((sizes, llama3.gpus), (vec![8, 16, 3072, 24576], Some(24576)));
    assert_eq!(llama3.gpu, h100.gpu);
    assert_eq!(catalog.cluster("gb200").unwrap().levels[1].size, 9_999_936);
}

/// The arithmetic of the catalog's figures: 24,576 GPUs of 989.4 TFLOP/s are 24.3 EFLOP/s, and the network between
/// pods has a seventh of the bandwidth inside of them.
#[test]
fn llama3_has_its_published_totals() {
    let cluster = Catalog::new().cluster("llama3").unwrap();
    let peak = cluster.gpu.peak_of(DType::Bf16).unwrap().value * cluster.gpus.unwrap() as f64;
    assert!((peak / 24.3e18 - 1.0).abs() < 1e-3, "{peak:e}");
    let [pod, across] = [2, 3].map(|level| cluster.levels[level].bandwidth.value);
    assert!((pod / across - 7.0).abs() < 1e-3);
}

/// The peaks that the MFU of real runs is relative to, which are rounded to whole TFLOP/s and 0.05 TB/s.
#[test]
fn peaks_agree_with_those_of_drivers() {
    let catalog = Catalog::new();
    for (name, driver_name) in [
        ("a100-sxm-40gb", "NVIDIA A100-SXM4-40GB"),
        ("a100-sxm-80gb", "NVIDIA A100-SXM4-80GB"),
        ("h100-sxm", "NVIDIA H100 80GB HBM3"),
        ("h200-sxm", "NVIDIA H200"),
        ("b200", "NVIDIA B200"),
        ("gb200", "NVIDIA GB200"),
    ] {
        let (gpu, peak) =
            (catalog.gpu(name).unwrap(), meshwright_cuda::native::peak_of(driver_name).unwrap());
        let ours = [DType::Bf16, DType::F32].map(|dtype| gpu.peak_of(dtype).unwrap().value);
        for (ours, theirs) in ours.into_iter().zip([peak.bf16, peak.f32]) {
            assert!((ours / theirs - 1.0).abs() < 1e-3, "{name}: {ours:e} and {theirs:e}");
        }
        let ratio = gpu.memory_bandwidth.value / peak.bandwidth;
        assert!((ratio - 1.0).abs() < 0.025, "{name}: {ratio}");
    }
}

/// Numbers of the most common origin in a table need none of their own, and others state what differs.
#[test]
fn printed_origins_are_short() {
    let printed = Catalog::new().gpu("v100-sxm-32gb").unwrap().to_toml();
    let (_, passes) = printed.split_once("[gpu.passes]\n").unwrap();
    let expected = "source = \"fractions of an H100, bench/results/h100.md\"\ntrust = \"guess\"\n\
                    start_us = { value = 2, source = \"an estimate\" }\nothers = 0.83\n";
    assert!(passes.starts_with(expected), "{passes}");
}

#[test]
fn a_missing_dtype_is_named() {
    let k40 = Catalog::new().gpu("k40").unwrap();
    let error = k40.peak_of(DType::Bf16).unwrap_err().to_string();
    assert!(
        error.starts_with("the GPU `k40` has no peak for bf16 (it has f32): add `bf16`"),
        "{error}"
    );
}

#[test]
fn trust_decides_the_uncertainty() {
    let catalog = Catalog::new();
    let uncertainty = |name: &str| {
        let cluster = catalog.cluster(name).unwrap();
        [false, true].map(|across| (100.0 * cluster.uncertainty(across)).round())
    };
    assert_eq!(uncertainty("h100"), [8.0, 13.0]);
    assert_eq!(uncertainty("b200"), [15.0, 20.0]);
    assert_eq!(uncertainty("mi300x"), [35.0, 40.0]);
    let mut measured = Cluster::clone(&catalog.cluster("h100").unwrap());
    measured.levels[1].collective_bandwidth.origin.trust = Trust::Measured;
    assert_eq!(measured.uncertainty(true), 0.08);
}

/// A GPU of a user's file replaces the built-in one of its name, also in built-in clusters.
#[test]
fn files_of_users_replace_names() {
    let dir = tempfile::tempdir().unwrap();
    let mut own = Gpu::clone(&Catalog::new().gpu("h100-sxm").unwrap());
    own.matmul.efficiency.value = 0.5;
    write(dir.path(), "gpu.toml", own.to_toml());
    write(dir.path(), "notes.txt", "not read");
    let cluster = "[cluster]\nname = \"mine\"\ndescription = \"\"\ngpu = \"h100-sxm\"\nsource = \"me\"\n\
                   trust = \"measured\"\n[[cluster.level]]\nname = \"node\"\nsize = 4\nbandwidth_gb_s = 450\n\
                   collective_gb_s = 300\nmessage_gb_s = 300\nlatency_us = 20\nlatency_per_doubling_us = 0\n";
    // Read before the file of its GPU.
    let path = write(dir.path(), "a.toml", cluster);
    let mut catalog = Catalog::new();
    catalog.add_path(dir.path()).unwrap();
    for name in ["h100", "llama3", "mine"] {
        assert_eq!(*catalog.cluster(name).unwrap().gpu, own, "{name}");
    }
    // A file of the folder can be named as well.
    let sized = SizedCluster::parse(&format!("{}x4", path.display()), &catalog).unwrap();
    assert_eq!((sized.cluster.name.as_str(), sized.gpus), ("mine", 4));

    write(dir.path(), "b.toml", cluster);
    let error = Catalog::new().add_path(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("a.toml and ") && error.contains("both describe the cluster `mine`"),
        "{error}"
    );
}
