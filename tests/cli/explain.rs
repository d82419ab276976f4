//! The work of a step: `--explain`.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::{Finished, SMALL, Workspace, assert_contains, gpt2_program, mixtral_program, program};

/// Bytes that a cell shows: `16.4 kB`; a dash is none.
fn bytes_in(cell: &str) -> f64 {
    let Some((number, unit)) = cell.split_once(' ') else {
        assert_eq!(cell, "-");
        return 0.0;
    };
    let scale = match unit {
        "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        unit => panic!("{unit}"),
    };
    number.parse::<f64>().unwrap() * scale
}

/// Splits a line at two or more spaces.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// Returns the axes of a process group that have several ranks, and the sum of its bytes.
fn sums_of(table: &str) -> BTreeMap<String, f64> {
    let lines = table.lines().map(cells);
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for line in lines {
        match line[..] {
            ["all", axes, _, ref bytes @ ..] => {
                *sums.entry(axes.to_owned()).or_default() +=
                    bytes.iter().map(|cell| bytes_in(cell)).sum::<f64>();
            }
            // Checks are not counted by metrics.
            ["losses and checks", _, axes, _, ref bytes @ ..] => {
                *sums.entry(axes.to_owned()).or_default() -=
                    bytes.iter().map(|cell| bytes_in(cell)).sum::<f64>();
            }
            _ => {}
        }
    }
    sums
}

/// The bytes of all rows are those that the ranks of a run send.
#[test]
fn the_collectives_are_those_of_a_run() {
    let workspace = Workspace::new();
    let llama = (program as fn() -> Command, SMALL.to_owned());
    // All heads of a GPT-2 have keys and values of their own.
    let gpt2 = (gpt2_program as fn() -> Command, SMALL.replace("--kv-heads 2", ""));
    for ((program, sizes), mesh) in [
        (&llama, "dp=2"),
        (&llama, "dp=2,tp=2 --micro-batches 2"),
        (&llama, "tp=2 --micro-batches 4"),
        (&llama, "fsdp=2 --zero 3 --recompute full"),
        (&llama, "fsdp=2,tp=2 --zero 2 --dtype bf16"),
        (&llama, "cp=2,tp=2"),
        (&llama, "cp=2 --cp ring --recompute full"),
        (&llama, "fsdp=2,pp=2 --micro-batches 2"),
        (&gpt2, "tp=2 --optimizer muon"),
    ] {
        let run = |more: &str| -> Finished {
            let line = format!("{sizes} --mesh {mesh} {more}");
            let finished = workspace.run_program(program(), &line);
            assert_eq!(finished.code, Some(0), "{mesh}\n{}", finished.stderr);
            finished
        };
        let explained = run("--explain").stdout;
        // Metrics come from the first rank, which is at the first position along `pp`.
        let table = explained.split("collectives of a step").nth(1).unwrap();
        run("--steps 2 --metrics m.jsonl");
        let step = workspace.metrics("m.jsonl").pop().unwrap();
        let Value::Object(sent) = &step["comm_bytes"] else { panic!("{step}") };
        let mut expected: BTreeMap<String, f64> = BTreeMap::new();
        for (axes, bytes) in sent {
            let degree = |axis: &&str| mesh.contains(&format!("{axis}="));
            let axes: Vec<&str> = axes.split(" x ").filter(degree).collect();
            *expected.entry(axes.join(" x ")).or_default() += bytes.as_f64().unwrap();
        }
        let sums = sums_of(table);
        for (axes, bytes) in expected {
            let sum = sums.get(&axes).copied().unwrap_or_default();
            assert!((sum - bytes).abs() <= 0.01 * bytes, "{mesh}, {axes}: {sum}, {bytes}\n{table}");
        }
    }
}

/// After the last backward pass, two reductions carry neither gradients nor parameters: the exchange of the step, with
/// its losses and checks, and the norm. Both have as many numbers on every mesh.
#[test]
fn a_step_has_two_exchanges_of_fixed_size() {
    let workspace = Workspace::new();
    let llama = program as fn() -> Command;
    for (program, mesh, micro_batches) in [
        (llama, "tp=2", 1),
        (llama, "fsdp=4", 1),
        (llama, "dp=64", 1),
        (llama, "pp=2,cp=2,tp=2", 2),
        (llama, "dp=2,fsdp=2,cp=2,tp=2", 4),
        (mixtral_program, "fsdp=2,ep=2,tp=2", 1),
    ] {
        let sizes = SMALL.replace("--batch 4", "--batch 64");
        let line = format!("{sizes} --mesh {mesh} --micro-batches {micro_batches} --explain");
        let finished = workspace.run_program(program(), &line);
        assert_eq!(finished.code, Some(0), "{mesh}\n{}", finished.stderr);
        for table in finished.stdout.split("collectives of a step").skip(1) {
            assert!(!table.contains("Metric::reduce"), "{table}");
            let is_number = |row: &Vec<&str>| {
                row.len() >= 8 && row[7] != "-" && row[0] != "all" && !row[0].ends_with(')')
            };
            let lines = table.lines().skip(2).take_while(|line| line.starts_with("  "));
            let rows: Vec<Vec<&str>> = lines.map(cells).filter(is_number).collect();
            let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
            // Replicas of one rank each have the same gradients, and need not sum a norm.
            let expected = ["losses and checks", "Gradients::norm"];
            assert_eq!(names, expected[..names.len().max(1)], "{mesh}\n{table}");
            for (row, numbers) in rows.iter().zip([6 + 2 * micro_batches, 1]) {
                assert_eq!((row[1], row[3]), ("all_reduce", "1 x 1"), "{mesh}\n{table}");
                let is_along = |(axis, _): &(&str, &str)| row[2].split(" x ").any(|of| of == *axis);
                let sizes = mesh.split(',').filter_map(|size| size.split_once('='));
                let degrees = sizes.filter(is_along).map(|(_, size)| size.parse::<f64>().unwrap());
                let ranks: f64 = degrees.product();
                let sent = 2.0 * (8.0 * f64::from(numbers) * (ranks - 1.0) / ranks).floor();
                assert_eq!(bytes_in(row[7]), sent, "{mesh}\n{table}");
            }
        }
    }
}

#[test]
fn rows_name_layers_passes_and_overlap() {
    let workspace = Workspace::new();
    let explain = |line: &str| {
        let table = workspace.train(&format!("{line} --explain")).stdout;
        move |start: [&str; 3]| -> Vec<String> {
            let is_found = |line: &Vec<&str>| line.starts_with(&start);
            let lines: Vec<Vec<&str>> = table.lines().map(cells).filter(is_found).collect();
            assert_eq!(lines.len(), 1, "{start:?}\n{table}");
            lines[0][3..].iter().map(|cell| (*cell).to_owned()).collect()
        }
    };
    // 4 sequences of 16 tokens of width 32 in f32 over two ranks: half of 8,192 bytes, for each of two layers.
    let row = explain("--mesh tp=2");
    let gathered = row(["blocks.0-1.mlp.gate.weight", "reduce_scatter", "tp"]);
    assert_eq!(gathered[..5], ["2 x 1", "-", "-", "8.19 kB", "-"]);
    assert!(gathered[5].ends_with("decoder/model.rs:45"), "{gathered:?}");
    // Parameters are gathered for forward and backward, while the layer before is computed; the parameters of the last
    // layer stay.
    let row = explain("--mesh fsdp=2 --zero 3");
    let gathered = row(["blocks.0 (parameters)", "all_gather", "fsdp"]);
    assert_eq!(gathered[0], "1 x 2");
    assert_eq!(gathered[1], gathered[3]);
    let last = row(["blocks.1 (parameters)", "all_gather", "fsdp"]);
    assert_eq!(last[0], "1 x 1");
    assert_eq!([&last[1], &last[3]], [&gathered[1], "-"]);
    assert_contains(&last[5], "blocks.0");
    let gradients = row(["blocks.0-1 (gradient)", "reduce_scatter", "fsdp"]);
    assert_eq!(gradients[1..3], ["-", "-"]);
    // The forward pass of a recomputed layer communicates again, and its backward uses what that has gathered.
    let row = explain("--mesh tp=2 --recompute full");
    let gathered = row(["blocks.0-1.mlp.gate.weight", "all_gather", "tp"]);
    assert_eq!(gathered[1..4], ["8.19 kB", "8.19 kB", "-"]);
    // No gradient is reduced in the forward pass: the last one is reduced over replicas at the end of backward.
    for flags in ["--zero 1", "--zero 2", "--zero 3", "--zero 1 --tied"] {
        let table = workspace.train(&format!("--mesh dp=2,fsdp=2 {flags} --explain")).stdout;
        let gradients = table.lines().filter(|line| line.contains(" (gradient)")).map(cells);
        let passes: Vec<_> = gradients.map(|row| (row[0].to_owned(), row[4].to_owned())).collect();
        assert!(passes.iter().any(|(field, _)| field == "embed (gradient)"), "{table}");
        assert!(passes.iter().all(|(_, forward)| forward == "-"), "{flags}\n{table}");
    }
    let one = workspace.train("--mesh 1 --explain");
    assert_contains(
        &one.stdout,
        "collectives of a step on rank 0 of 1:\n  none: no rank communicates",
    );
}

/// Each position along `pp` has a table of its own.
#[test]
fn pipelines_are_listed_by_position() {
    let workspace = Workspace::new();
    let text = workspace.train("--mesh pp=2,dp=2 --micro-batches 2 --explain").stdout;
    for line in [
        "collectives of a step on rank 1 of pp=2,dp=2:",
        "collectives of a step on rank 3 of pp=2,dp=2:",
        "  stage 0 -> stage 1",
        "  head (gradient)",
    ] {
        assert_contains(&text, line);
    }
}

/// No rank needs a thread, a device or memory.
#[test]
fn runs_that_are_too_large_for_the_machine_are_listed() {
    let workspace = Workspace::new();
    let large = "--hidden 16384 --layers 128 --heads 128 --kv-heads 16 --batch 1024 --seq 8192 --data text.txt \
                 --mesh pp=4,fsdp=256,tp=16 --zero 3 --micro-batches 4";
    let refused = workspace.run(large);
    assert_contains(refused.error(), "16384 ranks (pp=4,fsdp=256,tp=16)");
    assert_contains(refused.error(), "are too many");
    for device in ["cpu", "cuda"] {
        let explained = workspace.run(&format!("{large} --device {device} --explain"));
        assert_eq!(explained.code, Some(0), "{}", explained.stderr);
        let tables = explained.stdout.matches("collectives of a step on rank ").count();
        assert_eq!(tables, 4, "{device}");
        // The parameters of 32 layers, each split over tp and fsdp; on a GPU in bf16.
        let layer = 16384 * (2 * 16384 + 2 * 2048) + 3 * 16384 * ffn(16384);
        let bytes = 32 * layer / (16 * 256) * if device == "cpu" { 4 } else { 2 };
        let memory =
            explained.stdout.split("memory: each rank at position 0 of pp").nth(1).unwrap();
        let parameters = memory.lines().map(cells).find(|line| line[0] == "parameters").unwrap();
        let planned = bytes_in(parameters[1]);
        assert!((planned / bytes as f64 - 1.0).abs() < 0.01, "{device}: {planned}, {bytes}");
    }
}

/// Width of the feed-forward that a Llama of this width has.
fn ffn(hidden: usize) -> usize {
    (hidden * 8 / 3).next_multiple_of(64)
}

#[test]
fn nothing_is_trained_or_written() {
    let workspace = Workspace::new();
    let before = workspace.listing();
    let finished = workspace.train(
        "--mesh dp=2 --explain --save out --metrics m.jsonl --stage-times t.json --export-hf hf",
    );
    assert_contains(&finished.stdout, "collectives of a step on rank 1 of dp=2:");
    assert!(!finished.stderr.contains("step 1"), "{}", finished.stderr);
    assert_eq!(workspace.listing(), before);
}

/// Text and document have the same numbers.
#[test]
fn layers_that_are_alike_share_a_row_of_kernels() {
    let workspace = Workspace::new();
    let text = workspace.train("--mesh tp=2 --recompute full --explain").stdout;
    let table = text.split("computation of a step on rank 1 of tp=2:\n").nth(1).unwrap();
    let mut rows = table.lines().map(cells);
    let row = rows.find(|row| row[..2] == ["blocks.0-1", "Mlp::forward"]).unwrap();
    // Two layers, each in three passes.
    assert!(row[2].starts_with("2 x "), "{row:?}");
    // Forward and recomputation are the same.
    assert_eq!((row[3], row[6]), (row[4], row[7]), "{table}");
    let total = rows.find(|row| row[0] == "total").unwrap();
    let json = workspace.train("--mesh tp=2 --recompute full --explain json");
    let document: Value = serde_json::from_str(&json.stdout).unwrap();
    let position = &document["positions"][0];
    assert_eq!(document["mesh"], "tp=2");
    assert_eq!(position["rank"], 1);
    let rows = position["computation"].as_array().unwrap();
    let kernels: u64 = rows.iter().map(|row| row["kernels"].as_u64().unwrap()).sum();
    assert_eq!(total[1], kernels.to_string());
    let bytes = position["memory_peak"]["bytes"].as_f64().unwrap();
    let peak = text.split("memory of a step on rank 1 of tp=2: at most ").nth(1).unwrap();
    let (shown, moment) = peak.split_once(", in the ").unwrap();
    assert!((bytes_in(shown) / bytes - 1.0).abs() < 0.01, "{shown}, {bytes}");
    let groups = moment.lines().skip(1).take_while(|line| line.starts_with("  ")).map(cells);
    let groups: Vec<Vec<&str>> = groups.collect();
    assert_eq!((groups.len(), groups[5][0]), (6, "rest"), "{moment}");
    let sum: f64 = groups.iter().map(|group| bytes_in(group[group.len() - 2])).sum();
    assert!((sum / bytes - 1.0).abs() < 0.02, "{sum}, {bytes}\n{moment}");
    let refused = workspace.run("--explain xml");
    assert_contains(refused.error(), "--explain: must be one of text, json, not `xml`");
}
