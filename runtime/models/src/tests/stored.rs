//! Tensors as folders store them: in several files, in half precision, and tensors that the model does not have.

use super::*;

#[test]
fn shards_and_half_precision_are_read() {
    let config = config(false);
    let dir = export(&config);
    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    let mut tensors = f32_tensors(&config);
    let half = |values: Vec<f32>| {
        values.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect::<Vec<_>>()
    };
    let bf16 = |values: Vec<f32>| {
        values.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect::<Vec<_>>()
    };
    let shape = tensors[1].2.clone();
    (tensors[1].1, tensors[1].3) = (Dtype::F16, half(values(1, &shape)));
    let shape = tensors[2].2.clone();
    (tensors[2].1, tensors[2].3) = (Dtype::BF16, bf16(values(2, &shape)));
    let (first, second) = tensors.split_at(7);
    write_weights(&dir.path().join("model-1.safetensors"), first);
    write_weights(&dir.path().join("model-2.safetensors"), second);
    let file = |i: usize| if i < 7 { "model-1.safetensors" } else { "model-2.safetensors" };
    let map: serde_json::Map<_, _> =
        tensors.iter().enumerate().map(|(i, tensor)| (tensor.0.clone(), json!(file(i)))).collect();
    let index = dir.path().join("model.safetensors.index.json");
    fs::write(&index, json!({ "weight_map": map }).to_string()).unwrap();

    let folder = weights(dir.path(), &config);
    for (i, (name, shape)) in config.tensors().iter().enumerate() {
        let expected: Vec<f32> = values(i, shape)
            .into_iter()
            .map(|x| match i {
                1 => half::f16::from_f32(x).to_f32(),
                2 => half::bf16::from_f32(x).to_f32(),
                _ => x,
            })
            .collect();
        assert_eq!(folder.read(name, shape, &TensorBox::whole(shape)).unwrap(), expected, "{name}");
    }

    fs::remove_file(dir.path().join("model-2.safetensors")).unwrap();
    let text = refusal(dir.path());
    let reason =
        "index.json: the folder lacks 1 of the 2 files that it names, such as model-2.safetensors;";
    assert!(text.contains(reason), "{text}");
    write_weights(&dir.path().join("model-2.safetensors"), &tensors[6..]);
    let text = refusal(dir.path());
    assert!(
        text.contains("model-2.safetensors: tensor `") && text.contains("is also in"),
        "{text}"
    );
    for (content, reason) in [
        ("{", "not an index"),
        ("{\"weight_map\": {}}", "the weight_map is empty"),
        ("{\"weight_map\": {\"a\": \"../x\"}}", "`../x` is not the name of a file of this folder"),
    ] {
        fs::write(&index, content).unwrap();
        let text = refusal(dir.path());
        assert!(text.contains("index.json") && text.contains(reason), "{text}");
    }
}

/// A stored head is never left out unseen, wherever it is stored.
#[test]
fn stored_heads_that_differ_are_used() {
    assert_unties(&config(true), &config(false));
    assert_unties(&mixtral::mixtral(true), &mixtral::mixtral(false));
}

#[track_caller]
fn assert_unties<C: TestFamily + PartialEq + std::fmt::Debug>(tied: &C, untied: &C) {
    let dir = export(tied);
    let tensors = f32_tensors(tied);
    let mut head = values(0, &[10, 8]);
    head[79] += 0.5;
    let head = [("lm_head.weight".to_owned(), Dtype::F32, vec![10, 8], f32_bytes(head.clone()))];
    let assert_untied = |prefix: &str| {
        let folder = weights(dir.path(), untied);
        let read = folder.read("lm_head.weight", &[10, 8], &TensorBox::whole(&[10, 8])).unwrap();
        assert_eq!(f32_bytes(read), head[0].3);
        let [warning] = folder.warnings() else { panic!("one warning") };
        let names =
            format!("`{prefix}lm_head.weight` differs from `{prefix}model.embed_tokens.weight`");
        assert!(warning.contains(&names), "{warning}");
    };
    let mut all = [&tensors[..], &head].concat();
    write_weights(&dir.path().join("model.safetensors"), &all);
    assert_untied("");
    all.iter_mut().for_each(|tensor| tensor.0.insert_str(0, "module."));
    write_weights(&dir.path().join("model.safetensors"), &all);
    assert_untied("module.");

    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    write_weights(&dir.path().join("a.safetensors"), &tensors);
    write_weights(&dir.path().join("b.safetensors"), &head);
    let mut map: serde_json::Map<_, _> =
        tensors.iter().map(|(name, ..)| (name.clone(), json!("a.safetensors"))).collect();
    map.insert("lm_head.weight".into(), json!("b.safetensors"));
    let index = json!({ "weight_map": map });
    fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    assert_untied("");
}

#[test]
fn other_weights_are_refused_by_tensor() {
    let config = config(false);
    let dir = export(&config);
    let weights = dir.path().join("model.safetensors");
    let refused_with = |tensors: &[_]| {
        write_weights(&weights, tensors);
        refusal(dir.path())
    };
    let tensors = f32_tensors(&config);

    let mut other = tensors.clone();
    other[2] = ("model.extra".into(), Dtype::F32, vec![1], vec![0; 4]);
    let text = refused_with(&other);
    let q = "model.layers.0.self_attn.q_proj.weight";
    let listed =
        format!("has other sizes or settings:\n  - missing: {q}\n  - unexpected: model.extra");
    assert!(text.contains(&listed), "{text}");

    let mut other = tensors.clone();
    other[2].2 = vec![8, 16];
    let text = refused_with(&other);
    let expected = format!("other sizes or settings:\n  - {q} has shape [8, 16], expected [16, 8]");
    assert!(text.contains(&expected), "{text}");

    let mut other = tensors.clone();
    other[2].1 = Dtype::I32;
    let text = refused_with(&other);
    assert!(
        text.contains(&format!("tensor `{q}` has dtype I32; only F32, F16 and BF16")),
        "{text}"
    );

    write_weights(&weights, &tensors);
    let content = fs::read(&weights).unwrap();
    fs::write(&weights, &content[..content.len() - 9]).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains("model.safetensors is damaged") && text.contains("truncated"), "{text}");

    fs::remove_file(&weights).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains("neither model.safetensors nor model.safetensors.index.json"), "{text}");
    fs::write(dir.path().join("config.json"), "{").unwrap();
    assert!(refusal(dir.path()).contains("config.json: not JSON"), "{}", refusal(dir.path()));
    fs::remove_file(dir.path().join("config.json")).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains("cannot read") && text.contains("config.json"), "{text}");
    let text = refusal(&dir.path().join("missing"));
    assert!(text.contains("missing: there is no such folder"), "{text}");
}
