//! Runs the unit tests of the check kit, `bench/gpu`, with scripted programs. Without Python nothing is checked, and a
//! message says so.

use std::io::Write;
use std::path::Path;
use std::process::Command;

#[test]
fn the_check_kit_does_what_its_tests_say() {
    let kit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/gpu");
    let mut command = Command::new("python3");
    command.args(["-m", "unittest", "discover", "-s", "tests"]);
    // No bytecode is written next to the sources.
    command.current_dir(&kit).env("PYTHONPATH", &kit).env("PYTHONDONTWRITEBYTECODE", "1");
    match command.output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{text}");
            assert!(text.contains("\nRan ") && !text.contains("\nRan 0 tests"), "{text}");
        }
        Err(error) => {
            // A closed stderr is not an error.
            let _ = writeln!(std::io::stderr(), "NOT CHECKED, python3: {error}");
        }
    }
}
