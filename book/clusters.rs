//! The files of the page on clusters: scripts of SLURM run with functions in place of its commands, and the flags and
//! variables of all files are those of the programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use meshwright::launch::RankAssignment;
use meshwright::train::config::Config;

use super::{files, read, root};

/// Functions in place of the commands of SLURM, before a script.
const SLURM: &str = r#"
srun() {
    echo "srun $*"
    echo "at ${MASTER_ADDR-}:${MASTER_PORT-}, a token of ${#MESHWRIGHT_TOKEN} characters"
    return "$CODE"
}
scontrol() {
    case $1 in
        show) printf 'host-a\nhost-b\n' ;;
        *) echo "scontrol $*" ;;
    esac
}
"#;

fn folder() -> PathBuf {
    root().join("src/clusters")
}

/// Runs a script whose tasks exit with `code`. Returns its exit code and its output.
fn run_script(path: &Path, code: i32, restarts: &str) -> (i32, String) {
    let script = format!("set -u{SLURM}. {}", path.display());
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("CODE", code.to_string())
        .env_remove("MASTER_ADDR")
        .env_remove("MASTER_PORT")
        .env("MESHWRIGHT_TOKEN", "")
        .envs([("SLURM_JOB_ID", "12345"), ("SLURM_JOB_NODELIST", "host-[a-b]")])
        .envs([("SLURM_CPUS_PER_TASK", "4"), ("SLURM_RESTART_COUNT", restarts)])
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn slurm_scripts_start_again_what_is_worth_it() {
    let scripts = files(&folder(), "sbatch");
    assert_eq!(scripts.len(), 3);
    for path in scripts {
        let script = read(&path);
        for (code, is_requeued) in
            [(0, false), (2, false), (3, true), (4, false), (75, true), (137, true)]
        {
            let (found, text) = run_script(&path, code, "7");
            assert_eq!(found, code, "{}", path.display());
            assert_eq!(text.contains("scontrol requeue 12345\n"), is_requeued, "{code}: {text}");
        }
        assert!(!run_script(&path, 3, "50").1.contains("requeue"));
        let number = |flag: &str| -> usize {
            let (_, rest) = script.split_once(&format!("#SBATCH --{flag}=")).unwrap();
            rest.lines().next().unwrap().parse().unwrap()
        };
        let (_, text) = run_script(&path, 0, "");
        let (_, words) = text.lines().next().unwrap().split_once("train_llama ").unwrap();
        let config = Config::parse(["train_llama"].into_iter().chain(words.split(' '))).unwrap();
        assert!(config.save.is_some() && config.resume_auto);
        if number("nodes") == 1 {
            continue;
        }
        assert!(text.contains("\nat host-a:22345, a token of 64 characters\n"), "{text}");
        let tasks = number("nodes") * number("ntasks-per-node");
        assert_eq!(config.mesh.world_size(), tasks);
        let (rank, size) = ((tasks - 1).to_string(), tasks.to_string());
        let local = (number("ntasks-per-node") - 1).to_string();
        let nodes = number("nodes").to_string();
        let task = [
            ("SLURM_PROCID", rank.as_str()),
            ("SLURM_STEP_NUM_TASKS", &size),
            ("SLURM_LOCALID", &local),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_NNODES", &nodes),
            ("SLURM_JOB_ID", "12345"),
            ("MASTER_ADDR", "host-a"),
            ("MASTER_PORT", "22345"),
        ];
        let found = assignment(&task);
        assert_eq!((found.rank, found.world, found.local_rank), (tasks - 1, tasks, 7));
        assert_eq!((found.master.as_str(), found.job.as_str()), ("host-a:22345", "12345"));
        assert!(!found.one_host);
    }
}

#[test]
fn kubernetes_files_have_known_flags_and_ranks() {
    for (name, pods) in [("kubernetes_one_host.yaml", 1), ("kubernetes_gpus.yaml", 16)] {
        let text = read(&folder().join(name));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let args = lines
            .iter()
            .filter_map(|line| line.strip_prefix("- "))
            .filter(|arg| arg.starts_with("--"));
        let config = Config::parse(["train_llama"].into_iter().chain(args)).unwrap();
        assert!(config.save.is_some() && config.resume_auto, "{name}");
        if pods == 1 {
            continue;
        }
        assert_eq!(config.mesh.world_size(), pods);
        for key in ["completions", "parallelism"] {
            assert!(lines.contains(&format!("{key}: {pods}").as_str()), "{key}");
        }
        let variables = lines.windows(2).filter_map(|pair| {
            let value = pair[1].strip_prefix("value: ")?.trim_matches('"');
            Some((pair[0].strip_prefix("- name: ")?, value))
        });
        let mut variables: Vec<_> = variables.collect();
        variables.push(("JOB_COMPLETION_INDEX", "3"));
        let found = assignment(&variables);
        assert_eq!((found.rank, found.world, found.local_rank), (3, pods, 0));
        assert_eq!((found.master.as_str(), found.job.as_str()), ("llama-0.llama:29500", "llama"));
    }
}

/// Variables of tests are none of the programs.
#[test]
fn the_page_has_every_variable_of_the_programs() {
    let page = read(&root().join("src/clusters.md"));
    let runtime = root().join("../runtime");
    let mut names = 0;
    for file in files(&runtime, "rs") {
        let path = file.strip_prefix(&runtime).unwrap().display().to_string();
        if path.contains("tests") || path.contains("parity/") {
            continue;
        }
        for part in read(&file).split("\"MESHWRIGHT_").skip(1) {
            let is_other = |c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_';
            let name = format!("MESHWRIGHT_{}", part.split(is_other).next().unwrap());
            assert!(page.contains(&format!("`{name}`")), "{name} of {path} is not in the page");
            names += 1;
        }
    }
    assert!(names > 8, "{names}");
}

fn assignment(variables: &[(&str, &str)]) -> RankAssignment {
    let of = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    RankAssignment::from_variables(&of).unwrap().expect("a rank")
}
