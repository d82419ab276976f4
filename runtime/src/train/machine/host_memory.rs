//! The memory of the host.

/// Returns the bytes available without swapping, of the machine or of the control group of this process; `None` if the
/// system does not report them.
pub fn available_memory() -> Option<f64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok()?;
    let group: Option<f64> = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    Some(available_in(&machine)?.min(group.unwrap_or(f64::INFINITY)))
}

fn available_in(meminfo: &str) -> Option<f64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_parsed() {
        let text = "MemTotal:  100 kB\nMemAvailable:   24576 kB\nBuffers: 1 kB\n";
        assert_eq!(available_in(text), Some(24576.0 * 1024.0));
        assert_eq!(available_in("MemTotal: 1 kB"), None);
    }
}
