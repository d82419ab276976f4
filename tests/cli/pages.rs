//! Pages of dry runs, simulations and searches: `--report`.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::{Finished, Workspace, assert_contains, program};

/// Most bytes of a page.
const MOST_BYTES: usize = 300_000;
/// A Llama of 50 million parameters.
const MODEL: &str = "--hidden 512 --layers 8 --heads 8 --seq 1024 --batch 32";
const PIPELINE: &str = "--mesh pp=2,fsdp=2,tp=2 --micro-batches 4 --device cuda";

/// Returns the page that a run has written, and the JSON that it has printed.
#[track_caller]
fn page(workspace: &Workspace, line: &str) -> (String, Value) {
    let mut command = program();
    command.args(line.split_whitespace()).args(["--report", "page.html"]);
    // The output does not fit into the buffer of a pipe.
    let output = command.current_dir(workspace.path("")).output().unwrap();
    let finished = Finished::new(line, output);
    assert_eq!(finished.code, Some(0), "{line}\n{}", finished.stderr);
    let page = String::from_utf8(workspace.read("page.html")).unwrap();
    assert!(page.len() < MOST_BYTES, "{line}: {} bytes", page.len());
    let begin = finished.stdout.find(['{', '[']).unwrap();
    (page, serde_json::from_str(&finished.stdout[begin..]).unwrap())
}

/// Returns the page without its document, and the document.
fn split(page: &str) -> (String, Value) {
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    (page.replace(data, ""), serde_json::from_str(data).unwrap())
}

/// Asserts that all tags are closed in their order.
fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').unwrap_or_else(|| panic!("a tag ends: {tag}"));
        assert!(!text.contains('>') || open.contains(&"style"), "{tag}: {text}");
        let name = tag.split([' ', '/']).next().unwrap();
        match tag {
            _ if tag.starts_with('!') || tag.ends_with('/') => {}
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(&tag[1..])),
            _ => {
                assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
                open.push(name);
            }
        }
    }
    assert_eq!(open, [""; 0]);
}

/// Returns a number as a page shows it: `2.60 M`, `42.2 %`, `69.9 GB`, `87.7 ms`.
fn shown(text: &str) -> f64 {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let scale = match unit {
        "%" => 1e-2,
        "ms" => 1e-3,
        "" | "s" | "B" if unit != "B" || !number.contains('.') => 1.0,
        _ => match unit.chars().next().unwrap() {
            'k' => 1e3,
            'M' => 1e6,
            'G' | 'B' => 1e9,
            'T' => 1e12,
            'P' => 1e15,
            unit => panic!("{unit}"),
        },
    };
    scale * number.parse::<f64>().unwrap_or_else(|_| panic!("{text}"))
}

/// Each main number is one of the document. Returns their number.
fn check_numbers(page: &str, document: &Value) -> usize {
    let numbers = page.split("data-place=\"").skip(1).map(|number| {
        let (place, value) = number.split_once("\">").unwrap();
        (place, value.split('<').next().unwrap())
    });
    let check = |(place, text): (&str, &str)| {
        let number = document.pointer(place).and_then(Value::as_f64);
        let number = number.unwrap_or_else(|| panic!("{place} of {document}"));
        // Percentages and days have one digit after the point, others three digits in all.
        let error = (shown(text) - number).abs();
        assert!(error <= 0.01 * number.abs() || error < 0.0006, "{place}: {text} for {number}");
    };
    numbers.map(check).count()
}

/// The page and stdout have the same document, and nothing is loaded.
#[test]
fn each_mode_has_a_page() {
    let workspace = Workspace::new();
    let simulation = format!("{MODEL} --tokens 10T --out json");
    for (line, numbers, parts) in [
        (
            format!("--simulate h100x8 {simulation} {PIPELINE}"),
            9,
            &["The pipeline", "F 1.3", "roofline", "data sheet"][..],
        ),
        (
            format!("--simulate h100x8 {simulation} --mesh fsdp=8 --recompute full"),
            9,
            &["comm fsdp (async)", "recomputation", "Memory over the step"],
        ),
        (
            format!("--plan h100x8 {simulation} --fix pp=1 --top 3"),
            9,
            &["The best plans", "weak scaling", "Rules of thumb", "--mesh "],
        ),
        (
            format!("--explain json {MODEL} {PIPELINE}"),
            5,
            &["Positions along pp", "all_gather", "Mlp::forward", "blocks.0-3"],
        ),
    ] {
        let (page, document) = page(&workspace, &line);
        let (frame, data) = split(&page);
        assert_eq!(data, document, "{line}");
        assert_eq!(check_numbers(&page, &document), numbers, "{line}");
        parts.iter().for_each(|part| assert_contains(&page, part));
        assert_well_formed(&frame);
        for part in ["://", "src=", "@import", "url(", "NaN", "inf "] {
            assert!(!frame.contains(part), "{part} in the page of {line}");
        }
        // A later page replaces it.
        std::fs::remove_file(workspace.path("page.html")).unwrap();
        check_in_browser(&workspace, &page, &line);
    }
}

/// Series are thinned out.
#[test]
fn pages_of_large_runs_are_small() {
    let workspace = Workspace::new();
    let run = "--hidden 16384 --layers 126 --heads 128 --kv-heads 8 --ffn 53248 --vocab 128256 --seq 8192 \
               --batch 2048 --mesh pp=16,fsdp=128,tp=8 --zero 1 --schedule interleaved --virtual-stages 8 \
               --micro-batches 16";
    let (drawn, document) = page(&workspace, &format!("--simulate llama3x16384 {run} --out json"));
    assert!(drawn.matches("class=\"run ").count() >= 2 * 16 && document["kernels"].is_array());
    let (drawn, document) = page(&workspace, &format!("--explain json --device cuda {run}"));
    assert_eq!(document["positions"].as_array().unwrap().len(), 16);
    assert_well_formed(split(&drawn).0.as_str());
    // The page before is kept.
    assert!(workspace.path("page.html.1").exists());
}

/// A plan that nothing fits would fail later.
#[test]
fn files_are_checked_before_the_work() {
    let workspace = Workspace::new();
    workspace.write("note.html", b"<!doctype html>\n<p>mine</p>\n");
    std::fs::create_dir(workspace.path("folder")).unwrap();
    let before = workspace.listing();
    for mode in ["--plan h100x1 --hidden 65536 --layers 99", "--simulate h100x4", "--explain"] {
        for (path, reason) in [
            ("none/page.html", "No such file or directory"),
            ("folder", "Is a directory"),
            ("note.html", "it was written by another program"),
            ("/proc/page.html", "cannot write /proc/page.html"),
        ] {
            for flag in ["--report", "--trace"] {
                if (mode, flag) == ("--explain", "--trace") {
                    continue;
                }
                let refused = workspace.run(&format!("{mode} {flag} {path}"));
                assert_contains(refused.error(), &format!("error: {flag}: cannot write {path}"));
                assert_contains(refused.error(), reason);
                assert!(!refused.stderr.contains("sequences"), "{}", refused.stderr);
            }
        }
    }
    assert_eq!(workspace.listing(), before);
}

#[test]
fn files_without_a_content_are_refused() {
    let workspace = Workspace::new();
    let before = workspace.listing();
    for (line, reason) in [
        ("--report a.html", "--report: needs --explain, --simulate CLUSTERxN or --plan CLUSTERxN"),
        ("--preflight --report a.html --mesh dp=2", "--report: a --preflight compares steps"),
        ("--explain --out json", "--out: needs --simulate CLUSTERxN or --plan CLUSTERxN"),
        ("--simulate h100x4 --report a --trace a", "--report: is also the file of --trace"),
        ("--plan h100x4 --report a --trace a", "--report: is also the file of --trace"),
    ] {
        assert_contains(workspace.run(line).error(), reason);
    }
    assert_eq!(workspace.listing(), before);
}

/// The trace is that of the first plan.
#[test]
fn a_plan_has_a_trace() {
    let workspace = Workspace::new();
    let line = format!("--plan h100x8 {MODEL} --fix pp=2,tp=2 --trace t.json --out json");
    let plan = workspace.run(&line);
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);
    let document: Value = serde_json::from_str(&plan.stdout).unwrap();
    assert!(document["plans"].as_array().unwrap().len() > 1 && document["scaling"].is_null());
    let planned = workspace.read("t.json");
    let flags = document["plans"][0]["flags"].as_str().unwrap();
    let again = workspace.run(&format!("--simulate h100x8 {MODEL} {flags} --trace s.json"));
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let [planned, simulated] = [planned, workspace.read("s.json")].map(|trace| spans(&trace));
    assert!(planned.len() > 1000 && planned == simulated, "{} spans", planned.len());
    let files = workspace.listing();
    assert_eq!(files, ["s.json", "t.json", "text.txt"]);
}

/// Returns the names and durations of the spans of a trace.
fn spans(trace: &[u8]) -> Vec<(String, String)> {
    let trace: Value = serde_json::from_slice(trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap().iter();
    events.map(|event| (event["name"].to_string(), event["dur"].to_string())).collect()
}

/// Opens a page without a network; the console must stay empty. Another page shows that the check can fail.
fn check_in_browser(workspace: &Workspace, page: &str, line: &str) {
    let Some(browser) = browser() else {
        eprintln!("NOT CHECKED, the page of {line}: no browser; MESHWRIGHT_BROWSER names one");
        return;
    };
    let console = |page: &str| {
        workspace.write("opened.html", page.as_bytes());
        let mut command = Command::new(&browser);
        let profile = format!("--user-data-dir={}", workspace.path("profile").display());
        let url = format!("file://{}", workspace.path("opened.html").display());
        let screenshot = format!("--screenshot={}", workspace.path("shot.png").display());
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]);
        command.args(["--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"]);
        command.args([&profile, &screenshot, &url]);
        let Finished { code, stderr: console, .. } = workspace.finish(command, line);
        assert_eq!(code, Some(0), "{line}: {console}");
        std::fs::remove_file(workspace.path("shot.png")).unwrap();
        console.lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(console(page), "", "{line}");
    let loading = page.replace("<footer>", "<img src=\"http://localhost/a.png\"/><footer>");
    assert_contains(&console(&loading), "Content Security Policy");
}

/// Returns the browser of `MESHWRIGHT_BROWSER`, or a Chromium on the `PATH`.
fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("MESHWRIGHT_BROWSER") {
        return Some(named.into());
    }
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut found = std::env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .filter(|path| path.is_file());
    found.next()
}
