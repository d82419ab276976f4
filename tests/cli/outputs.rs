//! Files that a run writes: none of another program is changed, none is lost, and each has one writer.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

const OUTPUTS: [&str; 3] =
    ["--metrics m.json", "--trace m.json", "--mesh pp=2 --stage-times m.json"];

#[test]
fn files_of_other_programs_are_kept() {
    let workspace = Workspace::new();
    let tokens: Vec<u8> = (0..2000u16).flat_map(u16::to_le_bytes).collect();
    let contents: [&[u8]; 6] = [
        b"a note",
        b"{}\n{}\n",
        &tokens,
        b"{\"traceEvents\": []}",
        b"{\"step\": 1}\nnote\n",
        b"{\"step\":1,\"eval\":0.5}\n{\"step\":2,\"eval\":0.5}\n",
    ];
    for content in contents {
        workspace.write("m.json", content);
        let before = workspace.listing();
        for output in OUTPUTS {
            let run = workspace.run(&format!("{SMALL} --steps 2 --save out {output}"));
            assert_contains(run.error(), "m.json: ");
            assert_contains(run.error(), "would be lost; name another file, or remove this one");
            assert_eq!(workspace.read("m.json"), content);
            assert_eq!(workspace.listing(), before);
        }
    }
}

/// A resumed run would cut them too; lines of another run of this program are copied.
#[test]
fn only_metrics_of_the_run_are_continued() {
    let workspace = Workspace::new();
    let whole = workspace.losses("--steps 4");
    workspace.train("--steps 3 --save out --metrics m.jsonl");
    let foreign: String =
        (1..100).map(|step| format!("{{\"step\":{step},\"eval\":0.5}}\n")).collect();
    for content in [foreign.as_str(), foreign.trim_end()] {
        workspace.write("eval.jsonl", content.as_bytes());
        let run = workspace.run("--resume out --steps 4 --metrics eval.jsonl");
        assert_contains(
            run.error(),
            "--metrics: cannot continue eval.jsonl: its line 1 has no metrics",
        );
        assert_eq!(workspace.read("eval.jsonl"), content.as_bytes());
    }
    workspace.train("--steps 6 --metrics other.jsonl");
    let other = workspace.read("other.jsonl");
    let resumed = workspace.train("--resume out --steps 4 --metrics other.jsonl").stderr;
    let warning = "warning: --metrics: other.jsonl has lines that are none of this run (line 5 is of step 5, and \
                   the run ends at step 4); a copy of it is in ";
    assert_contains(&resumed, warning);
    assert_eq!(workspace.read("other.jsonl.1"), other);
    let resumed = workspace.train("--resume out --steps 4 --metrics m.jsonl").stderr;
    assert!(!resumed.contains("none of this run"), "{resumed}");
    assert_eq!(numbers(&workspace.metrics("m.jsonl"), "loss"), whole);
}

/// Through links too: what they lead to is moved, and they lead to the new file.
#[test]
fn earlier_reports_are_moved_aside() {
    let workspace = Workspace::new();
    symlink("m.jsonl", workspace.path("link")).unwrap();
    let first = workspace.train("--steps 3 --metrics m.jsonl --trace t.json").stderr;
    assert!(!first.contains("earlier"), "{first}");
    let [metrics, trace] = ["m.jsonl", "t.json"].map(|name| workspace.read(name));
    let again = workspace.train("--steps 2 --metrics link --trace t.json").stderr;
    assert_contains(&again, "--metrics: the metrics of an earlier run are now in ");
    assert_contains(&again, "--trace: the trace of an earlier run is now ");
    assert_eq!(workspace.read("m.jsonl.1"), metrics);
    assert_eq!(workspace.read("t.json.1"), trace);
    assert_eq!(workspace.metrics("m.jsonl").len(), 2);
    workspace.train("--steps 1 --metrics m.jsonl");
    assert_eq!(workspace.metrics("m.jsonl.2").len(), 2);
}

/// A run that is refused moves nothing.
#[test]
fn refused_runs_move_nothing() {
    let workspace = Workspace::new();
    workspace.train("--steps 2 --metrics m.jsonl --trace t.json");
    let before = workspace.listing();
    for wrong in
        ["--save text.txt", "--export-hf text.txt", "--mesh pp=2 --stage-times none/t.json"]
    {
        let line = format!("{SMALL} --steps 2 --metrics m.jsonl --trace t.json {wrong}");
        workspace.run(&line).error();
        assert_eq!(workspace.listing(), before, "{wrong}");
    }
}

/// The second of two runs is refused, by whatever path it names the file, and changes nothing.
#[test]
fn a_file_has_one_run() {
    let workspace = Workspace::new();
    for (output, refusal) in [("--metrics", "cannot open"), ("--trace", "cannot write")] {
        let mut first = program();
        let endless = format!("{SMALL} --steps 1000000 {output} first.json");
        first.args(endless.split_whitespace()).current_dir(workspace.path("."));
        let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let path = workspace.path("first.json");
        let start = Instant::now();
        while !path.is_file() {
            assert!(start.elapsed() < PATIENCE, "the first run does not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
        symlink("first.json", workspace.path("link.json")).unwrap();
        fs::hard_link(&path, workspace.path("hard.json")).unwrap();
        for name in ["first.json", "./../first.json", "link.json", "hard.json"] {
            let name = match name.strip_prefix("./../") {
                Some(name) => {
                    format!("../{}/{name}", workspace.dir.path().file_name().unwrap().display())
                }
                None => name.to_owned(),
            };
            let second = workspace.run(&format!("{SMALL} --steps 2 {output} {name}"));
            let expected = format!("{output}: {refusal} {name}: another run writes to it");
            assert_contains(second.error(), &expected);
        }
        first.kill().unwrap();
        first.wait().unwrap();
        for name in ["first.json", "link.json", "hard.json"] {
            fs::remove_file(workspace.path(name)).unwrap();
        }
    }
}

/// The end of a file after a power failure, and after a kill.
#[test]
fn torn_metrics_are_continued() {
    let workspace = Workspace::new();
    workspace.train("--steps 2 --save out --metrics m.jsonl");
    let whole = workspace.read("m.jsonl");
    for torn in [&b"{\"step\":3,\"lo"[..], &[0; 5000], b"{\"step\":2,\"lo\0\0\0"] {
        workspace.write("m.jsonl", &[&whole, torn].concat());
        workspace.train("--steps 3 --resume out --metrics m.jsonl");
        assert_eq!(workspace.metrics("m.jsonl").len(), 3);
        assert!(workspace.read("m.jsonl").starts_with(&whole));
    }
}
