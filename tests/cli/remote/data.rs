//! Data in object storage: runs as on files, which read each part once.

use crate::{SMALL, assert_contains, fixture};

use super::Remote;

/// A model of the vocabulary of the fixtures, without data.
fn small() -> String {
    SMALL.replace("--data text.txt", "--data-cache cache --vocab 257")
}

impl Remote {
    /// Creates the fixtures of data and the text of the workspace, as files and as objects.
    fn with_data() -> Remote {
        let remote = Remote::new();
        for entry in std::fs::read_dir(fixture("data")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            remote.add(&format!("data/{name}"), std::fs::read(&path).unwrap());
        }
        let text = remote.workspace.read("text.txt");
        remote.add("data/text.txt", text);
        remote
    }

    /// Writes a file in the workspace and an object.
    pub fn add(&self, name: &str, content: Vec<u8>) {
        let path = self.workspace.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &content).unwrap();
        self.server.content().set(name.to_owned(), content);
    }

    #[track_caller]
    fn train_on(&self, line: &str) -> String {
        let line = format!("{} {line}", small());
        let finished = self.workspace.run_program(self.command(), &line);
        assert_eq!(finished.code, Some(0), "{line}\n{}", finished.stderr);
        finished.stderr
    }
}

/// Token ids of 16 bits.
pub fn ids(count: usize) -> Vec<u8> {
    (0..count).flat_map(|at| ((at * at / 5 + at) as u16 % 250).to_le_bytes()).collect()
}

#[test]
fn runs_are_those_on_files() {
    let remote = Remote::with_data();
    remote.add("data/web/1.bin", ids(900));
    remote.add("data/web/2.bin", ids(1200));
    remote.add("data/web/2.bin.json", b"{}".to_vec());
    remote.add("data/web/_SUCCESS", Vec::new());
    remote.add("data/web/more/3.bin", ids(700));
    let mixture = |at: &str| {
        format!(
            "[web]\ndata = \"{at}data/web/*.bin\"\nweight = 3\n[more]\ndata = [\"{at}data/web/more\"]\nweight = 1\n"
        )
    };
    remote.workspace.write("files.toml", mixture("").as_bytes());
    remote.workspace.write("objects.toml", mixture("s3://bucket/").as_bytes());
    for line in [
        "@text.txt",
        "@text.txt --order shuffled --mesh dp=2 --batch 6 --micro-batches 3",
        "@u16.npy --documents 256 --pack",
        "@i64.npy --eval-fraction 0.3 --eval-every 2",
        "@llm_c_llama3.bin --documents 256 --mask-borders",
        "@megatron.idx --documents 256 --pack",
        "@megatron --documents 256",
        "@texts.jsonl --text-key text --documents 256",
        "@text.txt --eval-data @u16.npy,@i64.npy --tokenizer bytes",
        "@web/",
        "@web/*.bin --order shuffled",
        "@web/**/*.bin --eval-data @web/1.bin",
        "@web/1.bin:0.5,@web/more/3.bin:1.5 --mesh fsdp=2",
        "@.toml",
    ] {
        let path = |at: &str, toml: &str| line.replace("@.toml", toml).replace('@', at);
        let files = format!("--steps 5 --data {} --save out", path("data/", "files.toml"));
        let files = format!("{} {files}", small().replace("--data-cache cache", ""));
        let objects = path("s3://bucket/data/", "objects.toml");
        std::fs::remove_dir_all(remote.workspace.path("out")).ok();
        let on_files = remote.workspace.run_program(remote.command(), &files);
        let on_objects = format!("{} --steps 5 --data {objects} --save rest", small());
        let on_objects = remote.workspace.run_program(remote.command(), &on_objects);
        assert_eq!(
            on_objects.code, on_files.code,
            "{line}\n{}\n{}",
            on_files.stderr, on_objects.stderr
        );
        if on_files.code != Some(0) {
            let error = on_files.error().replace("data/", "s3://bucket/data/");
            assert_eq!(on_objects.error(), error);
            continue;
        }
        let tensors = |folder| remote.workspace.tensors(&format!("{folder}/step-00000005"));
        assert!(tensors("out") == tensors("rest"), "{line}");
        // The data are the same wherever they are.
        std::fs::remove_dir_all(remote.workspace.path("rest")).ok();
        remote.train_on(&format!("--steps 7 --resume out --data {objects} --save rest"));
        remote.train_on("--steps 7 --resume rest");
        std::fs::remove_dir_all(remote.workspace.path("rest")).ok();
    }
}

/// In sequential order only what is trained on is read, once for all ranks and for later runs.
#[test]
fn each_part_is_read_once() {
    let remote = Remote::with_data();
    remote.server.content().set("data/long.u16.bin".to_owned(), ids(4 << 20));
    let line = "--hidden 8 --layers 1 --heads 1 --kv-heads 1 --ffn 8 --vocab 257 --threads 1 --sample-tokens 0 --data \
                s3://bucket/data/long.u16.bin --data-cache cache --steps 120 --batch 40 --seq 256";
    let needed = 120 * 40 * 256 * 2;
    let run = |more: &str| {
        remote.server.content().data_read = 0;
        let finished = remote.workspace.run_program(remote.command(), &format!("{line} {more}"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        remote.server.content().data_read
    };
    let read = run("--mesh dp=4");
    assert!(read >= needed && read * 10 <= needed * 11, "{read} of {needed}");
    let error = "<Error><Code>NoSuchKey</Code><Message>NoSuchKey</Message></Error>";
    // Searches for what may be beside the object.
    let searches = run("--mesh 1");
    assert!(searches <= 4 * error.len(), "{searches}");
}

#[test]
fn other_objects_are_other_data() {
    let remote = Remote::with_data();
    let save = "--data s3://bucket/data/text.txt --save out";
    remote.train_on(&format!("--steps 2 {save}"));
    let line = format!("{} --steps 2 {save}", small().replace("cache cache", "cache text.txt"));
    let refused = remote.workspace.run_program(remote.command(), &line);
    assert_contains(refused.error(), "--data-cache: cannot write to text.txt: ");
    let mut text = remote.workspace.read("text.txt");
    text[700] ^= 1;
    remote.server.content().set("data/text.txt".to_owned(), text);
    let line = format!("{} --steps 4 --resume out", small());
    let refused = remote.workspace.run_program(remote.command(), &line);
    assert_contains(refused.error(), "--data: s3://bucket/data/text.txt with ");
    assert_contains(refused.error(), "differs from the data of the checkpoint");
    // Parts that were kept are those of the other version.
    remote.train_on("--steps 4 --resume out --new-data --save rest");
}

/// Processes of a host fetch each part once together, whichever of them comes first.
#[cfg(feature = "mpi")]
#[test]
fn processes_share_the_cache() {
    use crate::processes::{add_processes, launcher};
    let remote = Remote::with_data();
    remote.server.content().set("data/long.u16.bin".to_owned(), ids(1 << 20));
    let line = format!("{} --mesh dp=2,tp=2 --data s3://bucket/data/long.u16.bin", small());
    let line = format!("{line} --steps 30 --batch 32 --seq 512").replace("--seq 16 --batch 4 ", "");
    let mut command = launcher();
    remote.server.set_env(&mut command);
    add_processes(&mut command, 4);
    let finished = remote.workspace.run_program(command, &line);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let (read, needed) = (remote.server.content().data_read, 30 * 32 * 512 * 2);
    // The first MiB is more than is trained on.
    assert!(read <= (1 << 20) + needed / 10, "{read} of {needed}");
}
