//! Runs by other launchers, and by `mpirun`.

use super::{Folder, finish, signal};

/// A launcher that starts one process, and reports its flags and variables.
fn mpirun(version: &str) -> String {
    format!(
        "#!/bin/sh
         [ \"$1\" = --version ] && {{ echo '{version}'; exit; }}
         [ $# = 0 ] && exit 9
         echo \"mpirun $*; $OMPI_ALLOW_RUN_AS_ROOT $MASTER_ADDR ${{MESHWRIGHT_TOKEN:+token}}\"
         while [ \"$1\" != ./train ]; do shift; done
         exec \"$@\"\n"
    )
}

const OPEN_MPI: &str = "mpirun (Open MPI) 5.0.11";
const HYDRA: &str = "HYDRA build details:";

#[test]
fn ranks_on_cpus_are_started_by_mpirun() {
    for (version, flags) in
        [(OPEN_MPI, "--bind-to none --oversubscribe -n 1000"), (HYDRA, "-n 1000"), ("?", "-n 1000")]
    {
        let folder = Folder::new(&["echo trains; exit 0"]);
        folder.add_program("mpirun", &mpirun(version));
        let run = folder.run("-n 1000 -- ./train --lr 1");
        let expected = format!("mpirun {flags} ./train --lr 1; 1 127.0.0.1 token\ntrains\n");
        assert_eq!((run.code, run.stdout), (Some(0), expected), "{}", run.stderr);
    }
}

#[test]
fn codes_of_mpirun_stand_for_signals() {
    for (version, line, code) in [
        (OPEN_MPI, "exit 137", 3),
        (HYDRA, "exit 9", 3),
        (OPEN_MPI, "exit 9", 9),
        (HYDRA, "exit 2", 2),
    ] {
        let folder = Folder::new(&[line, "save 1; exit 0"]);
        folder.add_program("mpirun", &mpirun(version));
        let run = folder.run("-n 2 -- ./train");
        assert_eq!(run.code, Some(code), "{version}, {line}: {}", run.stderr);
    }
    let folder = Folder::new(&["exit 139", "save 1; exit 0"]);
    folder.add_program("mpirun", &mpirun(OPEN_MPI));
    assert_eq!(folder.run("-n 2 --max-restarts 1 -- ./train --save out").code, Some(0));
}

#[test]
fn open_mpi_needs_a_home_folder() {
    let folder = Folder::new(&["exit 0"]);
    folder.add_program("mpirun", &mpirun(OPEN_MPI));
    let run = folder.command("-n 2 -- ./train").env_remove("HOME").output().unwrap();
    let error = "error: HOME is not set, without which Open MPI starts nothing; ";
    assert!(String::from_utf8_lossy(&run.stderr).starts_with(error));
    assert_eq!(run.status.code(), Some(2));
}

/// `mpirun` kills its processes after SIGTERM.
#[test]
fn launchers_get_signals_that_they_pass_on() {
    let plan = "for s in TERM INT USR1; do trap \"echo $s; exit 75\" $s; done
                echo > ready; while :; do sleep 0.01; done"
        .replace('\n', ";");
    for (launcher, sent, got) in [
        ("mpirun", "TERM", "USR1"),
        ("mpirun", "INT", "USR1"),
        ("srun", "TERM", "TERM"),
        ("srun", "INT", "TERM"),
        ("srun", "USR1", "USR1"),
    ] {
        let folder = Folder::new(&[&plan]);
        folder.add_program(launcher, &mpirun(OPEN_MPI));
        let mut command = folder.command("");
        command.args(["--launcher", &format!("{launcher} -a"), "--", "./train"]);
        let child = command.spawn().unwrap();
        folder.wait_for("ready");
        signal(&child.id().to_string(), sent);
        let run = finish(child);
        assert_eq!(run.code, Some(75), "{sent}: {}", run.stderr);
        let export = if launcher == "mpirun" { " -x MESHWRIGHT_TOKEN" } else { "" };
        let line = format!("mpirun -a{export} ./train; ");
        assert!(run.stdout.starts_with(&line), "{}", run.stdout);
        assert!(
            run.stdout.ends_with(&format!("\n{got}\n")),
            "{sent} to {launcher}: {}",
            run.stdout
        );
    }
}

/// The command may name `mpirun` itself.
#[test]
fn mpirun_may_be_the_program() {
    let folder = Folder::new(&["exit 137", "save 1; exit 0"]);
    folder.add_program("mpirun", &mpirun(OPEN_MPI));
    let run = folder.run("--max-restarts 1 -- mpirun -n 2 ./train --save out");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let line = "mpirun -x MESHWRIGHT_TOKEN -n 2 ./train --save out; ";
    assert!(run.stdout.starts_with(line), "{}", run.stdout);
}

/// There are as many ranks as cores, then fewer until a mesh fits.
#[test]
fn elastic_runs_follow_the_cores() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let refused = vec!["exit 2"; cores - 1];
    let folder = Folder::new(&[&refused[..], &["save 1; exit 0"]].concat());
    folder.add_program("mpirun", &mpirun(HYDRA));
    let most = cores + 1;
    let args = format!("-n {most} --elastic -- ./train --mesh auto={most} --save out");
    let run = folder.run(&args);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let expected = (1..=cores).rev().map(|count| format!("--save out --mesh auto={count}"));
    assert_eq!(folder.args(), Vec::from_iter(expected));
    let counts = folder.events().into_iter().filter_map(|event| event.processes);
    assert!(counts.eq((1..=cores).rev()));
    // The command is at fault if it is refused with all ranks.
    let folder = Folder::new(&["exit 2", "exit 0"]);
    folder.add_program("mpirun", &mpirun(HYDRA));
    let args = format!("-n {cores} --elastic -- ./train --mesh auto --save out");
    let run = folder.run(&args);
    if cores > 1 {
        assert_eq!((run.code, folder.args().len()), (Some(2), 1), "{}", run.stderr);
    }
}

/// Another launcher knows itself how many processes it starts.
#[test]
fn elastic_runs_leave_the_number_to_a_launcher() {
    let folder = Folder::new(&["exit 0"]);
    folder.add_program("srun", &mpirun("slurm 24.05"));
    let run = folder.run("--launcher srun --elastic -- ./train --mesh auto=8");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(folder.args(), ["--mesh auto"]);
}
