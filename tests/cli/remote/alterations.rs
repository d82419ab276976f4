//! Altered objects of a checkpoint: each is refused by name, and the checkpoint before is used or offered.

use crate::assert_contains;

use super::{Remote, SAVE};

/// An alteration of a set of objects; returns the name of the object that is altered.
type Alteration = Box<dyn Fn(&Remote, &str)>;

fn flip(at: f64) -> Alteration {
    Box::new(move |remote, name| {
        let mut content = remote.server.content();
        let mut bytes = content.objects[name].clone();
        let index = (bytes.len() as f64 * at) as usize;
        bytes[index] ^= 4;
        content.set(name.to_owned(), bytes);
    })
}

fn cut(left: f64) -> Alteration {
    Box::new(move |remote, name| {
        let mut content = remote.server.content();
        let bytes = &content.objects[name];
        let bytes = bytes[..(bytes.len() as f64 * left) as usize].to_vec();
        content.set(name.to_owned(), bytes);
    })
}

/// Replaces an object by its older or other sibling.
fn replace_by(of: fn(&str, &[String]) -> String) -> Alteration {
    Box::new(move |remote, name| {
        let names = remote.server.names("");
        let mut content = remote.server.content();
        let bytes = content.objects[&of(name, &names)].clone();
        content.set(name.to_owned(), bytes);
    })
}

fn older(name: &str, names: &[String]) -> String {
    let stem = name.replace("step-00000004", "step-00000002");
    let stem = stem.split_once("-0000").map_or(stem.as_str(), |_| &stem[..stem.len().min(28)]);
    names.iter().find(|own| own.starts_with(stem)).unwrap().clone()
}

fn other(name: &str, names: &[String]) -> String {
    let is_other = |own: &&String| own.starts_with("run/step-00000004") && own.as_str() != name;
    names.iter().rfind(is_other).unwrap().clone()
}

#[test]
fn altered_objects_are_refused_by_name() {
    let remote = Remote::new();
    remote.train(&format!("--mesh fsdp=2 --steps 4 {SAVE}"));
    remote.train("--mesh fsdp=2 --steps 6 --resume s3://bucket/run --save out");
    let expected = remote.workspace.tensors("out/step-00000006");
    let saved = remote.server.content().objects.clone();
    let names = remote.server.names("");
    let altered = names.iter().filter(|name| name.starts_with("run/step-00000004/"));
    let (mut used, mut offered) = (0, 0);
    for name in altered {
        let alterations: [Alteration; 9] = [
            flip(0.0),
            flip(0.3),
            flip(0.7),
            flip(0.999),
            cut(0.0),
            cut(0.9),
            replace_by(older),
            replace_by(other),
            Box::new(|remote, name| drop(remote.server.content().objects.remove(name))),
        ];
        for (index, alter) in alterations.iter().enumerate() {
            remote.server.content().objects = saved.clone();
            alter(&remote, name);
            let line = "--mesh fsdp=2 --steps 6 --resume s3://bucket/run --save rest";
            let resumed = remote.run(line);
            let text = &resumed.stderr;
            // Without a manifest, the object is that of the step.
            let object = &name["run/".len()..];
            let step = "s3://bucket/run/step-00000004";
            assert!(text.contains(object) || text.contains(step), "{name} {index}: {text}");
            if resumed.code == Some(0) {
                assert_contains(text, "going on from s3://bucket/run/step-00000002");
                assert!(remote.workspace.tensors("rest/step-00000006") == expected);
                used += 1;
            } else {
                assert_eq!(resumed.code, Some(2), "{name} {index}: {text}");
                assert_contains(text, "such as s3://bucket/run/step-00000002");
                offered += 1;
            }
            if index % 3 > 0 {
                continue;
            }
            let named = remote.run(&line.replace("s3://bucket/run", step));
            assert_eq!(named.code, Some(2), "{name} {index}: {}", named.stderr);
        }
    }
    assert!(used >= 20 && offered >= 6, "{used} {offered}");
}

/// The object that names the newest checkpoint.
#[test]
fn an_altered_link_is_not_followed() {
    let remote = Remote::new();
    remote.train(&format!("--steps 4 {SAVE}"));
    for content in ["", "{", "{\"step\":\"4\"}", "step-00000002", "\u{0}\u{0}"] {
        remote.server.content().set("run/latest".to_owned(), content.into());
        let resumed = remote.run("--steps 4 --resume s3://bucket/run");
        assert_eq!(resumed.code, Some(0), "{content}\n{}", resumed.stderr);
        assert_contains(&resumed.stderr, "step-00000004 has 4 steps done");
        let refused = remote.run(&format!("--steps 6 {SAVE}"));
        assert_contains(
            refused.error(),
            "s3://bucket/run/latest is not the record of a run; remove it",
        );
    }
    let content = "{\"step\":8}".into();
    remote.server.content().set("run/latest".to_owned(), content);
    let resumed = remote.run("--steps 4 --resume s3://bucket/run");
    assert_contains(&resumed.stderr, "step-00000008");
    assert_contains(&resumed.stderr, "going on from s3://bucket/run/step-00000004");
}
