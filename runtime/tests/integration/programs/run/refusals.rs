//! Wrong uses: each is one message, and nothing is started.

use super::Folder;

#[test]
fn wrong_uses_are_refused() {
    let folder = Folder::new(&["exit 0"]);
    folder.write("text", "mine");
    folder.add_program("odd", "not a script\n");
    folder.write("run.toml", "steps = 4\n");
    folder.write("bad.toml", "steps = \n");
    for (args, error) in [
        ("", "needs a program: meshwright run .. -- PROGRAM .."),
        ("--", "needs a program: meshwright run .. -- PROGRAM .."),
        ("./train", "`./train` needs -- before it: meshwright run .. -- ./train .."),
        ("./train --lr 1", "`./train` needs -- before it: meshwright run .. -- ./train .."),
        ("-n 2 --grace 5s ./train -n 3", "`./train` needs -- before it"),
        ("-n2 --grace=5s ./train -- --lr 1", "`./train` needs -- before it"),
        ("--elastic ./train --lr 1", "`./train` needs -- before it"),
        ("--elastic 2 ./train --lr 1", "`./train` needs -- before it"),
        ("-n 0 -- ./train", "invalid value '0' for '-n <N>': 0 is not in 1..=4096"),
        ("-n two -- ./train", "invalid value 'two' for '-n <N>'"),
        (
            "--max-restrats 2 -- ./train",
            "unknown flag `--max-restrats`; did you mean `--max-restarts`?",
        ),
        ("--max-restarts 2 -- ./train", "--max-restarts: needs --save DIR in the command"),
        ("--max-restarts 2 -- ./train --config run.toml", "--max-restarts: needs --save DIR"),
        ("--max-restarts 2 -- ./train --config bad.toml", "--max-restarts: needs --save DIR"),
        ("--max-restarts 2 -- ./train --config none.toml", "--max-restarts: needs --save DIR"),
        (
            "--max-restarts 2 -- ./train --save s3://bucket/run",
            "--max-restarts: s3://bucket/run is in object storage, from which only --resume auto",
        ),
        ("--max-restarts -1 -- ./train", "unknown flag `-1`"),
        (
            "--grace 120 -- ./train",
            "invalid value '120' for '--grace <TIME>': must be a time such as",
        ),
        ("--grace 0s -- ./train", "invalid value '0s' for '--grace <TIME>'"),
        ("-n 2 --launcher srun -- ./train", "the argument '-n <N>' cannot be used with"),
        ("--launcher ' -- ./train", "--launcher: its words are separated by blanks"),
        ("--launcher no-launcher -- ./train", "there is no program no-launcher in PATH"),
        ("-- no-program", "there is no program no-program in PATH; name it with its folder"),
        ("-- ./no-program", "there is no program ./no-program"),
        ("-- text", "cannot start text: it has no permission to be executed (chmod +x)"),
        ("-- ./text", "cannot start ./text: it has no permission to be executed (chmod +x)"),
        ("-- /", "cannot start /: it is a folder"),
        (
            "-- ./odd",
            "cannot start ./odd: it is neither a program nor a script that begins with #!",
        ),
        ("-n 2 -- mpirun ./train", "-n 2: starts the processes of mpirun itself"),
        (
            "--elastic -- ./train --mesh auto=2",
            "--elastic: needs several processes, by -n N or --launcher",
        ),
        (
            "--launcher ./train --elastic -- ./train --mesh dp=2",
            "--elastic: needs --mesh auto=N in the command",
        ),
        (
            "--launcher ./train --elastic -- ./train",
            "--elastic: needs --mesh auto=N in the command",
        ),
        ("--elastic 0 -- ./train", "invalid value '0' for '--elastic [<MIN>]'"),
        ("-- ./train --save text", "--save: cannot create text: "),
    ] {
        let run = folder.run(args);
        assert_eq!(run.code, Some(2), "{args}: {}", run.stderr);
        assert!(run.stderr.starts_with(&format!("error: {error}")), "{args}: {}", run.stderr);
        assert_eq!((run.stderr.lines().count(), run.stdout.as_str()), (1, ""), "{args}");
    }
    let empty = folder.command("--launcher").args(["", "--", "./train"]).output().unwrap();
    assert!(
        String::from_utf8_lossy(&empty.stderr).starts_with("error: --launcher: names no program")
    );
    assert!(folder.args().is_empty());
}

#[test]
fn programs_that_do_not_train_are_refused() {
    let folder = Folder::new(&["exit 0"]);
    for (program, code) in [("true --save out/a", 0), ("false --save out/a", 1), ("true", 0)] {
        let run = folder.run(&format!("-- {program}"));
        assert_eq!(run.code, Some(2), "{program}: {}", run.stderr);
        let name = program.split(' ').next().unwrap();
        let error = format!(
            "{name} has ended with exit code {code}, and no program of Meshwright has run in it"
        );
        assert!(run.stderr.starts_with(&format!("error: {error}")), "{}", run.stderr);
        assert!(!folder.path("out").exists(), "{program}");
    }
    // It may have been on another host.
    assert_eq!(folder.run("--launcher env -- true").code, Some(0));
}

/// Folders that there were stay, and their logs.
#[test]
fn refused_commands_leave_no_folders() {
    let folder = Folder::new(&["exit 2", "save 1; exit 0", "exit 2"]);
    assert_eq!(folder.run("-- ./train --save a/b").code, Some(2));
    assert!(!folder.path("a").exists());
    assert_eq!(folder.run("-- ./train --save out").code, Some(0));
    assert_eq!(folder.run("-- ./train --save out").code, Some(2));
    assert_eq!(folder.events().len(), 4);
}

/// Each process of a launcher would start the whole run.
#[test]
fn a_rank_of_a_launcher_starts_no_run() {
    let folder = Folder::new(&["exit 0"]);
    let run = |world: &str| {
        let mut command = folder.command("-- ./train");
        command.envs([("RANK", "0"), ("WORLD_SIZE", world)]).output().unwrap()
    };
    let refused = run("2");
    assert_eq!(refused.status.code(), Some(2));
    let error =
        "error: this process was started as rank 0 of 2, and each would start the whole run; ";
    assert!(String::from_utf8_lossy(&refused.stderr).starts_with(error));
    assert_eq!(run("1").status.code(), Some(0));
}

#[test]
fn without_mpi_threads_are_recommended() {
    let folder = Folder::new(&["exit 0"]);
    let run = folder.command("-n 2 -- ./train").env("PATH", folder.path(".")).output().unwrap();
    let error = "error: -n 2: ranks on CPUs are processes of MPI, and there is no mpirun in PATH: ";
    assert!(String::from_utf8_lossy(&run.stderr).starts_with(error));
    assert_eq!(run.status.code(), Some(2));
}

#[test]
fn a_log_of_something_else_is_kept() {
    let folder = Folder::new(&["exit 0"]);
    std::fs::create_dir(folder.path("out")).unwrap();
    folder.write("out/run.log", "mine\n");
    let run = folder.run("-- ./train --save out");
    assert_eq!(run.code, Some(2));
    let error =
        "error: --save: cannot open out/run.log: it is no log of `meshwright run`; move it away\n";
    assert_eq!(run.stderr, error);
    assert_eq!(folder.read("out/run.log"), "mine\n");
}
