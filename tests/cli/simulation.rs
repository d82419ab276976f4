//! Simulated steps: `--simulate`.

use serde_json::Value;

use crate::{Workspace, assert_contains};

/// A Llama of 1.2 billion parameters on 16 GPUs.
const RUN: &str = "--simulate h100x16 --hidden 2048 --layers 16 --heads 16 --ffn 8192 --vocab 32000 --seq 2048 \
                   --batch 32";

#[test]
fn a_step_on_a_cluster_is_simulated() {
    let workspace = Workspace::new();
    let finished = workspace.run(&format!("{RUN} --mesh fsdp=2,tp=8 --tokens 1T"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    for part in [
        "simulated step of fsdp=2,tp=8 on 16 h100-sxm of h100-dgx",
        "MFU",
        "GPU-hours",
        "exposed tp",
    ] {
        assert_contains(&finished.stdout, part);
    }
}

/// The numbers fit each other and closed formulas.
#[test]
fn json_has_all_numbers() {
    let workspace = Workspace::new();
    let run = |mesh: &str| -> Value {
        let finished = workspace.run(&format!("{RUN} --mesh {mesh} --tokens 1T --out json"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        serde_json::from_str(&finished.stdout).unwrap()
    };
    for mesh in ["fsdp=16", "fsdp=2,tp=8", "pp=2,fsdp=8 --micro-batches 4"] {
        let run = run(mesh);
        let number =
            |key: &str| run[key].as_f64().unwrap_or_else(|| panic!("{mesh}: {key} of {run}"));
        let step = number("step_s");
        let parts: f64 =
            run["time_s"].as_object().unwrap().values().map(|part| part.as_f64().unwrap()).sum();
        assert!((parts / step - 1.0).abs() < 1e-6, "{mesh}: {parts} of {step}");
        let tokens = 32.0 * 2048.0;
        assert_eq!(number("step_tokens"), tokens);
        assert!((number("tokens_per_s") * step / tokens - 1.0).abs() < 1e-9);
        // Weights of matmuls, the head's included, and attention of all pairs.
        let layer = 4.0 * 2048.0 * 2048.0 + 3.0 * 2048.0 * 8192.0 + 2.0 * 2048.0;
        let weights = 16.0 * layer + 2048.0 + 32000.0 * 2048.0;
        let attention = 12.0 * 16.0 * 2048.0 * 2048.0;
        let flops = tokens * (6.0 * weights + attention);
        let mfu = flops / (step * 16.0 * 989.4e12);
        assert!((number("mfu") / mfu - 1.0).abs() < 1e-3, "{mesh}: {} {mfu}", number("mfu"));
        assert!(number("mfu_causal") < number("mfu") && number("mfu") < 0.75);
        let days = 1e12 / number("tokens_per_s") / 86400.0;
        assert!((run["run"]["days"].as_f64().unwrap() / days - 1.0).abs() < 1e-9);
        assert!(number("memory_bytes") < number("gpu_memory_bytes"));
        assert_eq!(number("bubble") > 0.01, mesh.starts_with("pp"), "{mesh}");
    }
}

/// Groups along `tp` are in a node, those of `fsdp` have a rank in both, and so have messages of a pipeline.
#[test]
fn sent_bytes_have_their_levels() {
    let workspace = Workspace::new();
    let links = |mesh: &str| -> Vec<(String, f64, Vec<String>)> {
        let finished = workspace.run(&format!("{RUN} --mesh {mesh} --out json"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let run: Value = serde_json::from_str(&finished.stdout).unwrap();
        let link = |link: &Value| {
            let levels = link["levels"].as_array().unwrap().iter();
            let levels = levels.map(|level| level.as_str().unwrap().to_owned()).collect();
            (
                link["axes"].as_str().unwrap().to_owned(),
                link["sent_bytes"].as_f64().unwrap(),
                levels,
            )
        };
        run["links"].as_array().unwrap().iter().map(link).collect()
    };
    let found = links("fsdp=2,tp=8");
    let (axes, bytes, levels) = &found[0];
    assert_eq!((&**axes, &**levels), ("tp", &["node".to_owned()][..]));
    // Ten collectives of a layer for the tokens of a group, and some of embedding and head.
    let layers = 10.0 * 16.0 * (32.0 * 2048.0 / 2.0) * 2048.0 * 2.0 * 7.0 / 8.0;
    assert!(layers < *bytes && *bytes < 1.05 * layers, "{bytes} instead of {layers}");
    let (axes, _, levels) = &found[1];
    assert_eq!((&**axes, &**levels), ("fsdp", &["network".to_owned()][..]));
    let found = links("pp=2,fsdp=8 --micro-batches 4");
    let [message, group] = ["pp", "fsdp"].map(|axes| {
        found.iter().find(|(name, ..)| name == axes).unwrap_or_else(|| panic!("{axes}"))
    });
    // A message and a gradient for each micro-batch of a rank's 4 sequences, from one of two positions each.
    assert_eq!(
        (message.1, &*message.2),
        (4.0 * 2048.0 * 2048.0 * 2.0, &["network".to_owned()][..])
    );
    assert_eq!(group.2, ["node"]);
}

#[test]
fn a_simulated_step_has_a_trace() {
    let workspace = Workspace::new();
    let finished =
        workspace.run(&format!("{RUN} --mesh pp=2,tp=8 --micro-batches 4 --trace t.json"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let trace: Value =
        serde_json::from_slice(&std::fs::read(workspace.path("t.json")).unwrap()).unwrap();
    let text = trace.to_string();
    for name in ["\"F 1.3\"", "\"B 0.0\"", "comm tp", "comm pp (messages to 1)", "gemm"] {
        assert_contains(&text, name);
    }
    let refused = workspace.run(&format!("{RUN} --mesh pp=2,tp=8 --trace none/t.json"));
    assert_contains(refused.error(), "--trace");
}

#[test]
fn impossible_simulations_are_refused() {
    let workspace = Workspace::new();
    workspace.write("broken.toml", b"[gpu]\nname = \"x\nmemory_gb = 1\n");
    for (line, reason) in [
        (
            "--simulate h100x16 --mesh dp=4",
            "--mesh: the mesh has 4 ranks, but 16 GPUs of h100-dgx are simulated",
        ),
        ("--simulate none.tomlx8 --mesh dp=8", "none.toml"),
        ("--simulate ./broken.tomlx8 --mesh dp=8", "broken.toml:2"),
        ("--simulate k40x4 --mesh dp=4", "k40"),
    ] {
        let refused = workspace.run(line);
        assert_eq!(refused.code, Some(2), "{line}: {}", refused.stderr);
        assert_contains(refused.error(), reason);
    }
    // Without a mesh, one is chosen.
    let chosen = workspace.run("--simulate h100x8 --batch 16 --seq 64");
    assert_eq!(chosen.code, Some(0), "{}", chosen.stderr);
    assert_contains(&chosen.stderr, "--mesh auto: --mesh dp=8 --zero 0 ");
}
