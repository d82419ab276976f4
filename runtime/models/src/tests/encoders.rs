//! Folders of BERT and ModernBERT.

use meshwright_store::family::Family;

use super::*;
use crate::encoders::{
    ClassLabels, ClassOfSequence, ClassOfToken, EncoderUse, HeadKind, MaskedTokens,
};
use crate::modernbert::Pooling;

impl<U: EncoderUse> TestFamily for BertConfig<U> {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, ffn) = (self.hidden, self.ffn);
        let mut tensors = Vec::new();
        for (name, rows) in
            [("word", self.vocab), ("token_type", self.token_types), ("position", self.positions)]
        {
            let name = format!("bert.embeddings.{name}_embeddings.weight");
            tensors.push((name, vec![rows, hidden]));
        }
        let mut add = |name: &str, shape: &[usize]| {
            tensors.push((format!("{name}.weight"), shape.to_vec()));
            tensors.push((format!("{name}.bias"), vec![shape[0]]));
        };
        add("bert.embeddings.LayerNorm", &[hidden]);
        for layer in 0..self.layers {
            let layer = format!("bert.encoder.layer.{layer}");
            for name in ["self.query", "self.key", "self.value", "output.dense"] {
                add(&format!("{layer}.attention.{name}"), &[hidden, hidden]);
            }
            add(&format!("{layer}.attention.output.LayerNorm"), &[hidden]);
            add(&format!("{layer}.intermediate.dense"), &[ffn, hidden]);
            add(&format!("{layer}.output.dense"), &[hidden, ffn]);
            add(&format!("{layer}.output.LayerNorm"), &[hidden]);
        }
        if U::KIND == HeadKind::MaskedTokens {
            add("cls.predictions.transform.dense", &[hidden, hidden]);
            add("cls.predictions.transform.LayerNorm", &[hidden]);
            tensors.push(("cls.predictions.bias".into(), vec![self.vocab]));
            return tensors;
        }
        if U::KIND == HeadKind::Sequence {
            add("bert.pooler.dense", &[hidden, hidden]);
        }
        add("classifier", &[self.labels.count(), hidden]);
        tensors
    }
}

impl<U: EncoderUse> TestFamily for ModernBertConfig<U> {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, ffn) = (self.hidden, self.ffn);
        let embedding = "model.embeddings.tok_embeddings.weight";
        let mut tensors = vec![(embedding.to_owned(), vec![self.vocab, hidden])];
        let mut add = |name: &str, shape: &[usize], has_bias: bool| {
            tensors.push((format!("{name}.weight"), shape.to_vec()));
            if has_bias {
                tensors.push((format!("{name}.bias"), vec![shape[0]]));
            }
        };
        add("model.embeddings.norm", &[hidden], self.norm_bias);
        for layer in 0..self.layers {
            let mut add = |name: &str, shape: &[usize], has_bias| {
                add(&format!("model.layers.{layer}.{name}"), shape, has_bias);
            };
            if layer > 0 {
                add("attn_norm", &[hidden], self.norm_bias);
            }
            add("attn.Wqkv", &[3 * hidden, hidden], self.attention_bias);
            add("attn.Wo", &[hidden, hidden], self.attention_bias);
            add("mlp_norm", &[hidden], self.norm_bias);
            add("mlp.Wi", &[2 * ffn, hidden], self.mlp_bias);
            add("mlp.Wo", &[hidden, ffn], self.mlp_bias);
        }
        add("model.final_norm", &[hidden], self.norm_bias);
        add("head.dense", &[hidden, hidden], self.classifier_bias);
        add("head.norm", &[hidden], self.norm_bias);
        if U::KIND != HeadKind::MaskedTokens {
            add("classifier", &[self.labels.count(), hidden], true);
            return tensors;
        }
        if !self.tied {
            tensors.push(("decoder.weight".into(), vec![self.vocab, hidden]));
        }
        if self.decoder_bias {
            tensors.push(("decoder.bias".into(), vec![self.vocab]));
        }
        tensors
    }
}

fn bert<U>() -> BertConfig<U> {
    BertConfig {
        hidden: 8,
        ffn: 12,
        layers: 2,
        heads: 2,
        vocab: 10,
        positions: 6,
        padding: Some(0),
        ..BertConfig::default()
    }
}

fn modernbert<U>() -> ModernBertConfig<U> {
    ModernBertConfig {
        hidden: 8,
        ffn: 12,
        layers: 3,
        heads: 2,
        vocab: 10,
        slides: vec![false, true, true],
        max_positions: 6,
        padding: Some(3),
        ..ModernBertConfig::default()
    }
}

#[test]
fn encoders_are_imported_as_they_are_exported() {
    assert_imports(&bert::<MaskedTokens>());
    let labels = ClassLabels::named(["good", "bad", "ugly"]);
    assert_imports(&BertConfig { labels: labels.clone(), ..bert::<ClassOfSequence>() });
    assert_imports(&BertConfig { labels: ClassLabels::numbered(1), ..bert::<ClassOfSequence>() });
    assert_imports(&BertConfig { labels: labels.clone(), ..bert::<ClassOfToken>() });
    assert_imports(&modernbert::<MaskedTokens>());
    let biased = ModernBertConfig {
        attention_bias: true,
        mlp_bias: true,
        norm_bias: true,
        classifier_bias: true,
        decoder_bias: false,
        tied: false,
        slides: vec![true, false, true],
        ..modernbert::<MaskedTokens>()
    };
    assert_imports(&biased);
    let pooling = Pooling::Mean;
    assert_imports(&ModernBertConfig { labels, pooling, ..modernbert::<ClassOfSequence>() });
    assert_imports(&modernbert::<ClassOfToken>());
}

/// Training begins with the encoder of a masked language model.
#[test]
fn heads_of_other_tasks_are_left_out_and_those_of_this_one_are_new() {
    let dir = export(&bert::<MaskedTokens>());
    let (config, folder) = HfFolder::open::<BertConfig<ClassOfSequence>>(dir.path(), &[]).unwrap();
    assert_eq!(config.labels, ClassLabels::numbered(2));
    let tensors = config.tensors();
    folder.check_tensors(&tensors).unwrap();
    let [unused] = folder.warnings() else { panic!("one warning") };
    assert!(unused.contains("the model does not use 5 of the tensors"), "{unused}");
    assert_eq!(
        folder.warning_of_new(&tensors).unwrap(),
        "the folder does not have `bert.pooler.dense.weight`, `bert.pooler.dense.bias`, `classifier.weight`, \
         `classifier.bias`: they begin with new values"
    );
    let is_new = |name: &str| folder.is_new(name);
    assert!(is_new("classifier.bias") && !is_new("bert.embeddings.word_embeddings.weight"));
    // The encoder has to be there.
    let file = dir.path().join("model.safetensors");
    let mut stored = f32_tensors(&bert::<MaskedTokens>());
    stored.remove(0);
    write_weights(&file, &stored);
    let text = refusal_of::<BertConfig<ClassOfSequence>>(dir.path());
    assert!(text.contains("missing: bert.embeddings.word_embeddings.weight"), "{text}");

    let dir = export(&modernbert::<MaskedTokens>());
    let opened = HfFolder::open::<ModernBertConfig<ClassOfToken>>(dir.path(), &[]);
    let (config, folder) = opened.unwrap();
    folder.check_tensors(&config.tensors()).unwrap();
    let new = folder.warning_of_new(&config.tensors()).unwrap();
    assert!(new.contains("`classifier.weight`, `classifier.bias`: they begin"), "{new}");
}

#[test]
fn labels_of_a_new_head_replace_those_of_the_folder() {
    let named = |names: &[&str]| BertConfig {
        labels: ClassLabels::named(names.iter().copied()),
        ..bert::<ClassOfSequence>()
    };
    let dir = export(&named(&["good", "bad", "ugly"]));
    let opened = HfFolder::open::<BertConfig<ClassOfSequence>>(dir.path(), &[]);
    let (_, folder) = opened.unwrap();
    let config = named(&["no", "yes"]);
    let format = HfFormat::new(&config, config.tensors()).with_keys_of(&folder);
    let again = tempfile::tempdir().unwrap();
    write(again.path(), &config, &format);
    let opened = HfFolder::open::<BertConfig<ClassOfSequence>>(again.path(), &[]);
    assert_eq!(opened.unwrap().0.labels, config.labels);
}

/// Names of old folders and of a model without a head, and a stored head that is tied.
#[test]
fn other_names_of_bert_tensors_are_understood() {
    let plain = bert::<MaskedTokens>();
    let dir = export(&plain);
    let file = dir.path().join("model.safetensors");
    let mut tensors = f32_tensors(&plain);
    for tensor in &mut tensors {
        let old = [("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")];
        for (new, old) in old {
            tensor.0 = tensor.0.replace(new, old);
        }
    }
    let (embedding, bias) = (tensors[0].3.clone(), tensors.last().unwrap().3.clone());
    let decoder = |name: &str| format!("cls.predictions.decoder.{name}");
    tensors.push((decoder("weight"), Dtype::F32, vec![10, 8], embedding));
    tensors.push((decoder("bias"), Dtype::F32, vec![10], bias));
    write_weights(&file, &tensors);
    assert!(weights(dir.path(), &plain).warnings().is_empty());
    tensors[0].3[0] ^= 1;
    write_weights(&file, &tensors);
    let text = refusal_of::<BertConfig>(dir.path());
    let reason = "differs from `bert.embeddings.word_embeddings.weight`, which a bert takes for its head; remove the \
                  one that is not used from the folder";
    assert!(text.contains(reason), "{text}");

    let tokens = bert::<ClassOfToken>();
    let mut tensors = f32_tensors(&tokens);
    tensors.truncate(tensors.len() - 2);
    tensors.iter_mut().for_each(|tensor| tensor.0 = tensor.0.replacen("bert.", "", 1));
    let dir = export(&tokens);
    write_weights(&dir.path().join("model.safetensors"), &tensors);
    set(dir.path(), json!({ "architectures": ["BertModel"] }));
    let (_, folder) = open::<BertConfig<ClassOfToken>>(dir.path()).unwrap();
    assert!(folder.is_new("classifier.weight"));
}

#[test]
fn keys_of_other_encoders_are_refused() {
    for (change, reason) in [
        (json!({ "position_embedding_type": "relative_key" }), "position_embedding_type is"),
        (json!({ "hidden_act": "relu" }), "hidden_act is \"relu\""),
        (json!({ "is_decoder": true }), "is_decoder is true; only false is supported"),
        (json!({ "tie_word_embeddings": false }), "tie_word_embeddings is false"),
        (
            json!({ "num_attention_heads": 3 }),
            "num_attention_heads 3 does not divide hidden_size 8",
        ),
        (json!({ "pad_token_id": 10 }), "pad_token_id is 10, but the embedding has 10 rows"),
        (json!({ "hidden_dropout_prob": 1 }), "hidden_dropout_prob must be below 1, not 1"),
        (json!({ "type_vocab_size": "two" }), "type_vocab_size must be"),
        (json!({ "residual_multiplier": 0.5 }), "\"residual_multiplier\" is 0.5"),
        (json!({ "architectures": ["BertForMultipleChoice"] }), "\"architectures\" is"),
    ] {
        let dir = export(&bert::<MaskedTokens>());
        set(dir.path(), change);
        let text = refusal_of::<BertConfig>(dir.path());
        assert!(text.contains("config.json: ") && text.contains(reason), "no `{reason}` in {text}");
    }
    for (change, reason) in [
        (json!({ "hidden_activation": "silu" }), "hidden_activation is \"silu\""),
        (json!({ "mlp_dropout": 0.1 }), "mlp_dropout is 0.1; only 0 is supported"),
        (json!({ "rope_scaling": { "factor": 2.0 } }), "rope_scaling is {\"factor\":2.0}"),
        (json!({ "layer_types": ["full_attention"] }), "layer_types has 1 entries"),
        (json!({ "num_attention_heads": 8 }), "num_attention_heads 8 makes heads 1 wide"),
        (json!({ "local_attention": 0 }), "local_attention must be"),
        (json!({ "classifier_pooling": "max" }), "classifier_pooling is \"max\""),
        (json!({ "local_rope_theta": 0 }), "local_rope_theta"),
    ] {
        let dir = export(&modernbert::<MaskedTokens>());
        set(dir.path(), json!({ "rope_parameters": null }));
        set(dir.path(), change);
        let text = refusal_of::<ModernBertConfig>(dir.path());
        assert!(text.contains("config.json: ") && text.contains(reason), "no `{reason}` in {text}");
    }
}

/// Files before version 5 of `transformers`.
#[test]
fn windows_and_bases_have_older_keys() {
    let dir = export(&modernbert::<MaskedTokens>());
    let older = json!({
        "rope_parameters": null, "layer_types": null, "global_attn_every_n_layers": 2, "local_rope_theta": 77,
        "global_rope_theta": 99, "position_embedding_type": "absolute", "layer_norm_eps": 1e-5,
    });
    set(dir.path(), older);
    let config = ModernBertConfig::<MaskedTokens>::read(dir.path(), &[]).unwrap().config;
    assert_eq!(config.slides, [false, true, false]);
    assert_eq!((config.rope.theta, config.local_rope.theta), (99.0, 77.0));
}

#[test]
fn new_encoders_follow_from_flags() {
    let sizes = ModelSizes { tied: true, ..SIZES };
    let bert = BertConfig::<MaskedTokens>::new_model("bert", &sizes, 16).unwrap();
    assert_eq!((bert.ffn, bert.outline().longest, bert.dropout.hidden), (96, Some(16), 0.0));
    let modern = ModernBertConfig::<MaskedTokens>::new_model("modernbert", &SIZES, 16).unwrap();
    assert_eq!((modern.ffn, modern.slides, modern.tied), (36, vec![false, true], true));
    let dir = export(&self::bert::<MaskedTokens>());
    set(dir.path(), json!({ "attention_probs_dropout_prob": null }));
    let file = BertConfig::<MaskedTokens>::read(dir.path(), &[]).unwrap();
    assert!(file.warnings.is_empty(), "{:?}", file.warnings);
    assert_eq!(file.config.backbone_sizes().attention.dropout, 0.1);
}
