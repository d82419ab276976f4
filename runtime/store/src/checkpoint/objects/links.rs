//! Small objects that name a step: `latest`, which is also the lock of the folder, and `best`.

use std::fs;

use meshwright_remote::{ObjectContent, ObjectFolder, ObjectVersion};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Most bytes of such an object.
const MAX_BYTES: u64 = 64 << 10;

/// The content of `latest` and `best`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRecord {
    /// Completed steps of the checkpoint; `None` before the first one.
    pub step: Option<u64>,
    /// The run that saves in the folder, in `latest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<LeaseHolder>,
}

/// A process that holds a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHolder {
    /// The number of the process.
    pub process: u32,
    /// The host of the process.
    pub host: String,
    /// Identifies the host, its boot and the processes that the numbers count.
    pub machine: String,
    /// The time of its start, in ticks since the boot of the host.
    pub started: u64,
    /// Distinguishes the folders that one process holds one after the other.
    pub token: String,
    /// Increases while the run is alive.
    pub renewals: u64,
}

impl LinkRecord {
    /// Reads the object `name`. Returns `None` for the record if it is missing, or is not one.
    pub fn read(
        folder: &ObjectFolder,
        name: &str,
    ) -> std::io::Result<(Option<LinkRecord>, Option<ObjectVersion>)> {
        let Some(ObjectContent { bytes, version }) = folder.get(name, MAX_BYTES)? else {
            return Ok((None, None));
        };
        Ok((serde_json::from_slice(&bytes).ok(), Some(version)))
    }

    /// Returns the content of the object.
    pub fn to_text(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec(self).expect("names and numbers are JSON");
        text.push(b'\n');
        text
    }
}

impl LeaseHolder {
    /// Describes this process.
    pub fn of_process(token: String) -> LeaseHolder {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let host = read("/proc/sys/kernel/hostname").trim().to_owned();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let boot = read("/proc/sys/kernel/random/boot_id");
        let machine = format!("{host} {boot} {}", namespace.display());
        let process = std::process::id();
        LeaseHolder {
            process,
            host: if host.is_empty() { "a host without a name".to_owned() } else { host },
            machine: format!("{:016x}", xxh3_64(machine.as_bytes())),
            started: start_of(process).unwrap_or(0),
            token,
            renewals: 0,
        }
    }

    /// Returns true if the process runs, false if it has ended; `None` if it is on another machine.
    pub fn is_running(&self) -> Option<bool> {
        let own = LeaseHolder::of_process(String::new());
        // A machine without this folder cannot be asked.
        let is_known = own.started > 0 && own.machine == self.machine;
        is_known.then(|| start_of(self.process) == Some(self.started))
    }

    /// Returns the text for messages.
    pub fn describe(&self) -> String {
        format!("process {} on {}", self.process, self.host)
    }
}

/// Returns the time of the start of a process on this machine, in ticks since its boot.
fn start_of(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in parentheses, may have spaces. State is the first field after it, and a zombie has
    // ended.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if ["Z", "X"].contains(&state) { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_running_processes_of_this_machine_run() {
        let own = LeaseHolder::of_process("a".to_owned());
        assert_eq!(own.is_running(), Some(true));
        let earlier = LeaseHolder { started: own.started - 1, ..own.clone() };
        assert_eq!(earlier.is_running(), Some(false));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let other = LeaseHolder {
            process: child.id(),
            started: start_of(child.id()).unwrap(),
            ..own.clone()
        };
        assert_eq!(other.is_running(), Some(true));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(other.is_running(), Some(false));
        let elsewhere = LeaseHolder { machine: "0".to_owned(), ..own };
        assert_eq!(elsewhere.is_running(), None);
    }
}
