//! Buckets and URLs that cannot be used: one message before the first step.

use crate::assert_contains;

use super::server::ServerFault;
use super::{Remote, SAVE};

#[test]
fn unusable_places_are_refused_before_the_first_step() {
    let remote = Remote::new();
    for (line, part) in [
        (
            "--save s3://other/run",
            "--save: cannot write s3://other/run: there is no bucket `other`",
        ),
        ("--resume s3://other/run", "--resume: cannot read s3://other/run"),
        ("--save s3://", "it names no bucket; write SCHEME://BUCKET/PATH"),
        ("--save s3:///run", "it names no bucket"),
        ("--resume s3://bucket/none", "no checkpoint at s3://bucket/none"),
        ("--resume s3://bucket/none/best", "no checkpoint at s3://bucket/none/best"),
        ("--resume s3://bucket/none/step-3", "no checkpoint at s3://bucket/none/step-00000003"),
        ("--data s3://bucket/a.bin", "--data: there is no object s3://bucket/a.bin, and no folder"),
        ("--data text.txt,s3://bucket/a.bin", "--data: there is no object s3://bucket/a.bin"),
        (
            "--data s3://other/a.bin",
            "--data: cannot read s3://other/a.bin: there is no bucket `other`",
        ),
        (
            "--data s3://bucket/",
            "--data: there is no object s3://bucket/, and no folder with objects",
        ),
        ("--data s3://bucket/*.bin", "--data: no object matches s3://bucket/*.bin"),
        ("--data s3://", "it names no bucket; write SCHEME://BUCKET/PATH"),
        ("--data s3://bucket/mix.toml", "is the file of a mixture, which is read from a disk"),
        ("--data https://x.org/a.bin,text.txt", "is a URL (https), which is not read"),
        (
            "--data text.txt --eval-data s3://bucket/a.bin",
            "--eval-data: there is no object s3://bucket",
        ),
        (
            "--data text.txt --data-cache c",
            "--data-cache: is of data in object storage, which neither",
        ),
        (
            "--vocab 257 --data s3://bucket/a.bin --data-cache-size 2MB",
            "--data-cache-size: is too small for the rows",
        ),
        (
            "--vocab 257 --data s3://bucket/a.bin --data-cache s3://bucket/c",
            "--data-cache: s3://bucket/c is in object",
        ),
        (
            "--init-from s3://bucket/hf",
            "--init-from: s3://bucket/hf is in object storage, where only --save, --resume",
        ),
        ("--export-hf gs://bucket/hf", "--export-hf: gs://bucket/hf is in object storage"),
        ("--metrics s3://bucket/m.jsonl", "--metrics: s3://bucket/m.jsonl is in object storage"),
        ("--save out --save-cache c", "--save-cache: is of checkpoints in object storage"),
        ("--save s3://bucket/run --save-cache text.txt", "--save: cannot create text.txt"),
    ] {
        let given = if line.contains("--data ") { "--data text.txt" } else { "none" };
        let common = if line.starts_with("--init-from") { "--data text.txt" } else { crate::SMALL };
        let line = format!("{} --steps 2 {line}", common.replace(given, ""));
        let refused = remote.workspace.run_program(remote.command(), &line);
        assert_eq!(refused.code, Some(2), "{line}: {}", refused.stderr);
        assert_contains(refused.error(), part);
    }
    remote.server.content().is_unconditional = true;
    let refused = remote.run(&format!("--steps 2 {SAVE}"));
    assert_contains(refused.error(), "writes objects without regard to conditions (If-Match)");
    remote.server.content().is_unconditional = false;
    remote.server.plan(|_, request| (request.method == "PUT").then_some(ServerFault::Refuse(403)));
    let refused = remote.run(&format!("--steps 2 {SAVE}"));
    assert_contains(refused.error(), "access is denied: check the credentials in the environment");
    remote.server.repair();
    assert_eq!(remote.server.names(""), Vec::<String>::new());

    let mut command = remote.command();
    command.env_remove("AWS_ACCESS_KEY_ID").env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1");
    let line = format!("{} --steps 2 {SAVE}", crate::SMALL);
    let refused = remote.workspace.run_program(command, &line);
    assert_contains(refused.error(), "there are no credentials; set AWS_ACCESS_KEY_ID and");
}
