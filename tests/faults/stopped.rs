//! A process that is stopped for a while and continued, as by Ctrl-Z and `fg`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use meshwright::comm::{CommError, LaunchOptions, Site, launch_with};

/// Time limit of calls in the stopped process.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Line that the process prints before it is stopped.
const WAITING: &str = "a rank waits for the other";

/// The process that is stopped, not a test.
#[test]
#[ignore = "a process of the other test, which starts it"]
fn waiting_process() {
    let options = LaunchOptions { timeout: TIMEOUT, ..LaunchOptions::default() };
    let ends = launch_with(&options, &"dp=2".parse().unwrap(), |comms| {
        let site = Site::new("stopped");
        comms.world().barrier(&site)?;
        if comms.rank() == 0 {
            println!("\n{WAITING}");
            sleep(Duration::from_secs(1));
        }
        comms.world().barrier(&site)?;
        Ok::<_, CommError>(())
    });
    ends.unwrap();
}

/// The time of the stop is longer than the limit, but no rank is late.
#[test]
fn a_stopped_process_continues() {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "faults::stopped::waiting_process"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == WAITING));
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &process.id().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    signal("-STOP");
    sleep(TIMEOUT + Duration::from_secs(2));
    signal("-CONT");
    // Read to its end, so that the process can print.
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert!(process.wait().unwrap().success(), "{rest:?}");
}
