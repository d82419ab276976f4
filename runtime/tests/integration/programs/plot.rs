//! `meshwright plot`: curves of metrics files as SVG.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the subcommand; returns its exit code and its texts.
fn plot(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    let Output { status, stdout, stderr } =
        command.arg("plot").args(args).current_dir(dir).output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    (status.code().unwrap(), stdout, stderr)
}

/// Draws to `out.svg`, and returns the printed text and the drawing.
#[track_caller]
fn draw(dir: &Path, args: &[&str]) -> (String, String) {
    let (code, stdout, stderr) = plot(dir, &[args, &["-o", "out.svg"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
    let svg = fs::read_to_string(dir.join("out.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for wrong in ["NaN", "inf", "\0"] {
        assert!(!svg.contains(wrong), "{wrong} in {svg}");
    }
    (stdout, svg)
}

/// Metrics of steps with these losses; `null` for one that is not finite.
fn lines(losses: impl IntoIterator<Item = f64>) -> String {
    let mut text = String::new();
    for (step, loss) in (1..).zip(losses) {
        let loss = serde_json::json!(loss);
        let _ = write!(
            text,
            "{{\"step\":{step},\"loss\":{loss},\"lr\":0.001,\"tokens\":64,\"grad_norm\":1.5,"
        );
        let eval = if step % 5 == 0 { ",\"eval_loss\":2.5" } else { "" };
        let _ = writeln!(text, "\"peak_bytes\":{{\"total\":123456}}{eval}}}");
    }
    text
}

fn falling(steps: u32) -> impl Iterator<Item = f64> {
    (0..steps).map(|step| 2.0 + 3.0 / (1.0 + f64::from(step)))
}

/// Returns the points of the curves, by path.
fn curves(svg: &str) -> Vec<Vec<(f64, f64)>> {
    let paths = svg.split("<path d=\"").skip(1).filter(|path| path.contains("fill=\"none\""));
    let pixel = |text: &str| {
        let (x, y) = text.split_once(' ').unwrap();
        (x.parse().unwrap(), y.parse().unwrap())
    };
    paths.map(|path| path[1..path.find('"').unwrap()].split('L').map(pixel).collect()).collect()
}

#[test]
fn losses_of_runs_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.jsonl"), lines(falling(20))).unwrap();
    fs::write(dir.path().join("b & <c>.jsonl"), lines(falling(10))).unwrap();
    let (text, svg) = draw(dir.path(), &["a.jsonl", "b & <c>.jsonl"]);
    assert_eq!(text, "out.svg: 30 steps of 2 runs\n");
    for label in ["loss (nats)", "a.jsonl", "b &amp; &lt;c&gt;.jsonl", "a.jsonl, eval_loss", "step"]
    {
        assert!(svg.contains(&format!(">{label}</text>")), "{label}");
    }
    let lengths: Vec<usize> = curves(&svg).iter().map(Vec::len).collect();
    assert_eq!(lengths, [20, 10, 4, 2]);
    let first = &curves(&svg)[0];
    assert!(first.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "losses fall: {first:?}");
    // The drawing has a background of its own.
    assert!(svg.contains("fill=\"#fff\""));

    let (_, svg) =
        draw(dir.path(), &["a.jsonl", "--metric", "grad_norm,lr", "--metric", "peak_bytes/total"]);
    for label in ["grad_norm", "lr", "peak_bytes/total (bytes)", "1.00e-3", "120k"] {
        assert!(svg.contains(&format!(">{label}</text>")), "{label}: {svg}");
    }
    assert_eq!(curves(&svg).len(), 3);
    let (_, svg) = draw(dir.path(), &["a.jsonl", "--log"]);
    assert_eq!(curves(&svg)[0].len(), 20);
    // Files of equal names have their folders in the legend.
    fs::create_dir(dir.path().join("b")).unwrap();
    fs::copy(dir.path().join("a.jsonl"), dir.path().join("b/a.jsonl")).unwrap();
    let (_, svg) = draw(dir.path(), &["a.jsonl", "b/a.jsonl"]);
    assert!(svg.contains(">b/a.jsonl</text>") && svg.contains(">a.jsonl</text>"));
}

/// Files of runs that were killed, diverged, were resumed, or have just begun.
#[test]
fn incomplete_runs_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.jsonl");
    let whole = lines(falling(20));
    let begun = whole.lines().next().unwrap();
    for (content, note, steps) in [
        (whole[..whole.len() - 9].to_owned(), "its last line is incomplete, and left out", 19),
        (format!("{whole}{{\"st"), "its last line is incomplete", 20),
        (format!("{whole}\0\0\0"), "", 20),
        (format!("\0\0\0{whole}"), "", 20),
        (format!("{begun}\nnote\n{begun}\n{begun}\n"), "left out: 1 of 4; the first is line 2", 1),
        (format!("{whole}{begun}\n"), "", 1),
        (begun.to_owned(), "", 1),
        (begun.replace("1.5", "null"), "", 1),
        (
            lines([5.0, 4.0, f64::NAN, 3.0, f64::INFINITY]),
            "loss is not finite in 2 of its steps; the first is step 3",
            5,
        ),
        (lines([1e300, -1e300, 0.0, 1e-300, 1e38, -1e38, 1e-38]), "", 7),
        (lines([5e-324, 1e-99]), "", 2),
        (lines([2.5; 4]), "", 4),
    ] {
        fs::write(&path, &content).unwrap();
        draw(dir.path(), &["m.jsonl", "--log", "--metric", "loss,lr"]);
        let (text, _) = draw(dir.path(), &["m.jsonl"]);
        assert!(text.contains(note), "{note}: {text}");
        assert_eq!(text.lines().count(), 1 + usize::from(!note.is_empty()), "{text}");
        let plural = if steps == 1 { "" } else { "s" };
        assert!(text.ends_with(&format!("out.svg: {steps} step{plural} of 1 run\n")), "{text}");
    }
    // The gap of a loss that is not finite: a line, and the step after it as a point.
    fs::write(&path, lines([5.0, 4.0, f64::NAN, 3.0])).unwrap();
    let (_, svg) = draw(dir.path(), &["m.jsonl"]);
    assert_eq!((curves(&svg).len(), svg.matches("<circle").count()), (1, 1));
    // A file without steps is named, and the others are drawn.
    fs::write(dir.path().join("new.jsonl"), "").unwrap();
    let (text, _) = draw(dir.path(), &["new.jsonl", "m.jsonl"]);
    assert_eq!(text.lines().next(), Some("new.jsonl: it has no steps"));
}

/// The size of a drawing depends on its pixels, and spikes stay visible.
#[test]
fn long_runs_are_thinned_out() {
    let dir = tempfile::tempdir().unwrap();
    let n_steps = 60_000;
    let losses = |n: u32| {
        (0..n).map(|step| if step == 31_234 { 9.0 } else { 2.0 + f64::from(step % 7) * 0.1 })
    };
    fs::write(dir.path().join("m.jsonl"), lines(losses(n_steps))).unwrap();
    let (_, svg) = draw(dir.path(), &["m.jsonl"]);
    assert!(svg.len() < 200_000, "{}", svg.len());
    let curve = &curves(&svg)[0];
    let spike = curve.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    let (first, last) = (curve[0].0, curve.last().unwrap().0);
    assert!((spike.0 - (first + (last - first) * 31_234.0 / f64::from(n_steps - 1))).abs() < 1.0);
    let next = curve.iter().filter(|point| point != &spike).min_by(|a, b| a.1.total_cmp(&b.1));
    assert!(next.unwrap().1 - spike.1 > 100.0);
}

#[test]
fn bad_requests_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| fs::write(dir.path().join(name), content).unwrap();
    write("m.jsonl", &lines(falling(3)));
    write("m.svg", &lines(falling(3)));
    write("notes.txt", "a note\nand another\n");
    write("other.jsonl", "{\"text\": \"a document\"}\n{\"text\": \"another\"}\n");
    write("empty.jsonl", "");
    write("note.txt", "a note\n");
    write("nan.jsonl", &lines([f64::NAN; 3]));
    std::os::unix::fs::symlink("m.jsonl", dir.path().join("link.svg")).unwrap();
    let before = fs::read_dir(dir.path()).unwrap().count();
    for (args, expected) in [
        ("none.jsonl -o out.svg", "cannot read none.jsonl: No such file"),
        (". -o out.svg", "cannot read .: Is a directory"),
        (
            "notes.txt -o out.svg",
            "notes.txt is no file of --metrics: its line 1 is no JSON object with a `step`",
        ),
        ("note.txt -o out.svg", "note.txt is no file of --metrics: its line 1 is no JSON object"),
        ("m.jsonl other.jsonl -o out.svg", "other.jsonl is no file of --metrics"),
        (
            "empty.jsonl -o out.svg",
            "no file has the metrics of a step, so there is nothing to draw",
        ),
        ("nan.jsonl -o out.svg", "--metric: no step has a finite `loss`"),
        (
            "m.jsonl -o out.svg --metric bubble",
            "`bubble`; there are grad_norm, loss, lr, peak_bytes/total, step, tokens",
        ),
        ("m.jsonl -o none/out.svg", "-o: there is no folder none; create it, or name another file"),
        ("m.jsonl -o out.png", "-o: out.png does not end in .svg"),
        ("m.jsonl -o .", "-o: . is a folder; name a file in it, such as loss.svg"),
        ("m.svg -o ./m.svg", "-o: ./m.svg is also the metrics file m.svg; name another file"),
        ("m.jsonl -o link.svg", "-o: link.svg is also the metrics file m.jsonl"),
        ("-o out.svg", "<METRICS.jsonl>"),
        ("m.jsonl", "--output <OUT.svg>"),
        ("m.jsonl -o out.svg --metrics lr", "--metric"),
    ] {
        let (code, stdout, stderr) = plot(dir.path(), &args.split(' ').collect::<Vec<_>>());
        assert_eq!((code, stdout.as_str()), (2, ""), "{args}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(expected), "{args}: {stderr}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), before, "{args}");
    }
    assert_eq!(fs::read_to_string(dir.path().join("m.jsonl")).unwrap(), lines(falling(3)));
}
