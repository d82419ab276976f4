//! A ViT: one step, training on meshes, a round trip of its folder, and changed keys.

use std::fs;
use std::path::Path;

use meshwright::checkpoint::hf::{HfConfig, HfFolder};
use meshwright::models::vit::{Images, Vit, VitConfig, cut_patches};
use meshwright::nn::build;
use meshwright::state_dict::HfMapping;
use meshwright::tasks::ImageClassification;
use meshwright::tensor::{Rank, Targets};
use meshwright::train::{Config, FamilyModel, Summary, TaskTrainer, import_hf};
use meshwright_tests::compare::{Report, assert_same_bits, distance, scalar_distance};
use meshwright_tests::run::on_mesh;
use serde_json::{Map, Value};

use super::families::config_of;
use super::mutations::{last_part, write_config};
use super::{Case, GRADIENT, LOGITS, LOSS, TRAIN_LOSS, TRAIN_NORM, as_stored, weights_of};

#[test]
fn vit() {
    let case = Case::open("vit");
    let mut report = Report::default();
    check_one_step(&case, &mut report);
    for mesh in ["1", "fsdp=2,tp=2"] {
        let out = tempfile::tempdir().unwrap();
        let steps = case.number("steps") as usize;
        let (losses, norms) = train(&case, mesh, out.path(), steps, case.number("lr"));
        let label = format!("vit on {mesh}");
        let expected = case.numbers("train_losses");
        report.scalars("training loss", &label, &losses, &expected, TRAIN_LOSS);
        let expected = case.numbers("train_grad_norms");
        report.scalars("gradient norm", &label, &norms, &expected, TRAIN_NORM);
    }
    check_round_trip(&case);
    report.print();
}

/// Images of a global batch, as the values of their patches, and their classes.
struct Batch {
    patches: Vec<f32>,
    labels: Vec<u32>,
}

impl Batch {
    /// Cuts images of `[image, channel, row, column]` into patches.
    fn of_pixels(config: &VitConfig, pixels: &[f32], labels: Vec<u32>) -> Batch {
        let len = pixels.len() / labels.len();
        let mut patches = vec![0.0; pixels.len()];
        for (image, patches) in pixels.chunks(len).zip(patches.chunks_mut(len)) {
            cut_patches(config, image, patches);
        }
        Batch { patches, labels }
    }

    /// Returns this rank's images and classes.
    fn on(
        &self,
        rank: &Rank,
        config: &VitConfig,
    ) -> (Images, Targets<(meshwright::models::vit::Batch,)>) {
        let sizes = [self.labels.len(), config.patches(), config.pixels()];
        let at = |at: &[usize]| self.patches[(at[0] * sizes[1] + at[1]) * sizes[2] + at[2]];
        let labels = Targets::from_fn(rank, &sizes[..1], |at| self.labels[at[0]]);
        (Images::from_fn(rank, &sizes, at), labels)
    }
}

/// Returns the batch of the first step.
fn first_batch(case: &Case, config: &VitConfig) -> Batch {
    Batch::of_pixels(config, &case.floats["pixels"], case.ids["labels"].clone())
}

/// Compares logits, loss and all gradients of the loaded model.
fn check_one_step(case: &Case, report: &mut Report) {
    let (config, folder) = HfFolder::open::<VitConfig>(&case.folder, &[]).unwrap();
    let (sizes, names) = (Vit::dim_sizes(&config), Vit::tensor_names(&config));
    let batch = first_batch(case, &config);
    let (logits, loss, mut gradients) = on_mesh("1", 1, |rank| {
        let built = build::<Vit>(rank, &sizes).unwrap();
        let params = built.params();
        folder.check_tensors(&HfMapping::new(&names, &params).unwrap().shapes()).unwrap();
        import_hf(&folder, &names, &params).unwrap();
        let (images, labels) = batch.on(rank, &config);
        let classifier = &built.model.classifier;
        let logits = rank.evaluate(|| classifier.logits(&built.model.forward(&images)));
        let loss = classifier.loss(&built.model.forward(&images), &labels);
        let mean = loss.reduce().value();
        let gradients = loss.backward().reduce();
        let stored = as_stored(&names, &params, |param| gradients.gather(param));
        (logits.to_local_vec(), mean, stored)
    })
    .remove(0);
    report.note("logits", "vit", distance(&logits, &case.floats["logits"]), LOGITS);
    report.note("loss", "vit", scalar_distance(loss, case.number("loss")), LOSS);
    // A bias of all keys does not reach a softmax: its gradient is noise.
    let mut expected = case.with_prefix("grad.");
    assert_eq!(gradients.len(), expected.len(), "gradients expected");
    for tensors in [&mut gradients, &mut expected] {
        tensors.retain(|name, _| !name.ends_with("attention.key.bias"));
    }
    report.tensors("gradient", "vit", &gradients, &expected, GRADIENT);
}

/// Trains by the trainer on a mesh, and writes the model to `out`; returns losses, and norms of gradients.
fn train(case: &Case, mesh: &str, out: &Path, steps: usize, lr: f64) -> (Vec<f64>, Vec<f64>) {
    let number = |key: &str| case.number(key).to_string();
    let betas = case.numbers("betas");
    let folder = case.folder.display().to_string();
    let words = [
        format!(
            "train --init-from {folder} --data {folder}/train.jsonl --order sequential --mesh {mesh}"
        ),
        format!(
            "--batch {} --seq 10 --steps {steps} --lr {lr} --eps {}",
            number("batch"),
            number("eps")
        ),
        format!("--betas {},{} --clip {}", betas[0], betas[1], number("clip")),
        format!("--weight-decay {} --export-hf {}", number("weight_decay"), out.display()),
    ];
    let words = words.join(" ");
    let config = Config::parse(words.split_whitespace()).unwrap();
    let trainer = TaskTrainer::<ImageClassification>::new(config).unwrap();
    let Summary { losses, grad_norms, .. } = trainer.train().unwrap();
    (losses, grad_norms)
}

/// Checks that a folder that is imported and exported has the same tensors and keys.
fn check_round_trip(case: &Case) {
    let out = tempfile::tempdir().unwrap();
    train(case, "fsdp=2,tp=2", out.path(), 1, 0.0);
    assert_same_bits("imported and exported", &weights_of(out.path()), &weights_of(&case.folder));
    assert_eq!(shapes_of(out.path()), shapes_of(&case.folder));
    let [got, expected] = [out.path(), &case.folder].map(config_of);
    for (key, value) in expected {
        assert_eq!(got.get(&key), Some(&value), "`{key}`");
    }
    let read = |folder: &Path| VitConfig::read(folder, &[]).unwrap().config;
    assert_eq!(read(out.path()), read(&case.folder));
}

fn shapes_of(folder: &Path) -> Map<String, Value> {
    let bytes = fs::read(folder.join("model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let shape = |(name, tensor): (String, safetensors::tensor::TensorView<'_>)| {
        (name, Value::from(tensor.shape().to_vec()))
    };
    tensors.tensors().into_iter().map(shape).collect()
}

#[test]
fn changed_keys_of_a_vit_have_the_loss_of_pytorch_or_are_refused() {
    let case = Case::open("vit");
    let table = fs::read(case.folder.join("mutations.json")).expect("mutations.json is there");
    let table: Vec<Value> = serde_json::from_slice(&table).expect("mutations.json is JSON");
    for row in &table {
        let (mutation, keys) = (&row["mutation"], row["keys"].as_object().expect("an object"));
        if keys.is_empty() {
            continue;
        }
        match loss_with(&case, keys) {
            Ok(loss) => {
                let distance = scalar_distance(loss, row["loss"].as_f64().expect("a loss"));
                assert!(distance < 2.0 * LOSS, "{mutation}: off by {distance:.1e}");
            }
            Err(reason) => {
                println!("{mutation}: {reason}");
                assert!(keys.keys().any(|key| reason.contains(last_part(key))), "{reason}");
            }
        }
    }
}

/// Returns the loss of the first step with other keys.
fn loss_with(case: &Case, keys: &Map<String, Value>) -> Result<f64, String> {
    let out = tempfile::tempdir().unwrap();
    let weights = "model.safetensors";
    fs::copy(case.folder.join(weights), out.path().join(weights)).unwrap();
    let mut config = config_of(&case.folder);
    config.extend(keys.clone());
    write_config(out.path(), &Value::Object(config));
    let opened = HfFolder::open::<VitConfig>(out.path(), &[]);
    let (config, folder) = opened.map_err(|error| error.to_string())?;
    let (sizes, names) = (Vit::dim_sizes(&config), Vit::tensor_names(&config));
    let batch = first_batch(case, &config);
    let losses = on_mesh("1", 1, |rank| {
        let built = build::<Vit>(rank, &sizes).map_err(|error| error.to_string())?;
        import_hf(&folder, &names, &built.params()).map_err(|error| error.to_string())?;
        let (images, labels) = batch.on(rank, &config);
        let loss = || built.model.classifier.loss(&built.model.forward(&images), &labels);
        Ok(rank.evaluate(|| loss().reduce().value()))
    });
    losses.into_iter().next().expect("a rank")
}

#[test]
fn wrong_images_and_labels_are_refused_with_their_example() {
    let case = Case::open("vit");
    let dir = tempfile::tempdir().unwrap();
    let refused = |lines: &str, change: &dyn Fn(&Path)| {
        let model = tempfile::tempdir().unwrap();
        for name in ["config.json", "model.safetensors", "preprocessor_config.json"] {
            fs::copy(case.folder.join(name), model.path().join(name)).unwrap();
        }
        change(model.path());
        let data = dir.path().join("data.jsonl");
        fs::write(&data, lines).unwrap();
        let (model, data) = (model.path().display(), data.display());
        let words = format!(
            "train --init-from {model} --data {data} --order sequential --batch 1 --seq 10 --steps 2 --lr 0"
        );
        let config = Config::parse(words.split_whitespace()).unwrap();
        let ran = TaskTrainer::<ImageClassification>::new(config).and_then(TaskTrainer::train);
        ran.map(drop).expect_err("a refusal").to_string()
    };
    let unchanged = |_: &Path| {};
    fs::copy(case.folder.join("images/00.png"), dir.path().join("a.png")).unwrap();
    fs::write(dir.path().join("torn.png"), &fs::read(dir.path().join("a.png")).unwrap()[..60])
        .unwrap();
    fs::write(dir.path().join("b.gif"), "GIF89a").unwrap();
    for (line, part) in [
        (r#"{"image": "torn.png", "label": 1}"#, "torn.png: the PNG image cannot be decoded"),
        (r#"{"image": "b.gif", "label": 1}"#, "b.gif: the image is neither a JPEG nor a PNG file"),
        (r#"{"image": "c.png", "label": 1}"#, "c.png: No such file"),
        (
            r#"{"image": "a.png", "label": 5}"#,
            "`label` is 5, but the model has 5 classes (num_labels): 0 to 4",
        ),
        (r#"{"image": "a.png", "label": -1}"#, "`label` is -1, but the model has 5 classes"),
        (
            r#"{"image": "a.png", "label": "cat"}"#,
            "`label` is \"cat\", which is none of the classes",
        ),
        (r#"{"image": "a.png", "label": 0.5}"#, "`label` is a number, but has to be"),
        (r#"{"image": "a.png"}"#, "there is no field `label`; the fields are `image`"),
        (r#"{"file": "a.png", "label": 1}"#, "there is no field `image`"),
    ] {
        let text = refused(
            &format!("{{\"image\": \"a.png\", \"label\": \"LABEL_3\"}}\n{line}\n"),
            &unchanged,
        );
        assert!(text.contains(part) && text.contains("example 1 of "), "{text}");
    }
    let torn = refused("{\"image\": \"a.png\", \"label\": 0}\n{\n", &unchanged);
    assert!(torn.contains("data.jsonl:2: broken JSON at column 1"), "{torn}");
    let one = "{\"image\": \"a.png\", \"label\": 0}\n{\"image\": \"a.png\", \"label\": 0}";
    let with = |name: &'static str, key: &'static str, value: Value| {
        move |folder: &Path| {
            let path = folder.join(name);
            let mut keys: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            keys[key] = value.clone();
            fs::remove_file(&path).unwrap();
            fs::write(path, keys.to_string()).unwrap();
        }
    };
    let steps = "preprocessor_config.json";
    for (change, part) in [
        (
            with(steps, "size", 14.into()),
            "makes images of 14 by 14 pixels, but image_size of config.json is 12",
        ),
        (with(steps, "resample", 0.into()), "preprocessor_config.json: resample is 0; only 2"),
        (
            with("config.json", "image_size", 13.into()),
            "patch_size 4 does not divide image_size 13",
        ),
        (with("config.json", "num_channels", 1.into()), "num_channels is 1, but images have 3"),
    ] {
        let text = refused(one, &change);
        assert!(text.contains(part), "{text}");
    }
}
