//! Checkpoints and data in object storage: the same tensors, kills and alterations as on a disk, and faults of the
//! service.

mod alterations;
mod data;
mod data_faults;
mod http;
mod kills;
mod refusals;
mod server;

use std::process::Command;

use crate::{Finished, SMALL, Workspace, assert_contains, program};

use server::{Server, ServerFault};

/// A service, and a folder in which programs use it.
struct Remote {
    workspace: Workspace,
    server: Server,
}

impl Remote {
    fn new() -> Remote {
        Remote { workspace: Workspace::new(), server: Server::start() }
    }

    fn command(&self) -> Command {
        let mut command = program();
        self.server.set_env(&mut command);
        command
    }

    fn run(&self, line: &str) -> Finished {
        self.workspace.run_program(self.command(), &format!("{SMALL} {line}"))
    }

    #[track_caller]
    fn train(&self, line: &str) -> Finished {
        let finished = self.run(line);
        assert_eq!(finished.code, Some(0), "{line}\n{}", finished.stderr);
        finished
    }

    /// Returns the files with tensors of a checkpoint in the bucket, in the order of ranks, of which there are so many.
    #[track_caller]
    fn tensors(&self, step: &str, ranks: usize) -> Vec<Vec<u8>> {
        let content = self.server.content();
        let below = format!("run/{step}/rank-");
        let files = content.objects.iter().filter(|(name, _)| name.starts_with(&below));
        let files: Vec<Vec<u8>> = files.map(|(_, bytes)| bytes.clone()).collect();
        assert_eq!(files.len(), ranks, "{:?}", content.objects.keys());
        files
    }

    /// Asserts that the bucket has whole checkpoints of these steps and nothing else, and that no run holds it.
    #[track_caller]
    fn assert_holds(&self, steps: &[u64], ranks: usize) {
        let mut names = self.server.names("run/");
        assert!(names.contains(&"latest".to_owned()), "{names:?}");
        names.retain(|name| name != "latest");
        let of_step = |step: u64| {
            let files = ["manifest.json".to_owned(), "manifest.xxh3".to_owned()].into_iter();
            let files = files.chain((0..ranks).map(|rank| format!("rank-{rank:05}")));
            files.map(move |name| format!("step-{step:08}/{name}"))
        };
        let expected: Vec<String> = steps.iter().flat_map(|step| of_step(*step)).collect();
        let stems = names.iter().map(|name| {
            let is_rank = name.ends_with(".safetensors");
            if is_rank { name.rsplit_once('-').unwrap().0.to_owned() } else { name.clone() }
        });
        assert_eq!(Vec::from_iter(stems), expected);
        let content = self.server.content();
        assert!(content.uploads.is_empty(), "unfinished uploads");
        let latest = String::from_utf8(content.objects["run/latest"].clone()).unwrap();
        assert_eq!(latest, format!("{{\"step\":{}}}\n", steps.last().unwrap()));
    }
}

const SAVE: &str = "--save s3://bucket/run --save-every 2 --keep 2";

#[test]
fn checkpoints_are_those_of_a_disk() {
    for (mesh, ranks, flags) in
        [("1", 1, ""), ("fsdp=2,tp=2", 4, "--save-async"), ("dp=2", 2, "--seed 3")]
    {
        let remote = Remote::new();
        let line = format!("--mesh {mesh} --steps 7 {flags}");
        remote.train(&format!("{line} {SAVE} --save-cache cache"));
        remote.assert_holds(&[6, 7], ranks);
        remote.train(&format!("{line} --save out --save-every 2 --keep 2"));
        let found = remote.tensors("step-00000007", ranks);
        assert!(found == remote.workspace.tensors("out/step-00000007"), "{mesh}");
        assert_eq!(std::fs::read_dir(remote.workspace.path("cache")).unwrap().count(), 0);
        // A copy on a disk is a checkpoint, too.
        remote.server.copy_to("run/step-00000006/", &remote.workspace.path("copy"));
        for from in ["copy", "s3://bucket/run/step-6", "out/step-6"] {
            std::fs::remove_dir_all(remote.workspace.path("rest")).ok();
            remote.train(&format!("--resume {from} --steps 7 --save rest"));
            assert!(found == remote.workspace.tensors("rest/step-00000007"), "{mesh} {from}");
        }
    }
}

#[test]
fn runs_continue_on_any_mesh_and_read_little() {
    let remote = Remote::new();
    remote.train(&format!("--mesh fsdp=2,tp=2 --steps 6 {SAVE}"));
    let whole: usize = remote.tensors("step-00000006", 4).iter().map(Vec::len).sum();
    for (from, mesh) in
        [("s3://bucket/run", "fsdp=2,tp=2"), ("s3://bucket/run/latest", "dp=2,tp=2"), ("auto", "1")]
    {
        remote.server.content().bytes_read = 0;
        let line = format!("--resume {from} --mesh {mesh} --steps 8 --save-every 100");
        let save = if from == "auto" { "--save s3://bucket/run" } else { "--save out" };
        remote.train(&format!("{line} {save}"));
        let read = remote.server.content().bytes_read;
        assert!(read >= whole * 9 / 10 && read <= whole * 11 / 10, "{mesh}: {read} of {whole}");
    }
}

/// The checkpoint of a step that is saved again takes the place of the one before, also that of the lowest loss.
#[test]
fn branches_and_best_checkpoints_are_as_on_a_disk() {
    let remote = Remote::new();
    let eval = "--eval-fraction 0.2 --eval-every 2 --keep-best";
    let line = format!("--steps 6 {eval}");
    for (save, keep) in [("s3://bucket/run", "--keep 1"), ("out", "--keep 1")] {
        remote.train(&format!("{line} --save {save} --save-every 2 {keep} --lr 1e-2"));
    }
    let best = remote.workspace.path("out/best").read_link().unwrap();
    let step: u64 = best.to_str().unwrap()[5..].parse().unwrap();
    let record = remote.server.content().objects["run/best"].clone();
    assert_eq!(String::from_utf8(record).unwrap(), format!("{{\"step\":{step}}}\n"));

    let branch =
        format!("--save s3://bucket/run --save-every 2 --resume s3://bucket/run/best {eval}");
    let first = remote.tensors("step-00000006", 1);
    let warned = remote.train(&format!("{branch} --steps 8 --lr 2e-2"));
    assert_contains(&warned.stderr, "warning");
    if step < 6 {
        assert!(first != remote.tensors("step-00000006", 1), "the step is saved again");
    }
    assert!(remote.server.content().uploads.is_empty());
}

/// Answers that are lost, cut, late or altered, and errors of the service.
#[test]
fn faults_that_pass_change_nothing() {
    let remote = Remote::new();
    remote.train("--mesh fsdp=2 --steps 6 --save out");
    let late = ServerFault::Delay(std::time::Duration::from_millis(30));
    for (period, fault) in [
        (5, ServerFault::Refuse(500)),
        (7, ServerFault::Refuse(503)),
        (3, ServerFault::LoseAnswer),
        (4, ServerFault::Cut),
        (2, late),
    ] {
        remote.server.content().objects.clear();
        remote.server.plan(move |number, _| (number % period == 0).then_some(fault));
        remote.train(&format!("--mesh fsdp=2 --steps 4 {SAVE} --save-async"));
        remote.train(&format!("--mesh fsdp=2 --steps 6 {SAVE} --resume auto"));
        remote.server.repair();
        let saved = remote.tensors("step-00000006", 2);
        assert!(saved == remote.workspace.tensors("out/step-00000006"), "{fault:?}");
        remote.assert_holds(&[4, 6], 2);
    }
    remote.server.plan(|number, request| {
        let is_file = request.method == "GET" && request.path.contains("/step-");
        (is_file && number % 3 == 0).then_some(ServerFault::Alter)
    });
    remote.train("--steps 6 --resume s3://bucket/run/step-4 --save rest");
    let saved = remote.workspace.tensors("rest/step-00000006");
    assert!(saved == remote.workspace.tensors("out/step-00000006"));
}

/// A save that fails is a warning, and the last one is the end.
#[test]
fn saves_that_fail_are_tolerated() {
    let remote = Remote::new();
    let failing = |step: &'static str| {
        move |_: usize, request: &http::Request| {
            let is_file = request.path.ends_with(".safetensors") && request.path.contains(step);
            (is_file && request.method == "PUT").then_some(ServerFault::Refuse(403))
        }
    };
    remote.server.plan(failing("step-00000004"));
    let done = remote.train(&format!("--mesh dp=2 --steps 6 {SAVE}"));
    assert_contains(&done.stderr, "the state after step 4 is not saved");
    remote.assert_holds(&[2, 6], 2);
    remote.server.plan(failing("step-00000008"));
    let failed = remote.run(&format!("--mesh dp=2 --steps 8 {SAVE} --resume auto"));
    assert_eq!(failed.code, Some(2), "{}", failed.stderr);
    assert_contains(&failed.stderr, "step-00000008/rank-00000-");
    assert_contains(&failed.stderr, "access is denied: check the credentials");
    let latest = remote.server.content().objects["run/latest"].clone();
    assert_eq!(String::from_utf8(latest).unwrap(), "{\"step\":6}\n", "a failed run holds nothing");
    remote.server.repair();
    remote.train(&format!("--mesh dp=2 --steps 8 {SAVE} --resume auto"));
    remote.assert_holds(&[6, 8], 2);

    remote.server.plan(|_, request| (request.method == "GET").then_some(ServerFault::Refuse(500)));
    let lost = remote.run("--resume s3://bucket/run/step-8 --steps 9");
    assert_eq!(lost.code, Some(3), "{}", lost.stderr);
    assert_contains(
        &lost.stderr,
        "--resume: cannot read s3://bucket/run/step-00000008/manifest.json: ",
    );
}
