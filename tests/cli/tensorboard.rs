//! `--tensorboard`: event files, read by the rules of their format and compared with the metrics file.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;

/// The scalars of a step, by tag.
type Scalars = BTreeMap<String, f32>;

/// The events of all files in the folder `dir` of a workspace, in the order of their names.
#[derive(Default)]
struct Events {
    /// Steps with their time and scalars.
    steps: Vec<(u64, f64, Scalars)>,
    /// Steps at which runs begin.
    starts: Vec<u64>,
}

/// Returns the CRC-32C of bytes, by the definition of the checksum, masked as TFRecord files have it.
fn masked_crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        (0..8).for_each(|_| crc = (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78));
    }
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Returns the fields of a protobuf message: their numbers, and their bytes or varints.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8], u64)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let len = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (own, rest) = bytes.split_at(len);
        *bytes = rest;
        own.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (len, value) = match key & 7 {
            0 => (0, varint(&mut bytes)),
            1 => (8, 0),
            2 => (varint(&mut bytes) as usize, 0),
            5 => (4, 0),
            wire => panic!("wire type {wire}"),
        };
        let (own, rest) = bytes.split_at(len);
        bytes = rest;
        found.push((key >> 3, own, value));
    }
    found
}

fn scalars(summary: &[u8]) -> Scalars {
    let scalar = |value: &[u8]| match fields(value)[..] {
        [(1, tag, _), (2, number, _)] => (
            String::from_utf8(tag.to_vec()).unwrap(),
            f32::from_le_bytes(number.try_into().unwrap()),
        ),
        _ => panic!("no scalar: {value:?}"),
    };
    fields(summary).into_iter().map(|(_, value, _)| scalar(value)).collect()
}

impl Events {
    fn read(workspace: &Workspace, dir: &str) -> Events {
        let mut names: Vec<String> = std::fs::read_dir(workspace.path(dir))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains("tfevents"))
            .collect();
        names.sort();
        let mut events = Events::default();
        for name in names {
            let bytes = workspace.read(&format!("{dir}/{name}"));
            let mut rest = &bytes[..];
            let mut is_first = true;
            while !rest.is_empty() {
                let len = number(&rest[..8]) as usize;
                assert_eq!(number(&rest[8..12]) as u32, masked_crc(&rest[..8]), "{name}");
                let (message, after) = rest[12..].split_at(len);
                assert_eq!(number(&after[..4]) as u32, masked_crc(message), "{name}");
                rest = &after[4..];
                events.add(message, is_first);
                is_first = false;
            }
        }
        events
    }

    fn add(&mut self, message: &[u8], is_first: bool) {
        let fields = fields(message);
        let (1, time, _) = fields[0] else { panic!("no time") };
        let time = f64::from_le_bytes(time.try_into().unwrap());
        match fields[1..] {
            [(3, version, _)] => assert!(is_first && version == b"brain.Event:2"),
            [(2, _, step), (5, summary, _)] => self.steps.push((step, time, scalars(summary))),
            [(2, _, step), (7, log, _)] => {
                assert_eq!(log, [8, 1]);
                self.starts.push(step);
            }
            _ => panic!("other fields: {message:?}"),
        }
    }

    /// Asserts that the steps and their scalars are those of the metrics.
    #[track_caller]
    fn assert_equal(&self, metrics: &[Value]) {
        assert_eq!(self.steps.len(), metrics.len());
        for ((step, time, scalars), metrics) in self.steps.iter().zip(metrics) {
            let mut expected = Scalars::new();
            for (key, value) in metrics.as_object().unwrap() {
                match value.as_object() {
                    Some(parts) => expected.extend(parts.iter().map(|(part, value)| {
                        (format!("{key}/{part}"), value.as_f64().unwrap() as f32)
                    })),
                    None => drop(expected.insert(key.clone(), value.as_f64().unwrap() as f32)),
                }
            }
            assert_eq!(metrics["step"], *step);
            assert!((metrics["time"].as_f64().unwrap() - *time).abs() < 1e-6, "{time}");
            expected.retain(|key, _| key != "step" && key != "time");
            assert_eq!(*scalars, expected);
        }
    }
}

/// A run that was lost after its last checkpoint continues in another file, and repeats steps in none.
#[test]
fn scalars_are_those_of_the_metrics() {
    let workspace = Workspace::new();
    let flags =
        "--mesh dp=2 --eval-fraction 0.1 --eval-every 2 --metrics m.jsonl --tensorboard tb/run";
    workspace.train(&format!("{flags} --steps 5 --save out --save-every 3"));
    let metrics = workspace.metrics("m.jsonl");
    let events = Events::read(&workspace, "tb/run");
    events.assert_equal(&metrics);
    let tags =
        |step: usize| events.steps[step - 1].2.keys().map(String::as_str).collect::<Vec<_>>();
    for tag in ["loss", "grad_norm", "lr", "tokens_per_s", "peak_bytes/total", "comm_bytes/dp"] {
        assert!(tags(1).contains(&tag), "{tag}: {:?}", tags(1));
    }
    assert!(tags(2).contains(&"eval_loss") && !tags(1).contains(&"eval_loss"));
    assert!(events.starts.is_empty());
    let resumed = "--resume out/step-00000003 --save resumed --steps 6 --metrics m.jsonl --tensorboard tb/run";
    let finished = workspace.train(resumed);
    assert!(!finished.stderr.contains("warning"), "{}", finished.stderr);
    assert_contains(&finished.stdout, "steps on 2 ranks");
    let events = Events::read(&workspace, "tb/run");
    events.assert_equal(&workspace.metrics("m.jsonl"));
    assert_eq!((events.steps.len(), &events.starts[..]), (6, &[4][..]));
    assert_eq!(workspace.listing().iter().filter(|name| name.starts_with("tb/")).count(), 3);
}

/// Events of another run are kept in a folder of their own, in which TensorBoard shows them.
#[test]
fn earlier_events_are_kept() {
    let workspace = Workspace::new();
    let first =
        workspace.train("--steps 3 --tensorboard tb --metrics tb/m.jsonl --save out").stderr;
    assert!(!first.contains("earlier"), "{first}");
    let metrics = workspace.metrics("tb/m.jsonl");
    let again = workspace.train("--steps 5 --tensorboard tb").stderr;
    assert_contains(&again, "--tensorboard: the events of an earlier run are now in tb/earlier.1");
    Events::read(&workspace, "tb/earlier.1").assert_equal(&metrics);
    assert_eq!(Events::read(&workspace, "tb").steps.len(), 5);
    // The second run is none that the first one's checkpoint leads to.
    let resumed = workspace.train("--resume out --steps 4 --tensorboard tb").stderr;
    assert_contains(
        &resumed,
        "warning: --tensorboard: tb has records that are none of this run (a record of tb/events",
    );
    assert_contains(
        &resumed,
        "is of step 5, and the run ends at step 4); a copy of them is in tb/earlier.2",
    );
    assert_eq!(Events::read(&workspace, "tb/earlier.2").steps.len(), 5);
    let steps = |events: &Events| events.steps.iter().map(|step| step.0).collect::<Vec<_>>();
    assert_eq!(steps(&Events::read(&workspace, "tb")), [1, 2, 3, 4]);
    // Another number of tokens.
    let doubled = SMALL.replace("--batch 4", "--batch 8");
    workspace.run(&format!("{doubled} --steps 3 --tensorboard other"));
    let resumed = workspace.train("--resume out --steps 4 --tensorboard other").stderr;
    assert_contains(
        &resumed,
        "has 128 tokens, and a step has 64); a copy of them is in other/earlier.1",
    );
}

/// Reports and checkpoints in the folder of an export that was not reached are no other content.
#[test]
fn events_can_be_in_the_folder_of_an_export() {
    let workspace = Workspace::new();
    let line =
        "--export-hf hf --tensorboard hf --save hf/kept --metrics hf/m.jsonl --trace hf/t.json";
    workspace.train(&format!("{line} --steps 2"));
    std::fs::remove_file(workspace.path("hf/config.json")).unwrap();
    workspace.train(&format!("{line} --steps 3 --resume auto"));
    assert_eq!(Events::read(&workspace, "hf").steps.len(), 3);
    std::fs::remove_file(workspace.path("hf/config.json")).unwrap();
    workspace.train(&format!("{line} --steps 1"));
    assert_eq!(Events::read(&workspace, "hf/earlier.1").steps.len(), 3);
    let refusal =
        workspace.run(&format!("{SMALL} --steps 1 --tensorboard hf --metrics hf/earlier.9"));
    assert_contains(
        refusal.error(),
        "--metrics: hf/earlier.9 would be replaced by what --tensorboard writes",
    );
}

#[test]
fn damaged_events_are_continued() {
    let workspace = Workspace::new();
    workspace.train("--steps 2 --save out --tensorboard tb");
    let names = workspace.folder_entries();
    let name = names.iter().find(|name| name.contains("tfevents")).unwrap();
    let whole = workspace.read(name);
    for end in [&[0; 500][..], &whole[..30], b"\x18"] {
        workspace.write(name, &[&whole, end].concat());
        let resumed = workspace.train("--resume out --steps 3 --tensorboard tb").stderr;
        assert_contains(&resumed, &format!("({name} is damaged at byte {})", whole.len()));
        assert_eq!(Events::read(&workspace, "tb").steps.len(), 3);
        assert!(workspace.read(name) == whole);
    }
}

#[test]
fn unusable_folders_are_refused() {
    let workspace = Workspace::new();
    workspace.write("tb", b"");
    std::fs::create_dir(workspace.path("other")).unwrap();
    workspace.write("other/events.out.tfevents.1.host.7.0", b"a record");
    let before = workspace.listing();
    let run = |flags: &str| workspace.run(&format!("{SMALL} --steps 2 --metrics m.jsonl {flags}"));
    for (flags, expected) in [
        ("--tensorboard tb", "--tensorboard: cannot open tb: Not a directory"),
        (
            "--tensorboard other",
            "--tensorboard: cannot continue other/events.out.tfevents.1.host.7.0: another program has written it, and \
             TensorBoard would mix its curves with those of this run; name another folder",
        ),
        (
            "--save out --tensorboard out/latest",
            "--tensorboard: out/latest would be replaced by what --save writes",
        ),
        (
            "--tensorboard new --trace new/my.tfevents",
            "would be replaced by what --tensorboard writes to new",
        ),
        (
            "--tensorboard m.jsonl",
            "--tensorboard: is also the file of --metrics; name another folder",
        ),
        ("--tensorboard text.txt", "cannot open text.txt: Not a directory"),
    ] {
        assert_contains(run(flags).error(), expected);
        assert_eq!(workspace.listing(), before, "{flags}");
    }
}
