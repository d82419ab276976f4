//! `meshwright report`: the course of runs as a page.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn report(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    let Output { status, stdout, stderr } =
        command.arg("report").args(args).current_dir(dir).output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    (status.code().unwrap(), stdout, stderr)
}

/// Metrics of 50 steps of 100 ms. After step 20 there is a pause of 30 s, and after step 30 a save of 40 s.
fn metrics(offset: f64) -> String {
    let (mut text, mut time) = (String::new(), 1.8e9);
    for step in 1..=50 {
        time += 0.1;
        let mut rest = String::new();
        match step {
            21 => time += 30.0,
            31 => {
                time += 40.0;
                rest += ",\"save_ms\":40000,\"save_bytes\":1000000,\"save_failed\":30";
            }
            _ => {}
        }
        if step % 10 == 0 {
            let _ = write!(rest, ",\"eval_loss\":{}", 3.0 + offset - 0.01 * f64::from(step));
        }
        let loss = 3.0 + offset - 0.02 * f64::from(step);
        let _ = writeln!(
            text,
            "{{\"step\":{step},\"loss\":{loss},\"grad_norm\":1.5,\"lr\":0.001,\"tokens\":64,\"time\":{time},\
             \"step_ms\":100,\"tokens_per_s\":640,\"mfu\":0.5,\"goodput\":0.9,\"peak_bytes\":{{\"parameters\":5,\
             \"total\":{step}}},\"comm_bytes\":{{\"dp\":7}}{rest}}}"
        );
    }
    text
}

const LOG: &str = "{\"time\":1,\"date\":\"2026-11-29T21:13:40Z\",\"event\":\"start\",\"attempt\":1}\n\
                   {\"time\":2,\"date\":\"2026-11-29T21:13:42Z\",\"event\":\"end\",\"attempt\":1,\"code\":3,\"rank\":2,\
                   \"reason\":\"rank 2 <lost>\",\"checkpoint\":\"out/step-00000020\",\"restart_in\":4}\n";

#[test]
fn a_page_has_the_course_of_each_run() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    fs::create_dir(dir.path().join("out")).unwrap();
    write("first.jsonl", &metrics(0.0));
    write("second.jsonl", &metrics(1.0));
    write("out/run.log", LOG);
    let args = ["first.jsonl", "second.jsonl", "--log", "out", "-o", "run.html"];
    let (code, stdout, stderr) = report(dir.path(), &args);
    assert_eq!((code, stdout.as_str()), (0, "run.html: 100 steps of 2 runs\n"), "{stderr}");
    let page = fs::read_to_string(dir.path().join("run.html")).unwrap();
    for part in [
        "<h1>2 runs</h1>",
        "<h2>Gradient norm</h2>",
        "Curves: peak_bytes of second.jsonl",
        "Curves: comm_bytes of first.jsonl",
        "<tr><td>first.jsonl</td><td>evaluation</td><td class=\"n\">21</td><td class=\"n\">30.0 s</td></tr>",
        "out: 1 restart in 2 events.",
        "<td>3</td><td>step-00000020</td><td>rank 2 &lt;lost&gt;</td>",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    // Saves are no pauses.
    assert_eq!(page.matches(" s</td>").count(), 2);
    for part in ["://", "@import", "<script src", "NaN", "inf "] {
        assert!(!page.replace("http://www.w3.org/2000/svg", "").contains(part), "{part}");
    }
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    let run = &data["runs"][1];
    for (key, value) in [
        ("last_step", 50.0),
        ("last_loss", 3.0),
        ("lowest_eval_loss", 3.5),
        ("tokens", 3200.0),
        ("median_tokens_per_s", 640.0),
        ("saves", 1.0),
        ("longest_save_ms", 40_000.0),
        ("goodput", 0.9),
    ] {
        assert_eq!(run[key].as_f64(), Some(value), "{key}");
    }
    assert!((run["hours"].as_f64().unwrap() * 3600.0 - 75.0).abs() < 1e-3);
    assert_eq!((&run["failed_saves"][0], &data["logs"][0]["restarts"]), (&30.into(), &1.into()));
    // An earlier page is replaced, and a log beside the metrics is found.
    write("out/m.jsonl", &metrics(0.0));
    let (code, _, stderr) = report(dir.path(), &["out/m.jsonl", "-o", "run.html"]);
    assert_eq!(code, 0, "{stderr}");
    let page = fs::read_to_string(dir.path().join("run.html")).unwrap();
    assert!(page.contains("<h1>The run m.jsonl</h1>") && page.contains("out: 1 restart in 2"));
}

/// Pauses have the restarts that they contain, and checkpoints without a line after them are found.
#[test]
fn restarts_and_last_saves_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    // The last line is at 1.8e9 + 75 s, and step 10 ends a second after the beginning.
    write("m.jsonl", &metrics(0.0));
    let event = |time: f64, rest: &str| {
        format!("{{\"time\":{},\"date\":\"d\",\"attempt\":1,{rest}}}\n", 1.8e9 + time)
    };
    let log = [
        event(-5.0, "\"event\":\"start\""),
        event(
            1.01,
            "\"event\":\"end\",\"code\":3,\"reason\":\"lost\\nmore\",\"checkpoint\":\"./step-00000010\"",
        ),
        event(1.02, "\"event\":\"start\",\"from\":\"./step-00000010\""),
        event(99.0, "\"event\":\"end\",\"code\":0,\"checkpoint\":\"./step-00000050\""),
    ];
    write("run.log", &log.concat());
    let (code, _, stderr) = report(dir.path(), &["m.jsonl", "--log", ".", "-o", "run.html"]);
    assert_eq!(code, 0, "{stderr}");
    let page = fs::read_to_string(dir.path().join("run.html")).unwrap();
    for part in [
        "<td>restart, attempt 1: lost</td><td class=\"n\">11</td><td class=\"n\">0.0 s</td>",
        "<td>evaluation</td><td class=\"n\">21</td><td class=\"n\">30.0 s</td>",
        "<td>end of the last attempt in the log</td><td class=\"n\">end</td><td class=\"n\">24.0 s</td>",
        "<p>3 pauses, 54.0 s in all: ",
        "<td class=\"n\">30</td><td class=\"n\">10, 50</td></tr>",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
}

/// The log of a run among several is that of its folder, however `--log` names it.
#[test]
fn a_folder_has_several_names() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    fs::create_dir(dir.path().join("out")).unwrap();
    std::os::unix::fs::symlink("out", dir.path().join("link")).unwrap();
    write("out/m.jsonl", &metrics(0.0));
    write("other.jsonl", &metrics(1.0));
    let event = |time: f64, rest: &str| {
        format!("{{\"time\":{},\"date\":\"d\",\"attempt\":1,{rest}}}\n", 1.8e9 + time)
    };
    let end = event(1.01, "\"event\":\"end\",\"code\":3,\"reason\":\"lost\"");
    write("out/run.log", &(end + &event(1.02, "\"event\":\"start\"")));
    let absolute = dir.path().join("out");
    for log in ["out", "./out/", "link", absolute.to_str().unwrap()] {
        let args = ["out/m.jsonl", "other.jsonl", "--log", log, "--log", "out", "-o", "run.html"];
        let (code, _, stderr) = report(dir.path(), &args);
        assert_eq!(code, 0, "{stderr}");
        let page = fs::read_to_string(dir.path().join("run.html")).unwrap();
        assert_eq!(page.matches("<td>restart, attempt 1: lost</td>").count(), 1, "{log}");
        assert_eq!(page.matches(" in 2 events.").count(), 1, "{log}");
    }
}

#[test]
fn wrong_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("m.jsonl", &metrics(0.0));
    write("text.txt", "a text\n");
    write("empty.jsonl", "");
    write("mine.html", "<p>mine</p>\n");
    fs::create_dir(dir.path().join("bad")).unwrap();
    write("bad/run.log", "mine\n");
    for (args, error) in [
        (
            &["text.txt", "-o", "a.html"][..],
            "text.txt is no file of --metrics: its line 1 is no JSON object",
        ),
        (&["m.jsonl", "text.txt", "-o", "a.html"], "text.txt is no file of --metrics"),
        (&["mine.html", "-o", "a.html"], "mine.html is no file of --metrics"),
        (
            &["empty.jsonl", "-o", "a.html"],
            "empty.jsonl has no steps, so there is nothing to report",
        ),
        (&["none.jsonl", "-o", "a.html"], "cannot read none.jsonl: No such file or directory"),
        (&["bad", "-o", "a.html"], "cannot read bad: Is a directory"),
        (&["m.jsonl"], "needs --output <OUT.html>"),
        (&["-o", "a.html"], "needs <METRICS.jsonl>..."),
        (&["m.jsonl", "-o", "a.svg"], "-o: a.svg does not end in .html, and only HTML is written"),
        (&["m.jsonl", "-o", "none/a.html"], "-o: there is no folder none"),
        (
            &["m.jsonl", "-o", "mine.html"],
            "-o: mine.html was written by another program, and would be lost",
        ),
        (
            &["m.jsonl", "--log", "none", "-o", "a.html"],
            "--log: none has no run.log of `meshwright run`",
        ),
        (
            &["m.jsonl", "--log", "bad", "-o", "a.html"],
            "--log: cannot read bad/run.log: line 1 is no event",
        ),
    ] {
        let (code, stdout, stderr) = report(dir.path(), args);
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
        assert!(stderr.starts_with(&format!("error: {error}")), "{args:?}: {stderr}");
    }
    assert!(!dir.path().join("a.html").exists());
    assert_eq!(fs::read_to_string(dir.path().join("mine.html")).unwrap(), "<p>mine</p>\n");
}
