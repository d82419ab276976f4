//! ViT folders.

use meshwright_store::family::Family;

use super::*;

fn vit() -> VitConfig {
    VitConfig {
        hidden: 8,
        ffn: 12,
        layers: 2,
        heads: 4,
        image_size: 6,
        patch_size: 2,
        classes: 3,
        labels: ["cat", "dog", "eel"].map(str::to_owned).to_vec(),
        ..VitConfig::default()
    }
}

impl TestFamily for VitConfig {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, patch) = (self.hidden, self.patch_size);
        let embeddings = "vit.embeddings";
        let mut tensors = vec![
            (format!("{embeddings}.cls_token"), vec![1, 1, hidden]),
            (format!("{embeddings}.position_embeddings"), vec![1, self.positions(), hidden]),
            (
                format!("{embeddings}.patch_embeddings.projection.weight"),
                vec![hidden, self.channels, patch, patch],
            ),
            (format!("{embeddings}.patch_embeddings.projection.bias"), vec![hidden]),
        ];
        let mut add = |name: &str, shape: &[usize], has_bias: bool| {
            tensors.push((format!("{name}.weight"), shape.to_vec()));
            if has_bias {
                tensors.push((format!("{name}.bias"), vec![shape[0]]));
            }
        };
        for layer in 0..self.layers {
            let layer = format!("vit.encoder.layer.{layer}");
            for name in ["query", "key", "value"] {
                let name = format!("{layer}.attention.attention.{name}");
                add(&name, &[hidden, hidden], self.qkv_bias);
            }
            add(&format!("{layer}.attention.output.dense"), &[hidden, hidden], true);
            add(&format!("{layer}.intermediate.dense"), &[self.ffn, hidden], true);
            add(&format!("{layer}.output.dense"), &[hidden, self.ffn], true);
            add(&format!("{layer}.layernorm_before"), &[hidden], true);
            add(&format!("{layer}.layernorm_after"), &[hidden], true);
        }
        add("vit.layernorm", &[hidden], true);
        add("classifier", &[self.classes, hidden], true);
        tensors
    }
}

#[test]
fn vits_are_imported_as_they_are_exported() {
    for config in [
        vit(),
        VitConfig { qkv_bias: false, labels: Vec::new(), channels: 1, dropout: 0.1, ..vit() },
    ] {
        weights(export(&config).path(), &config);
    }
}

#[test]
fn a_model_without_a_classifier_gets_a_new_one() {
    let mut tensors = vit().tensors();
    tensors.retain(|(name, _)| !name.starts_with("classifier."));
    for (name, _) in &mut tensors {
        *name = name.strip_prefix("vit.").unwrap().to_owned();
    }
    for name in ["weight", "bias"] {
        tensors.push((format!("pooler.dense.{name}"), vec![8; 1 + usize::from(name == "weight")]));
    }
    let dir = tempfile::tempdir().unwrap();
    let format = HfFormat::new(&vit(), tensors.clone());
    let mut export = HfExport::create(dir.path(), &format).unwrap();
    tensors.iter().for_each(|(name, shape)| export.write(name, &values(0, shape)).unwrap());
    export.finish().unwrap();
    set(dir.path(), json!({ "architectures": ["ViTModel"] }));
    let (_, folder) = open::<VitConfig>(dir.path()).unwrap();
    let warning = folder.warning_of_new(&vit().tensors()).unwrap();
    assert!(warning.contains("`classifier.weight`, `classifier.bias`: they begin"), "{warning}");
    let warnings = folder.warnings().join("\n");
    assert!(warnings.contains("does not use 2 of the tensors, such as `pooler."), "{warnings}");
}

#[test]
fn absent_vit_settings_have_their_defaults() {
    let dir = export(&VitConfig { classes: 2, labels: Vec::new(), ..vit() });
    set(
        dir.path(),
        json!({ "num_labels": null, "image_size": null, "patch_size": null, "num_channels": null,
            "layer_norm_eps": null, "qkv_bias": null, "hidden_dropout_prob": null }),
    );
    let found = VitConfig::read(dir.path(), &[]).unwrap().config;
    let sizes = (found.image_size, found.patch_size, found.channels, found.classes);
    assert_eq!((sizes, found.positions()), ((224, 16, 3, 2), 197));
    assert_eq!((found.norm_eps, found.qkv_bias, found.dropout), (1e-12, true, 0.0));
    let new = VitConfig::new_model("vit", &SIZES, 197).unwrap();
    assert_eq!((new.head_dim(), new.ffn, new.classes, new.positions()), (6, 96, 50, 197));
}

#[test]
fn classes_follow_from_their_names() {
    let dir = export(&vit());
    set(dir.path(), json!({ "num_labels": null }));
    let found = VitConfig::read(dir.path(), &[]).unwrap().config;
    assert_eq!((found.classes, &*found.labels[1]), (3, "dog"));
}

#[test]
fn unsupported_vit_settings_are_refused() {
    for (change, reason) in [
        (json!({ "hidden_act": "relu" }), "hidden_act is \"relu\"; only \"gelu\""),
        (
            json!({ "attention_probs_dropout_prob": 1.0 }),
            "attention_probs_dropout_prob must be below 1, not 1",
        ),
        (
            json!({ "num_attention_heads": 3 }),
            "num_attention_heads 3 does not divide hidden_size 8",
        ),
        (json!({ "image_size": 7 }), "patch_size 2 does not divide image_size 7"),
        (json!({ "image_size": [6, 6] }), "image_size must be a whole number of at least 1"),
        (json!({ "image_size": 131_072 }), "image_size is 131072; at most 65536 pixels"),
        (json!({ "num_channels": 4_000_000 }), "num_channels is 4000000; at most 1024"),
        (json!({ "num_channels": 0 }), "num_channels must be a whole number of at least 1, not 0"),
        (json!({ "num_labels": 4 }), "num_labels is 4, but id2label names 3 classes"),
        (json!({ "id2label": { "1": "a" } }), "id2label has 1 classes, but none of number 0"),
        (json!({ "id2label": { "0": 3 } }), "id2label.0 must be text, not 3"),
        (json!({ "id2label": [] }), "id2label must be an object, not []"),
        (json!({ "hidden_dropout_prob": 1.0 }), "hidden_dropout_prob must be below 1, not 1"),
        (json!({ "layer_norm_eps": "x" }), "layer_norm_eps must be a number of at least 0"),
        (json!({ "qkv_bias": 1 }), "qkv_bias must be true or false, not 1"),
        (json!({ "use_mask_token": true }), "\"use_mask_token\" is true: this program does not"),
        (json!({ "model_type": "deit" }), "deit"),
        (json!({ "num_hidden_layers": 3 }), "vit.encoder.layer.2."),
    ] {
        let dir = export(&vit());
        set(dir.path(), change);
        let text = refusal_of::<VitConfig>(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}
