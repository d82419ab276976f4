//! Files that subcommands write, in the place of files that are there.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs `meshwright`; returns its exit code and its errors.
fn meshwright(dir: &Path, line: &str) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    let output = command.args(line.split(' ')).current_dir(dir).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn files_of_other_programs_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["mine.svg", "mine.csv", "mine.json", "mine.toml"];
    names.iter().for_each(|name| fs::write(dir.path().join(name), "mine\n").unwrap());
    fs::write(dir.path().join("m.jsonl"), "{\"step\":1,\"loss\":2.5}\n").unwrap();
    let bench = "bench comm --ranks 2 --ops barrier";
    for (line, flag, name) in [
        ("schedule --svg mine.svg".to_owned(), "--svg", "mine.svg"),
        ("schedule --csv mine.csv".to_owned(), "--csv", "mine.csv"),
        ("schedule --csv-full mine.json".to_owned(), "--csv-full", "mine.json"),
        ("plot m.jsonl -o mine.svg".to_owned(), "-o", "mine.svg"),
        ("calibrate m.jsonl -o mine.toml".to_owned(), "-o", "mine.toml"),
        (format!("{bench} --json mine.json"), "--json", "mine.json"),
        (format!("{bench} --plot mine.svg"), "--plot", "mine.svg"),
    ] {
        let (code, error) = meshwright(dir.path(), &line);
        let expected = format!("error: {flag}: {name} was written by another program, and would");
        assert!(code == 2 && error.starts_with(&expected), "{line}: {code}, {error}");
    }
    for name in names {
        assert_eq!(fs::read_to_string(dir.path().join(name)).unwrap(), "mine\n");
    }
}

#[test]
fn own_files_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let bench = "bench comm --ranks 2 --ops barrier,all_reduce --sizes 1KiB";
    for line in [
        "schedule --svg a.svg --csv a.csv --csv-full b.csv".to_owned(),
        format!("{bench} --json a.json --plot b.svg"),
    ] {
        for _ in 0..2 {
            let (code, error) = meshwright(dir.path(), &line);
            assert_eq!((code, error.as_str()), (0, ""), "{line}");
        }
    }
    let (code, error) = meshwright(dir.path(), "schedule --csv c.csv --csv-full c.csv");
    assert_eq!(code, 2);
    assert!(error.contains("--csv-full: c.csv is also the file of --csv"), "{error}");
    assert!(!dir.path().join("c.csv").exists());
}
