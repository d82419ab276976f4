//! `meshwright flight`: exit codes and messages.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use meshwright::comm::{FlightFolder, LaunchOptions, Site, launch_with};

fn flight(folder: &Path) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    let Output { status, stdout, stderr } = command.arg("flight").arg(folder).output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    (status.code().unwrap(), stdout, stderr)
}

/// Runs two ranks, of which the first fails.
fn run_faulty(folder: &Path) {
    let flight = Some(Arc::new(FlightFolder::new(folder, None)));
    let options = LaunchOptions { flight, ..LaunchOptions::default() };
    let body = |comms: meshwright::comm::RankComms| {
        comms.world().barrier(&Site::new("start")).map_err(|error| error.to_string())?;
        if comms.rank() == 0 { Err("no luck".to_owned()) } else { Ok(()) }
    };
    launch_with(&options, &"dp=2".parse().unwrap(), body).expect_err("rank 0 fails");
}

#[test]
fn exit_codes_tell_if_a_rank_is_to_blame() {
    let dir = tempfile::tempdir().unwrap();
    run_faulty(dir.path());
    let (code, stdout, stderr) = flight(dir.path());
    assert_eq!((code, stderr.as_str()), (1, ""));
    assert!(
        stdout.contains(": files of 2 of 2 ranks\nrank 0 has failed in step 0: no luck\n"),
        "{stdout}"
    );

    // The same calls of ranks that go on.
    let first = dir.path().join("rank-00000.json");
    let failed = fs::read_to_string(&first).unwrap();
    fs::write(&first, failed.replace("\"end\":\"failed\"", "\"end\":\"running\"")).unwrap();
    let (code, stdout, _) = flight(dir.path());
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.contains("\nno rank differs from the others"), "{stdout}");

    let other = tempfile::tempdir().unwrap();
    run_faulty(other.path());
    fs::copy(other.path().join("rank-00000.json"), &first).unwrap();
    let (code, stdout, stderr) = flight(dir.path());
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.starts_with("error: ") && stderr.contains(" are of two runs"), "{stderr}");
    fs::write(&first, "{}").unwrap();
    let (code, _, stderr) = flight(dir.path());
    assert!(code == 2 && stderr.contains("is not the file of a rank"), "{stderr}");
    let empty = tempfile::tempdir().unwrap();
    let (code, _, stderr) = flight(empty.path());
    assert!(code == 2 && stderr.contains("has no file of a rank"), "{stderr}");
}
