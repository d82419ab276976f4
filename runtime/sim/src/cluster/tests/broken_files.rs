//! Faulty files: each error names the file, the line, the key, and what is allowed.

use super::*;

const GOOD: &str = r#"
[gpu]
name = "mine"
source = "me"
trust = "measured"
units = 10
tile = [128, 128]
memory_gb = 80
memory_bandwidth_gb_s = 3000
host_bandwidth_gb_s = 50
[gpu.peak_tflop_s]
bf16 = 1000
[gpu.launch]
kernel_us = 2.5
graph_kernel_us = 0.3
[gpu.matmul]
efficiency = 0.75
wave_exponent = 0.25
half_k = 40
start_us = 4
[gpu.passes]
start_us = 2
others = 0.8
rope = { value = 0.7, source = "you", trust = "guess" }
[gpu.attention_fraction]
forward = 0.6
backward = 0.5
[[gpu.attention]]
head_dim = 64
pass = "forward"
lengths = [512, 1024]
tflop_s = [200, 300]

[[gpu.attention]]
head_dim = 64
pass = "backward"
lengths = [512]
tflop_s = [150]

[cluster]
name = "box"
description = "A box"
source = "me"
trust = "measured"
[[cluster.level]]
name = "node"
size = 8
bandwidth_gb_s = 450
collective_gb_s = 360
message_gb_s = 360
latency_us = 20
latency_per_doubling_us = 0
[[cluster.level]]
name = "network"
size = 64
bandwidth_gb_s = 50
collective_gb_s = 26
message_gb_s = 26
latency_us = 70
latency_per_doubling_us = 60
"#;

/// Replaced text, its replacement, the beginning of the line that the error names, and the error.
type Case = (&'static str, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("memory_gb = 80", "memory_gb = 0", "memory_gb", "`gpu.memory_gb` is 0; it must be a number above 0"),
    ("memory_gb = 80", "memory_gb = -80", "memory_gb", "`gpu.memory_gb` is -80; it must be a number above 0"),
    ("memory_gb = 80", "memory_gb = nan", "memory_gb", "`gpu.memory_gb` is nan; it must be a number above 0"),
    ("memory_gb = 80", "memory_gb = \"80\"", "memory_gb", "`gpu.memory_gb` is a value of type string; it must be"),
    ("memory_gb = 80", "memory_bg = 80", "memory_bg", "`gpu.memory_bg` is unknown; did you mean `memory_gb`?"),
    ("memory_gb = 80", "", "[gpu]", "`gpu.memory_gb` is missing: it must be a number above 0"),
    ("memory_gb = 80", "memory_gb = 80\ncolor = 1", "color", "`gpu.color` is unknown; known are source, trust, name"),
    ("memory_gb = 80", "memory_gb = 80\nmemory_gb = 81", "memory_gb = 81", "not valid TOML: duplicate key"),
    ("memory_gb = 80", "memory_gb = ", "memory_gb", "not valid TOML"),
    ("units = 10", "units = 2.5", "units", "`gpu.units` is 2.5; it must be a whole number from 1 to 10 million"),
    ("tile = [128, 128]", "tile = [128]", "tile", "`gpu.tile` must have two sizes, such as [128, 256]"),
    ("bf16 = 1000", "bf16 = inf", "bf16", "`gpu.peak_tflop_s.bf16` is inf; it must be a number above 0"),
    ("bf16 = 1000", "fp16 = 1000", "fp16", "`gpu.peak_tflop_s.fp16` is unknown; known are source, trust, bf16, f32"),
    ("bf16 = 1000", "", "[gpu.peak_tflop_s]", "`gpu.peak_tflop_s` is empty: it must have bf16, f32 or both"),
    ("kernel_us = 2.5", "kernel_us = -1", "kernel_us", "`gpu.launch.kernel_us` is -1; it must be a number of 0 or"),
    ("efficiency = 0.75", "efficiency = 75", "efficiency", "`gpu.matmul.efficiency` is 75; it must be a fraction"),
    ("[gpu.matmul]", "[gpu.matmuls]", "[gpu.matmuls]", "`gpu.matmuls` is unknown; did you mean `matmul`?"),
    ("others = 0.8", "others = 0.8\nropes = 0.7", "ropes", "`gpu.passes.ropes` is unknown; did you mean `rope`?"),
    ("\"guess\"", "\"gues\"", "rope", "`gpu.passes.rope.trust` is `gues`; it must be one of \"measured\""),
    ("value = 0.7", "value = 1.7", "rope", "`gpu.passes.rope.value` is 1.7; it must be a fraction above 0 and at"),
    ("\"forward\"", "\"fwd\"", "pass", "`gpu.attention[0].pass` is `fwd`: use `forward` or `backward`"),
    ("\"backward\"", "\"forward\"", "head_dim = 64\npass = \"forward\"\nlengths = [512]", "is 64, for which there"),
    ("[512, 1024]", "[1024, 512]", "lengths", "`gpu.attention[0].lengths` must be growing lengths"),
    ("[200, 300]", "[200]", "tflop_s", "`gpu.attention[0].tflop_s` has 1 rates for 2 lengths"),
    ("lengths = [512]", "dtype = \"f16\"\nlengths = [512]", "dtype", "[1].dtype` is `f16`: use `bf16` or `f32`"),
    ("[cluster]", "[[gpu.sharing]]\nranks = 2\ncompute = 0\nmemory = 1\n[cluster]", "compute", "is 0; it must"),
    ("trust = \"measured\"\nunits", "units", "[gpu]", "`gpu.trust` is missing: every number has one"),
    ("name = \"mine\"", "name = \"my GPU\"", "name", "`gpu.name` is `my GPU`: use letters, digits, `-` and `_`"),
    ("\"A box\"", "\"A box\"\ngpu = \"h100-xsm\"", "gpu =", "unknown GPU `h100-xsm`; did you mean `h100-sxm`?"),
    ("size = 64", "size = 17", "size = 17", "is 17, which groups of 8 do not divide: use a multiple of 8"),
    ("size = 64", "size = 8", "size = 8\nbandwidth_gb_s = 50\n", "`cluster.level[1].size` is 8: a level has more GPUs"),
    ("size = 64", "size = 1e9", "size = 1e9", "`cluster.level[1].size` is 1e9; it must be a whole number from 1 to"),
    ("size = 8\n", "", "name = \"network\"", "comes after a level without a size: only the last level may have any"),
    ("\"network\"", "\"node\"", "name = \"node\"\nsize = 64", "`cluster.level[1].name` is `node`, as of another level"),
    ("collective_gb_s = 26", "collective_gb_s = 60", "collective_gb_s = 60", "is 60, above the `bandwidth_gb_s` of 50"),
    ("[[cluster.level]]", "[[cluster.levels]]", "[[cluster.levels]]", "`cluster.levels` is unknown; did you mean"),
    ("[cluster]", "[clusters]", "[clusters]", "`clusters` is unknown; did you mean `cluster`?"),
    ("[[cluster.level]]", "[cluster.level]", "[cluster.level]\nname = \"network\"", "not valid TOML: duplicate key"),
];

#[test]
fn faults_are_located() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "my.toml", GOOD);
    Catalog::new().cluster(path.to_str().unwrap()).unwrap();
    for (text, replacement, at, message) in CASES {
        assert!(GOOD.contains(text), "{text}");
        let broken = GOOD.replace(text, replacement);
        let offset = broken.find(&format!("\n{at}")).unwrap_or_else(|| panic!("{at}"));
        let line = broken[..=offset].lines().count() + 1;
        let path = write(dir.path(), "my.toml", &broken);
        let error = Catalog::new().cluster(path.to_str().unwrap()).unwrap_err().to_string();
        let place = format!("{}:{line}: ", path.display());
        assert!(error.starts_with(&place) && error.contains(message), "{message}:{line}\n{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn other_contents_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let gpu_only = &GOOD[..GOOD.find("[cluster]").unwrap()];
    let cluster_only = &GOOD[GOOD.find("[cluster]").unwrap()..];
    let level = &GOOD[GOOD.rfind("[[cluster.level]]").unwrap()..];
    let mut levels = GOOD.to_owned();
    for size in 3..=9 {
        let name = format!("\"network{size}\"");
        levels +=
            &level.replace("\"network\"", &name).replace("64", &(16usize << size).to_string());
    }
    let huge = "#".repeat((64 << 20) + 1);
    for (content, message) in [
        (b"".as_slice(), ":1: describes nothing: add a table [gpu], [cluster] or both"),
        (b"# Only a comment\n", ":1: describes nothing"),
        (b"\xff\xfe[gpu]", "my.toml: it is not UTF-8 text"),
        (huge.as_bytes(), "it has more than 64 MiB"),
        (b"gpu = 1", ":1: `gpu` must be a table"),
        (b"[gpus]", ":1: `gpus` is unknown; did you mean `gpu`?"),
        (gpu_only.as_bytes(), "describes a GPU, and no cluster: add a table [cluster]"),
        (
            cluster_only.as_bytes(),
            ":1: `cluster.gpu` is missing: name a GPU, such as gpu = \"h100-sxm\"",
        ),
        (levels.as_bytes(), "`cluster.level` has 9 levels; at most 8 are allowed"),
    ] {
        let path = write(dir.path(), "my.toml", content);
        let error = Catalog::new().cluster(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("my.toml"), "{message}\n{error}");
    }
    let folder = format!("{}/", dir.path().display());
    let error = Catalog::new().cluster(&folder).unwrap_err().to_string();
    assert!(error.contains("directory"), "{error}");
    fs::remove_file(dir.path().join("my.toml")).unwrap();
    let error = Catalog::new().add_path(dir.path()).unwrap_err().to_string();
    assert!(error.contains("the folder has no .toml file"), "{error}");
}
