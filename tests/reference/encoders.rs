//! Encoders of texts: one step, training runs on one rank and on meshes, and round trips, with the rows of
//! `expected.safetensors`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use meshwright::checkpoint::hf::{HfConfig, HfFolder};
use meshwright::layout::{BatchDim, SequenceHome, Shape, Whole};
use meshwright::models::encoders::{MaskedModel, SequenceClassifier, TextEncoder, TokenClassifier};
use meshwright::models::{
    BertClassifier, BertMaskedLm, BertTokenClassifier, ModernBertClassifier, ModernBertMaskedLm,
    ModernBertTokenClassifier,
};
use meshwright::nn::{Model, build};
use meshwright::optim::{AdamWOptions, Optimizer};
use meshwright::prelude::{Loss, Padding, Rank, Tensor, Tokens};
use meshwright::state_dict::HfMapping;
use meshwright::train::import_hf;
use meshwright_tests::compare::{Report, Tensors, distance, scalar_distance};
use meshwright_tests::run::on_mesh;
use serde_json::{Map, Value};

use super::families::config_of;
use super::mutations::{last_part, write_config};
use super::{Case, GRADIENT, LOGITS, LOSS, TRAIN_LOSS, TRAIN_NORM, as_stored};

/// Meshes of training runs.
const MESHES: [&str; 3] = ["1", "fsdp=2,tp=2", "cp=2"];

/// A model of a case, and its loss.
trait Reference: TextEncoder<In: Sized> {
    type Over: Shape;

    /// Returns the loss of a step.
    fn loss_of(&self, output: &Self::Out, rows: &Rows<'_>) -> Loss<Self::Over>;

    /// Returns the logits of this rank.
    fn logits_of(&self, output: &Self::Out) -> Vec<f32>;
}

/// The rows of a step.
struct Rows<'a> {
    case: &'a Case,
    rank: &'a Rank,
    step: usize,
}

impl Rows<'_> {
    fn batch(&self) -> usize {
        self.case.number("batch") as usize
    }

    fn seq(&self) -> usize {
        self.case.number("seq") as usize
    }

    /// Returns ids of each position, or zeros.
    fn of_positions<B: BatchDim, S: Whole<Home: SequenceHome>>(&self, name: &str) -> Tokens<(B, S)>
    where
        (B, S): Shape,
    {
        let sizes = [self.batch(), self.seq()];
        let ids = self.case.ids.get(name);
        let first = self.step * sizes[0];
        Tokens::from_fn(self.rank, &sizes, |at| {
            ids.map_or(0, |ids| ids[(first + at[0]) * sizes[1] + at[1]])
        })
    }

    /// Returns ids of each row.
    fn of_rows<B: BatchDim>(&self, name: &str) -> Tokens<(B,)>
    where
        (B,): Shape,
    {
        let ids = &self.case.ids[name];
        let first = self.step * self.batch();
        Tokens::from_fn(self.rank, &[self.batch()], |at| ids[first + at[0]])
    }

    /// Returns the number of each row.
    fn numbers<B: BatchDim>(&self) -> Tensor<(B,)>
    where
        (B,): Shape,
    {
        let numbers = &self.case.floats["numbers"];
        let first = self.step * self.batch();
        Tensor::from_fn(self.rank, &[self.batch()], |at| numbers[first + at[0]])
    }
}

/// Implements [`Reference`] of models by their traits.
macro_rules! references {
    ($($model:ident: $over:ty, $loss:expr, $logits:expr;)*) => {
        $(
            impl Reference for $model {
                type Over = $over;

                fn loss_of(&self, output: &Self::Out, rows: &Rows<'_>) -> Loss<$over> {
                    let loss: fn(&Self, &Self::Out, &Rows<'_>) -> Loss<$over> = $loss;
                    loss(self, output, rows)
                }

                fn logits_of(&self, output: &Self::Out) -> Vec<f32> {
                    let logits: fn(&Self, &Self::Out) -> Vec<f32> = $logits;
                    logits(self, output)
                }
            }
        )*
    };
}

type Batch<M> = <M as TextEncoder>::Batch;
type Seq<M> = <M as TextEncoder>::Seq;

references! {
    BertMaskedLm: (Batch<Self>, Seq<Self>),
        |model, x, rows| model.masked_loss(x, &rows.of_positions("targets")),
        |model, x| model.logits_of_output(x).to_local_vec();
    BertClassifier: (Batch<Self>,),
        |model, x, rows| if rows.case.ids.contains_key("targets") {
            model.class_loss(x, &rows.of_rows("targets"))
        } else {
            Loss::mean_of(&(model.number(x) - rows.numbers()).square())
        },
        |model, x| model.class_logits(x).to_local_vec();
    BertTokenClassifier: (Batch<Self>, Seq<Self>),
        |model, x, rows| model.token_loss(x, &rows.of_positions("targets")),
        |model, x| model.logits_of_output(x).to_local_vec();
    ModernBertMaskedLm: (Batch<Self>, Seq<Self>),
        |model, x, rows| model.masked_loss(x, &rows.of_positions("targets")),
        |model, x| model.logits_of_output(x).to_local_vec();
    ModernBertClassifier: (Batch<Self>,),
        |model, x, rows| model.class_loss(x, &rows.of_rows("targets")),
        |model, x| model.class_logits(x).to_local_vec();
    ModernBertTokenClassifier: (Batch<Self>, Seq<Self>),
        |model, x, rows| model.token_loss(x, &rows.of_positions("targets")),
        |model, x| model.logits_of_output(x).to_local_vec();
}

/// Declares tests of each case.
macro_rules! cases {
    ($($case:ident: $model:ident;)*) => {
        $(
            #[test]
            fn $case() {
                check::<$model>(stringify!($case));
            }
        )*

        #[test]
        fn changed_keys_of_encoders_have_the_loss_of_pytorch_or_are_refused() {
            $(check_mutations::<$model>(stringify!($case));)*
        }
    };
}

cases! {
    bert_masked: BertMaskedLm;
    bert_texts: BertClassifier;
    bert_numbers: BertClassifier;
    bert_tokens: BertTokenClassifier;
    modernbert_masked: ModernBertMaskedLm;
    modernbert_texts: ModernBertClassifier;
    modernbert_first: ModernBertClassifier;
    modernbert_tokens: ModernBertTokenClassifier;
}

/// Results of the first step, and of a training run.
struct Trained {
    logits: Vec<f32>,
    gradients: Tensors,
    losses: Vec<f64>,
    norms: Vec<f64>,
}

fn check<M: Reference + Model>(name: &str)
where
    (M::Batch, M::Seq): Shape,
    (M::Batch,): Shape,
{
    let case = Case::open(name);
    let (config, folder) = HfFolder::open::<M::Config>(&case.folder, &[]).unwrap();
    assert_eq!(folder.warnings(), [""; 0], "{name}");
    check_keys::<M::Config>(&case, &config);
    let mut report = Report::default();
    for mesh in MESHES {
        let steps = case.number("steps") as usize;
        let Trained { logits, gradients, losses, norms } =
            train::<M>(&case, &config, &folder, mesh, steps);
        let label = format!("{name} on {mesh}");
        if mesh == "1" {
            let [got, expected] = [&logits, &case.floats["logits"]].map(|all| case.of_texts(all));
            report.note("logits", &label, distance(&got, &expected), LOGITS);
            report.note("loss", &label, scalar_distance(losses[0], case.number("loss")), LOSS);
        }
        case.check_gradients(&label, gradients, &mut report);
        let expected = case.numbers("train_losses");
        report.scalars("training loss", &label, &losses, &expected, TRAIN_LOSS);
        let expected = case.numbers("train_grad_norms");
        report.scalars("gradient norm", &label, &norms, &expected, TRAIN_NORM);
    }
    report.print();
}

impl Case {
    /// Returns the logits of positions that are not padding: what is computed there does not matter.
    fn of_texts(&self, logits: &[f32]) -> Vec<f32> {
        let (batch, seq) = (self.number("batch") as usize, self.number("seq") as usize);
        let is_of_positions = self
            .ids
            .get("targets")
            .is_some_and(|ids| ids.len() == self.number("steps") as usize * batch * seq);
        if !is_of_positions {
            return logits.to_vec();
        }
        let position = logits.len() / batch / seq;
        let rows = logits.chunks(seq * position).zip(&self.ids["lengths"]);
        rows.flat_map(|(row, len)| row[..*len as usize * position].to_vec()).collect()
    }

    /// Compares all gradients, to a few times the noise of those of PyTorch.
    fn check_gradients(&self, label: &str, got: Tensors, report: &mut Report) {
        let (got, expected) = (without_noise(got), without_noise(self.with_prefix("grad.")));
        assert!(got.keys().eq(expected.keys()), "{label}: {:?}", got.keys());
        for (name, expected) in &expected {
            let noise = self.expected["noise_of_gradients"][name].as_f64().unwrap_or_default();
            let distance = distance(&got[name], expected);
            report.note(
                "gradient",
                format!("{label}, `{name}`"),
                distance,
                GRADIENT.max(8.0 * noise),
            );
        }
    }
}

/// Checks that all keys of a file are written as they are.
fn check_keys<C: HfConfig>(case: &Case, config: &C) {
    let written = config.to_json();
    for (key, value) in config_of(&case.folder) {
        if let Some(own) = written.get(&key).filter(|own| !own.is_null()) {
            assert_eq!(own, &value, "{}: `{key}`", case.folder.display());
        }
    }
    let mut file = written.as_object().cloned().unwrap_or_default();
    file.retain(|_, value| !value.is_null());
    let out = tempfile::tempdir().unwrap();
    write_config(out.path(), &Value::Object(file));
    let again = C::read(out.path(), &[]).unwrap();
    assert_eq!((again.config.to_json(), again.warnings), (written, Vec::new()));
}

/// Trains on a mesh.
fn train<M: Reference + Model>(
    case: &Case,
    config: &M::Config,
    folder: &HfFolder,
    mesh: &str,
    steps: usize,
) -> Trained
where
    (M::Batch, M::Seq): Shape,
    (M::Batch,): Shape,
{
    let (sizes, names) = (M::dim_sizes(config), M::tensor_names(config));
    let betas = case.numbers("betas");
    let options = AdamWOptions {
        betas: (betas[0], betas[1]),
        eps: case.number("eps"),
        weight_decay: case.number("weight_decay"),
    };
    on_mesh(mesh, 1, |rank| {
        let built = build::<M>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
        let params = built.params();
        let tensors = HfMapping::new(&names, &params).unwrap().shapes();
        folder.check_tensors(&tensors).unwrap();
        import_hf(folder, &names, &params).unwrap();
        let mut optimizer = Optimizer::new(rank, &built.units, Arc::new(options));
        let (mut losses, mut norms) = (Vec::new(), Vec::new());
        let mut first = None;
        for step in 0..steps {
            rank.set_step(step as u64);
            let rows = Rows { case, rank, step };
            let padding = Padding::of_lengths(&rows.of_rows("lengths"));
            let (ids, types) = (rows.of_positions("ids"), rows.of_positions("types"));
            let input = M::text_input(ids, types, padding);
            let logits = first
                .is_none()
                .then(|| rank.evaluate(|| built.model.logits_of(&built.model.forward(&input))));
            let loss = built.model.loss_of(&built.model.forward(&input), &rows);
            losses.push(loss.reduce().value());
            let mut gradients = loss.backward().reduce();
            if let Some(logits) = logits {
                let values = as_stored(&names, &params, |param| gradients.gather(param));
                first = Some((logits, values));
            }
            norms.push(gradients.clip(case.number("clip")));
            optimizer.step(case.number("lr"), gradients);
        }
        let (logits, gradients) = first.expect("a step");
        Trained { logits, gradients, losses, norms }
    })
    .remove(0)
}

/// Puts the gradient of the bias of keys of a BERT behind that of queries: a softmax does not see it, so that it is
/// noise.
fn without_noise(mut gradients: Tensors) -> Tensors {
    let is_noise = |name: &&String| name.ends_with("attention.self.key.bias");
    let noise: Vec<String> = gradients.keys().filter(is_noise).cloned().collect();
    for name in noise {
        let values = gradients.remove(&name).unwrap_or_default();
        let queries = gradients.get_mut(&name.replace("key", "query"));
        queries.expect("queries have a bias").extend(values);
    }
    gradients
}

/// Compares losses with other keys of `config.json`.
fn check_mutations<M: Reference + Model>(name: &str)
where
    (M::Batch, M::Seq): Shape,
    (M::Batch,): Shape,
{
    let case = Case::open(name);
    let table = fs::read(case.folder.join("mutations.json")).expect("mutations.json is there");
    let table: Value = serde_json::from_slice(&table).expect("mutations.json is JSON");
    for row in table.as_array().expect("rows") {
        let (mutation, keys) = (&row["mutation"], row["keys"].as_object().expect("an object"));
        if keys.is_empty() {
            continue;
        }
        match losses_with::<M>(&case, keys) {
            Ok(loss) => {
                let distance = scalar_distance(loss, row["loss"].as_f64().expect("a loss"));
                assert!(distance < 2.0 * LOSS, "{name}, {mutation}: off by {distance:.1e}");
            }
            Err(reason) => {
                println!("{name}, {mutation}: {reason}");
                let is_named = |key: &String| reason.contains(last_part(key));
                let is_of_tensors = reason.contains("other tensors");
                assert!(keys.keys().any(is_named) || is_of_tensors, "{name}: {reason}");
            }
        }
    }
}

/// Returns the loss of the first step with other keys.
fn losses_with<M: Reference + Model>(case: &Case, keys: &Map<String, Value>) -> Result<f64, String>
where
    (M::Batch, M::Seq): Shape,
    (M::Batch,): Shape,
{
    let out = tempfile::tempdir().unwrap();
    with_keys(case, out.path(), keys);
    let opened = HfFolder::open::<M::Config>(out.path(), &[]);
    let (config, folder) = opened.map_err(|error| error.to_string())?;
    let (sizes, names) = (M::dim_sizes(&config), M::tensor_names(&config));
    let fits = on_mesh("1", 1, |rank| {
        let built = build::<M>(rank, &sizes).map_err(|error| error.to_string())?;
        let params = built.params();
        let tensors = HfMapping::new(&names, &params).unwrap().shapes();
        folder.check_tensors(&tensors).map_err(|error| format!("other tensors: {error}"))
    });
    fits.into_iter().next().expect("a rank")?;
    Ok(train::<M>(case, &config, &folder, "1", 1).losses[0])
}

/// Writes the folder of a case with other keys.
fn with_keys(case: &Case, to: &Path, keys: &Map<String, Value>) {
    let weights = "model.safetensors";
    fs::copy(case.folder.join(weights), to.join(weights)).unwrap();
    let mut config = Value::Object(config_of(&case.folder));
    for (path, value) in keys {
        let pointer = format!("/{}", path.replace('.', "/"));
        let (outer, key) = pointer.rsplit_once('/').expect("a slash");
        config.pointer_mut(outer).expect("an object")[key] = value.clone();
    }
    write_config(to, &config);
}
