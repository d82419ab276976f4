//! Training on text with a `tokenizer.json`.

use crate::{SMALL, Workspace, assert_contains};

#[cfg(not(feature = "tokenizers"))]
#[test]
fn a_build_without_tokenizers_names_the_feature() {
    let workspace = Workspace::new();
    workspace.write("tokenizer.json", b"{}");
    let finished = workspace.run(&format!("{SMALL} --tokenizer tokenizer.json"));
    assert_contains(finished.error(), "--tokenizer: tokenizer.json needs a program");
    assert_contains(finished.error(), "--features tokenizers");
    // Text for a model with its own tokenizer is not silently read as bytes.
    workspace.train("--vocab 300 --steps 1 --export-hf model");
    workspace.write("model/tokenizer.json", b"{}");
    let on_model = "--init-from model --seq 16 --batch 4 --steps 1 --threads 1 --sample-tokens 2";
    let finished = workspace.run(&format!("{on_model} --data text.txt"));
    assert_contains(finished.error(), "--tokenizer: model/tokenizer.json needs a program");
    let finished = workspace.run(&format!("{on_model} --data text.txt --tokenizer bytes"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    // Token ids need no tokenizer, and are printed as numbers.
    let ids: Vec<u8> = (0..300u16).flat_map(|id| (id % 290).to_le_bytes()).collect();
    workspace.write("ids.bin", &ids);
    let finished = workspace.run(&format!("{on_model} --data ids.bin"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_contains(&finished.stdout, "--- prompt ---\n0 1 2 3");
}

#[test]
fn the_byte_tokenizer_can_be_selected() {
    let workspace = Workspace::new();
    let losses = workspace.losses("--steps 3");
    assert_eq!(workspace.losses("--steps 3 --tokenizer bytes"), losses);
    let finished = workspace.run(&format!("{SMALL} --tokenizer none.json"));
    assert_contains(finished.error(), "--tokenizer: none.json cannot be used: No such file");
}

#[cfg(feature = "tokenizers")]
mod with_files {
    use meshwright::data::{Encoding, TextDocuments, Tokenizer, tokenize_files};

    use super::test_tokenizer::{tokenizer_json, write};
    use super::*;

    /// Creates a workspace with a `tokenizer.json` of 265 ids.
    fn workspace() -> Workspace {
        let workspace = Workspace::new();
        write(workspace.dir.path(), &tokenizer_json());
        workspace
    }

    const TOKENIZED: &str = "--tokenizer tokenizer.json --vocab 265";

    #[test]
    fn text_trains_like_its_token_file() {
        let workspace = workspace();
        let tokenizer = Tokenizer::open(&workspace.path("tokenizer.json")).unwrap();
        let (inputs, output) = ([workspace.path("text.txt")], workspace.path("text.bin"));
        let documents = TextDocuments::default();
        let width = Encoding::U16;
        tokenize_files(&tokenizer, &inputs, &documents, &output, width, &mut |_| ()).unwrap();

        let losses = workspace.losses(&format!("{TOKENIZED} --steps 4"));
        for mesh in ["1", "dp=2", "tp=2", "dp=2,tp=2"] {
            let line = format!("{TOKENIZED} --steps 4 --mesh {mesh}");
            crate::assert_close(&workspace.losses(&line), &losses, 1e-4);
        }
        let line = SMALL.replace("text.txt", "text.bin");
        let finished =
            workspace.run(&format!("{line} --vocab 265 --steps 4 --metrics losses.jsonl"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert_eq!(crate::numbers(&workspace.metrics("losses.jsonl"), "loss"), losses);

        // A run on text can be resumed on its token file, and vice versa.
        workspace.train(&format!("{TOKENIZED} --steps 2 --save run"));
        let finished = workspace
            .run(&format!("{line} --vocab 265 --steps 4 --resume run/latest --metrics rest.jsonl"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert_eq!(crate::numbers(&workspace.metrics("rest.jsonl"), "loss"), losses[2..]);
    }

    /// Bytes are those of the text after the first token, which is no target.
    #[test]
    fn the_validation_loss_of_a_byte_is_known() {
        let workspace = workspace();
        let text = "the cat and the dog and the end. ".repeat(9);
        workspace.write("val.txt", text.as_bytes());
        let line = format!("{TOKENIZED} --steps 1 --eval-data val.txt --metrics m.jsonl");
        let finished = workspace.train(&line);
        let tokenizer = Tokenizer::open(&workspace.path("tokenizer.json")).unwrap();
        let ids = tokenizer.encode(text.as_bytes(), "text", 0).unwrap();
        let targets = ids.len() - 1;
        assert!(3 * targets < 2 * text.len(), "{targets} tokens, some of several bytes");
        assert_contains(&finished.stdout, &format!("; {targets} targets)\n"));
        let bytes = tokenizer.decode(&ids[1..]).len();
        let line = &workspace.metrics("m.jsonl")[0];
        let [loss, bits] =
            ["eval_loss", "eval_bits_per_byte"].map(|key| line[key].as_f64().unwrap());
        let expected = loss / 2f64.ln() * targets as f64 / bytes as f64;
        assert!((bits - expected).abs() < 1e-12, "{bits}, expected {expected}");
    }

    #[test]
    fn the_continuation_is_text() {
        let workspace = workspace();
        let text = "the cat and the dog and the end. ".repeat(40);
        workspace.write("text.txt", text.as_bytes());
        let line = SMALL.replace("--sample-tokens 0", "--sample-tokens 8");
        let finished = workspace.run(&format!("{line} {TOKENIZED} --steps 2"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert_contains(&finished.stdout, "--- prompt ---\nthe cat and the dog");
        // The continuation of token ids is decoded if a tokenizer is given.
        let ids: Vec<u8> =
            [257u16, 262, 258].repeat(20).iter().flat_map(|id| id.to_le_bytes()).collect();
        workspace.write("ids.bin", &ids);
        let line = line.replace("text.txt", "ids.bin");
        let finished = workspace.run(&format!("{line} {TOKENIZED} --steps 1"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert_contains(&finished.stdout, "--- prompt ---\nthe and thethe and the");
    }

    #[test]
    fn a_model_brings_its_tokenizer() {
        let workspace = workspace();
        workspace.write("text.txt", "the cat and the dog and the end. ".repeat(40).as_bytes());
        workspace.train(&format!("{TOKENIZED} --steps 1 --export-hf model"));
        std::fs::rename(workspace.path("tokenizer.json"), workspace.path("model/tokenizer.json"))
            .unwrap();
        let line = "--init-from model --data text.txt --seq 16 --batch 4 --steps 2 --threads 1 --sample-tokens 4 \
                    --metrics m.jsonl";
        let losses = |flags: &str| {
            let finished = workspace.run(&format!("{line} {flags}"));
            assert_eq!(finished.code, Some(0), "{}", finished.stderr);
            crate::numbers(&workspace.metrics("m.jsonl"), "loss")
        };
        let own = losses("");
        assert_eq!(losses("--tokenizer model/tokenizer.json"), own);
        assert_ne!(losses("--tokenizer bytes"), own);
    }

    /// The token that ends documents by `--documents`, else that of the tokenizer, is in both files of the export.
    #[test]
    fn an_export_states_the_end_of_texts() {
        let workspace = workspace();
        workspace.write("text.txt", "the cat and the dog and the end. ".repeat(40).as_bytes());
        let ends = |name: &str| {
            let of_file = |file: &str| -> serde_json::Value {
                let content = workspace.read(&format!("{name}/{file}"));
                serde_json::from_slice::<serde_json::Value>(&content).unwrap()["eos_token_id"]
                    .take()
            };
            ["config.json", "generation_config.json"].map(of_file)
        };
        workspace.train(&format!("{TOKENIZED} --steps 1 --export-hf plain"));
        assert_eq!(ends("plain"), [(); 2].map(|()| serde_json::Value::Null));
        workspace.write("tokenizer_config.json", b"{\"eos_token\": \"<|end|>\"}");
        workspace.train(&format!("{TOKENIZED} --steps 1 --export-hf stated --save out"));
        assert_eq!(ends("stated"), [264, 264]);
        workspace.train("--resume out --steps 1 --export-hf again");
        assert_eq!(ends("again"), [264, 264]);
        workspace.train(&format!("{TOKENIZED} --steps 1 --export-hf given --documents 32"));
        assert_eq!(ends("given"), [32, 32]);
        workspace.train("--steps 1 --export-hf bytes --documents 32");
        assert_eq!(ends("bytes"), [32, 32]);
        let trained = workspace.run(
            "--init-from plain --data text.txt --seq 16 --batch 4 --steps 1 --threads 1 --sample-tokens 0 --export-hf \
             further",
        );
        assert_eq!(trained.code, Some(0), "{}", trained.stderr);
        assert_eq!(ends("further"), ends("plain"));
    }

    /// An export has all that its use needs: the tokenizer, the defaults of generation, and enough positions.
    #[test]
    fn an_export_is_a_source_by_itself() {
        let workspace = workspace();
        let text = "the cat and the dog and the end. ".repeat(40);
        workspace.write("text.txt", text.as_bytes());
        workspace.train(&format!("{TOKENIZED} --steps 1 --export-hf model"));
        assert_eq!(workspace.read("model/tokenizer.json"), workspace.read("tokenizer.json"));
        let mut keys: serde_json::Value =
            serde_json::from_slice(&workspace.read("model/config.json")).unwrap();
        keys["max_position_embeddings"] = 8.into();
        keys["use_cache"] = false.into();
        workspace.write("model/config.json", keys.to_string().as_bytes());
        workspace.write("model/tokenizer_config.json", b"{\"eos_token\": \"<|end|>\"}");
        workspace.write("model/generation_config.json", b"{\"temperature\": 0.6}");

        let line = "--data text.txt --seq 16 --batch 4 --steps 1 --threads 1 --sample-tokens 0";
        let finished = workspace.run(&format!("{line} --init-from model --export-hf out"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let warning =
            "warning: --seq: 16 tokens are more than the 8 positions for which the model was made";
        assert_contains(&finished.stderr, warning);
        for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
            let [from, to] = ["model", "out"].map(|dir| workspace.read(&format!("{dir}/{name}")));
            assert_eq!(from, to, "{name}");
        }
        let exported: serde_json::Value =
            serde_json::from_slice(&workspace.read("out/config.json")).unwrap();
        assert_eq!(exported["max_position_embeddings"], 16);
        assert_eq!(exported["use_cache"], false);
        let finished = workspace.run(&format!("{line} --init-from out"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert!(!finished.stderr.contains("warning"), "{}", finished.stderr);
        // Ids of another meaning.
        let finished =
            workspace.run(&format!("{line} --init-from model --tokenizer bytes --export-hf bytes"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert!(!workspace.path("bytes/tokenizer.json").exists());
        assert!(workspace.path("bytes/generation_config.json").exists());
    }

    /// A `<pad>` that only the tokenizer has.
    #[test]
    fn unused_ids_beyond_the_vocabulary_are_no_problem() {
        let workspace = workspace();
        let text = "the cat and the dog and the end. ".repeat(40);
        workspace.write("text.txt", text.as_bytes());
        workspace.train(&format!("{TOKENIZED} --steps 1 --export-hf model"));
        let mut json = tokenizer_json();
        let mut pad = json["added_tokens"][0].clone();
        pad["id"] = 265.into();
        pad["content"] = "<pad>".into();
        json["added_tokens"].as_array_mut().unwrap().push(pad);
        workspace.write("model/tokenizer.json", json.to_string().as_bytes());
        let line = "--init-from model --data text.txt --seq 16 --batch 4 --steps 1 --threads 1 --sample-tokens 0";
        let finished = workspace.run(line);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        workspace.write("text.txt", format!("{text}the <pad> end").as_bytes());
        let place = format!(
            "error: --data: text.txt has the token `<pad>` of model/tokenizer.json at byte {}, whose id is 265, but \
             the vocabulary of the model is 265",
            text.len() + 4
        );
        assert_contains(workspace.run(line).error(), &place);
    }

    /// Two runs of one seed would train on other tokens.
    #[test]
    fn random_tokenizers_are_refused() {
        let workspace = workspace();
        let mut json = tokenizer_json();
        json["model"]["dropout"] = 0.1.into();
        workspace.write("tokenizer.json", json.to_string().as_bytes());
        let finished = workspace.run(&format!("{SMALL} {TOKENIZED}"));
        assert_contains(
            finished.error(),
            "--tokenizer: tokenizer.json tokenizes at random (\"dropout\" is 0.1",
        );
        // It decodes the continuation of token ids.
        let ids: Vec<u8> = (0..300u16).flat_map(|id| (id % 256).to_le_bytes()).collect();
        workspace.write("ids.bin", &ids);
        let line = SMALL.replace("text.txt", "ids.bin");
        let finished = workspace.run(&format!("{line} {TOKENIZED} --steps 1"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }

    /// The tokens are as many, and no data but the tokenizer differs.
    #[test]
    fn a_resumed_run_names_another_tokenizer() {
        let workspace = workspace();
        workspace.train(&format!("{TOKENIZED} --steps 2 --save run"));
        let json = String::from_utf8(workspace.read("tokenizer.json")).unwrap();
        let mut other: serde_json::Value = serde_json::from_str(&json).unwrap();
        // Two tokens exchange their ids.
        let vocab = other["model"]["vocab"].as_object_mut().unwrap();
        let [first, second] = ["1", "2"].map(|token| vocab[token].clone());
        vocab["1"] = second;
        vocab["2"] = first;
        workspace.write("other.json", other.to_string().as_bytes());
        let resumed = |tokenizer: &str, flags: &str| {
            workspace.run(&format!(
                "{SMALL} --tokenizer {tokenizer} --vocab 265 --steps 4 --resume run {flags}"
            ))
        };
        let finished = resumed("other.json", "");
        let names = |name: &str| {
            let tokenizer = Tokenizer::open(&workspace.path(name)).unwrap();
            format!("{name} (XXH3 {})", tokenizer.record().xxh3.unwrap())
        };
        let [saved, now] = ["tokenizer.json", "other.json"].map(names);
        assert_ne!(saved, now);
        let error = finished.error();
        assert_contains(error, &format!("\n  - --tokenizer: {now} with "));
        assert_contains(error, &format!(" tokens of text.txt, but {saved} with "));
        assert_contains(error, "tokens of text.txt was saved; use the tokenizer of the saved run");
        assert!(!error.contains("--data: "), "{error}");
        let bytes = resumed("bytes", "");
        assert_contains(bytes.error(), "\n  - --tokenizer: bytes with ");
        // The same tokenizer by another name, with a file of another format.
        workspace.write("moved.json", format!("{json}\n").as_bytes());
        assert_eq!(resumed("moved.json", "").code, Some(0));
        // The data themselves.
        workspace.write("text.txt", &workspace.read("text.txt").to_ascii_uppercase());
        assert_contains(resumed("tokenizer.json", "").error(), "\n  - --data: text.txt with ");
    }

    #[test]
    fn mismatched_tokenizers_are_refused_before_training() {
        let workspace = workspace();
        let error = |line: &str| workspace.run(&format!("{SMALL} {line}")).error().to_owned();
        let found = error("--tokenizer tokenizer.json --vocab 256");
        assert_contains(
            &found,
            "tokenizer.json has token ids up to 264, but the vocabulary of the model is 256",
        );
        assert_contains(&found, "a new model needs --vocab 265");
        // Which it has by default.
        let finished = workspace.run(&format!("{SMALL} --tokenizer tokenizer.json --steps 1"));
        assert_contains(&finished.stderr, "vocabulary 265");
        workspace.write("bad.json", b"{\"model\": 3}");
        assert_contains(&error("--tokenizer bad.json"), "--tokenizer: bad.json cannot be used: ");
        workspace.write("text.txt", b"abc\xff\xfe");
        assert_contains(&error(TOKENIZED), "text.txt is not UTF-8 text, at byte 3");
        workspace.write("text.txt", b"");
        assert_contains(&error(TOKENIZED), "text.txt is empty");
        std::fs::remove_file(workspace.path("text.txt")).unwrap();
        assert_contains(&error(TOKENIZED), "--data: cannot read text.txt: No such file");
    }
}

#[cfg(feature = "tokenizers")]
#[allow(dead_code, reason = "not all of it is needed here")]
#[path = "../../runtime/tokenize/src/test_tokenizer.rs"]
mod test_tokenizer;
