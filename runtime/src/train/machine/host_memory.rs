//! The memory of the host.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Places where control groups of either version are mounted, also if the table of mounts cannot be read.
const GROUP_MOUNTS: [&str; 3] =
    ["/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"];

/// The files with the limit of a control group, of version 2 and 1. Without a limit, they hold a word or a huge number.
const LIMIT_FILES: [&str; 2] = ["memory.max", "memory.limit_in_bytes"];

/// Limits of the process in `/proc/self/limits` that count anonymous memory.
const PROCESS_LIMITS: [&str; 2] = ["Max address space", "Max data size"];

/// Returns the bytes available without swapping: of the machine, within the limits of the control group of this process
/// and of all groups around it, and within the limits of the process. `None` if the system does not report them.
pub fn available_memory() -> Option<f64> {
    available_under(Path::new("/"))
}

/// Returns the available bytes that the files of a system under `root` report.
fn available_under(root: &Path) -> Option<f64> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let machine = available_in(&read("proc/meminfo"))?;
    let folders = group_folders(&read("proc/self/cgroup"), &read("proc/self/mountinfo"));
    let files = folders.iter().flat_map(|folder| LIMIT_FILES.map(|file| folder.join(file)));
    let groups = files.filter_map(|file| {
        let text = fs::read_to_string(root.join(file.strip_prefix("/").ok()?)).ok()?;
        text.trim().parse().ok()
    });
    let process = limits_in(&read("proc/self/limits"));
    Some(groups.chain(process).fold(machine, f64::min))
}

fn available_in(meminfo: &str) -> Option<f64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

/// Returns the limits of the process, in bytes, in the text of `/proc/self/limits`.
fn limits_in(limits: &str) -> Vec<f64> {
    let soft_limit = |line: &str| {
        let rest = PROCESS_LIMITS.iter().find_map(|name| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    limits.lines().filter_map(soft_limit).collect()
}

/// Returns the folders of the control groups of a process, and of all groups around them, by its `cgroup` and
/// `mountinfo` files.
///
/// A group is looked for in each mount of control groups: a version 1 hierarchy of memory may exist beside one of
/// version 2, and only one of them has the files. In a container, a mount shows only the part of the hierarchy below a
/// group, or the group of the process has the name `/`.
fn group_folders(cgroup: &str, mountinfo: &str) -> BTreeSet<PathBuf> {
    let groups: Vec<&Path> = cgroup.lines().filter_map(group_of_line).collect();
    let standard = GROUP_MOUNTS.map(|mount| (Path::new("/"), PathBuf::from(mount)));
    let mounts = standard.into_iter().chain(mountinfo.lines().filter_map(group_mount_of_line));
    let mut folders = BTreeSet::new();
    for (mounted, mount) in mounts {
        folders.insert(mount.clone());
        for group in &groups {
            let below = group.strip_prefix(mounted).or_else(|_| group.strip_prefix("/"));
            let mut folder = mount.clone();
            for name in below.unwrap_or(Path::new("")).components() {
                // A group outside of those that the process sees.
                let Component::Normal(name) = name else { break };
                folder.push(name);
                folders.insert(folder.clone());
            }
        }
    }
    folders
}

/// Returns the group in a line of `/proc/self/cgroup`, `ID:CONTROLLERS:PATH`, if it may limit memory.
fn group_of_line(line: &str) -> Option<&Path> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    // All controllers of version 2 are in the line without names.
    let limits_memory =
        controllers.is_empty() || controllers.split(',').any(|name| name == "memory");
    limits_memory.then(|| Path::new(path))
}

/// Returns the group that is mounted, and the folder where, in a line of `/proc/self/mountinfo`, if it is one of
/// control groups.
fn group_mount_of_line(line: &str) -> Option<(&Path, PathBuf)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let kind = file_system.split(' ').next()?;
    let mut fields = mount.split(' ').skip(3);
    let (mounted, folder) = (fields.next()?, fields.next()?);
    // Spaces are escaped.
    let folder = folder.replace("\\040", " ");
    ["cgroup", "cgroup2"].contains(&kind).then(|| (Path::new(mounted), PathBuf::from(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:  100 kB\nMemAvailable:   24576 kB\nBuffers: 1 kB\n";

    #[test]
    fn meminfo_is_parsed() {
        assert_eq!(available_in(MEMINFO), Some(24576.0 * 1024.0));
        assert_eq!(available_in("MemTotal: 1 kB"), None);
    }

    /// Returns the available memory of a made-up system with these files.
    fn available(files: &[(&str, &str)]) -> f64 {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in [&[("proc/meminfo", MEMINFO)], files].concat() {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        available_under(root.path()).unwrap()
    }

    #[test]
    fn the_smallest_limit_of_all_groups_counts() {
        const ALL: f64 = 24576.0 * 1024.0;
        const UNLIMITED: &str = "9223372036854771712\n";
        let v2 = ("proc/self/cgroup", "0::/job/step\n");
        let v1 = ("proc/self/cgroup", "4:cpu:/other\n3:cpuset,memory:/job/step\n0::/\n");
        for (files, expected) in [
            (vec![], ALL),
            (vec![v2, ("sys/fs/cgroup/memory.max", "max\n")], ALL),
            // The root, as in a container.
            (vec![("sys/fs/cgroup/memory.max", "3000\n")], 3000.0),
            (vec![v2, ("sys/fs/cgroup/job/step/memory.max", "4000\n")], 4000.0),
            // A group around that of the process, and not one beside it.
            (
                vec![
                    v2,
                    ("sys/fs/cgroup/job/memory.max", "5000\n"),
                    ("sys/fs/cgroup/job/step/memory.max", "max\n"),
                    ("sys/fs/cgroup/other/memory.max", "1\n"),
                    ("sys/fs/cgroup/job/step/below/memory.max", "1\n"),
                ],
                5000.0,
            ),
            // Version 1, and both together.
            (
                vec![
                    v1,
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED),
                    ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "7000\n"),
                    ("sys/fs/cgroup/memory/job/step/memory.limit_in_bytes", "8000\n"),
                    ("sys/fs/cgroup/memory/other/memory.limit_in_bytes", "1\n"),
                ],
                7000.0,
            ),
            (
                vec![
                    v1,
                    ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "7000\n"),
                    ("sys/fs/cgroup/unified/job/step/memory.max", "6000\n"),
                ],
                6000.0,
            ),
            (vec![("sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n")], 300_000.0),
            // A container that sees its own part of the hierarchy, at an unusual place.
            (
                vec![
                    ("proc/self/cgroup", "5:memory:/docker/0123/own\n"),
                    (
                        "proc/self/mountinfo",
                        "31 23 0:28 /docker/0123 /my\\040groups ro - cgroup cgroup rw,memory\n",
                    ),
                    ("my groups/own/memory.limit_in_bytes", "9000\n"),
                ],
                9000.0,
            ),
            // A group outside of those that the process sees.
            (
                vec![("proc/self/cgroup", "0::/../other\n"), ("sys/fs/cgroup/memory.max", "20\n")],
                20.0,
            ),
        ] {
            assert_eq!(available(&files), expected, "{files:?}");
        }
    }

    #[test]
    fn limits_of_the_process_count() {
        let line =
            |name: &str, soft: &str| format!("{name:<26}{soft:<21}unlimited            bytes\n");
        let none = line("Max address space", "unlimited") + &line("Max stack size", "10");
        assert_eq!(limits_in(&none), Vec::<f64>::new());
        let both = line("Max address space", "8000000") + &line("Max data size", "7000000");
        assert_eq!(limits_in(&both), [8e6, 7e6]);
        assert_eq!(available(&[("proc/self/limits", &both)]), 7e6);
    }
}
