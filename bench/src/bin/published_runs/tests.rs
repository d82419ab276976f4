//! Small tables, from their files to predictions.

use std::fs;

use tempfile::TempDir;

use crate::Arguments;

const ROWS: &str = "\
id,source_key,layers,hidden,ffn_hidden,heads,kv_heads,vocab,gated_mlp,experts,seq_len,gpu,gpu_count,gpus_per_node,\
intra_bw_GBps_per_dir,inter_bw_GBps_per_gpu_per_dir,dtype,global_batch_seqs,micro_batch,TP,SP,PP,VPP,DP,\
zero_stage,recompute
llama,new,8,4096,14336,32,8,32000,1,,4096,H100,8,8,450,50,bf16,64,1,2,1,2,1,2,1,none
gpt,old,8,4096,16384,32,32,51200,0,,2048,A100,16,8,300,25,fp16,64,2,4,0,2,1,2,0,full
moe,new,8,4096,14336,32,8,32000,1,8,4096,H100,8,8,450,50,bf16,64,1,2,1,2,1,2,1,none
rare,new,8,4096,14336,32,8,32000,1,,4096,Z9,8,8,450,50,bf16,64,1,2,1,2,1,2,1,none
uneven,new,8,4096,14336,32,8,32000,1,,4096,H100,8,8,450,50,bf16,65,1,2,1,2,1,2,1,none
";

const PROFILES: &str = "\
[old]
attention = \"unfused\"
overlap = { tp = false, data = false, messages = false }
fused = true
reduce_bytes = 2
";

struct Files(TempDir);

impl Files {
    fn new(rows: &str, profiles: &str) -> Files {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rows.csv"), rows).unwrap();
        fs::write(folder.path().join("profiles.toml"), profiles).unwrap();
        Files(folder)
    }

    /// Returns the lines of the predictions.
    fn predict(&self) -> Result<Vec<String>, String> {
        let [rows, profiles, output] =
            ["rows.csv", "profiles.toml", "out.csv"].map(|name| self.0.path().join(name));
        Arguments { rows, profiles, output: output.clone() }.run()?;
        Ok(fs::read_to_string(output).unwrap().lines().map(str::to_owned).collect())
    }
}

/// Rows that can be described have times that their FLOPs allow, and the others a reason.
#[test]
fn rows_have_times_or_reasons() {
    let lines = Files::new(ROWS, PROFILES).predict().unwrap();
    assert_eq!(lines[0], "id,step_s,memory_bytes,status");
    let tokens_flops = |tokens: f64, parameters: f64| 6.0 * tokens * parameters;
    for (line, id, flops, gpus, peak) in [
        (&lines[1], "llama", tokens_flops(64.0 * 4096.0, 1.87e9), 8.0, 989.4e12),
        (&lines[2], "gpt", tokens_flops(64.0 * 2048.0, 1.82e9) * 4.0 / 3.0, 16.0, 312e12),
    ] {
        let fields: Vec<_> = line.split(',').collect();
        assert_eq!([fields[0], fields[3]], [id, "ok"], "{line}");
        let used = flops / (fields[1].parse::<f64>().unwrap() * gpus * peak);
        assert!((0.2..0.75).contains(&used), "{line}: {used}");
        let memory: f64 = fields[2].parse().unwrap();
        assert!((5e9..80e9).contains(&memory), "{line}");
    }
    assert_eq!(lines[3], "moe,,,mixtures of experts are not predicted");
    assert_eq!(lines[4], "rare,,,the catalog has no GPU `Z9`");
    assert!(
        lines[5].starts_with("uneven,,,") && lines[5].contains("do not divide the batch of 65")
    );
}

/// Messages that hide nothing, and reductions that hide nothing, take time.
#[test]
fn profiles_matter() {
    let step = |profiles: &str| -> f64 {
        let lines = Files::new(ROWS, profiles).predict().unwrap();
        lines[2].split(',').nth(1).unwrap().parse().unwrap()
    };
    let base = step(PROFILES);
    for (name, from, to) in [
        ("attention", "unfused", "cudnn"),
        ("data", "data = false", "data = true"),
        ("messages", "messages = false", "messages = true"),
    ] {
        let changed = step(&PROFILES.replace(from, to));
        assert!(changed < 0.9995 * base, "{name}: {changed} of {base}");
    }
    let changed = step(&PROFILES.replace("fused = true", "fused = false"));
    assert!(changed > 1.01 * base, "fused: {changed} of {base}");
}

#[test]
fn faults_name_their_place() {
    for (from, to, message) in [
        (",8,4096,14336", ",8,4o96,14336", "rows.csv:2: column `hidden`: `4o96` is no number"),
        (
            ",8,4096,14336",
            ",8.5,4096,14336",
            "rows.csv:2: column `layers`: `8.5` is no whole number",
        ),
        ("layers,", "layer,", "rows.csv:1: column `layers` is missing"),
        ("llama,new,", "llama,", "rows.csv:2: has 25 fields, but the first line names 26"),
    ] {
        let error = Files::new(&ROWS.replacen(from, to, 1), PROFILES).predict().unwrap_err();
        assert!(error.contains(message), "{error}");
    }
    let files = Files::new(ROWS, PROFILES);
    fs::create_dir(files.0.path().join("out.csv")).unwrap();
    assert!(files.predict().unwrap_err().contains("out.csv: "));
}
