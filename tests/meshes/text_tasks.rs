//! Tasks of encoders of texts, on meshes and against one rank.

use std::path::Path;
use std::{fs, io};

use meshwright::data::{Example, ExampleSource, Field};
use meshwright::models::{
    BertClassifier, BertMaskedLm, BertTokenClassifier, ModernBertClassifier, ModernBertMaskedLm,
};
use meshwright::tasks::{
    Classification, GivenLabels, LabelFlags, MaskFlags, MaskedLm, NumberFlags, Regression,
    TextFields, TokenClassification, WordFlags,
};
use meshwright::train::config::RunSettings;
use meshwright::train::{Optimizers, Summary, Task, TaskTrainer};

/// Sentences of unequal length that follow from their number, with labels.
struct Sentences {
    /// The field that is changed, and its value.
    changed: Option<(&'static str, Field)>,
}

const LABELS: [&str; 3] = ["low", "mid", "high"];

impl ExampleSource for Sentences {
    fn name(&self) -> &str {
        "sentences"
    }

    fn examples(&self) -> u64 {
        13
    }

    fn fingerprint(&self) -> String {
        "sentences".to_owned()
    }

    fn read(&self, index: u64) -> io::Result<Example> {
        let letter = |at: u64| (b'a' + ((index * 31 + at * at * 7) % 26) as u8) as char;
        // Some are longer than a row.
        let words: Vec<String> = (0..2 + index % 5)
            .map(|word| (0..3).map(|at| letter(4 * word + at)).collect())
            .collect();
        let label_of = |at: usize| LABELS[(index as usize + at) % 3];
        let texts = |words: &[String]| words.iter().cloned().map(Field::Text).collect();
        let labels = (0..words.len()).map(|at| match at {
            1 => Field::Integer(-100),
            at => Field::Text(label_of(at).to_owned()),
        });
        let mut fields = vec![
            ("text", Field::Text(words.join(" "))),
            ("tokens", Field::List(texts(&words))),
            ("label", Field::Text(label_of(0).to_owned())),
            ("labels", Field::List(labels.collect())),
            ("number", Field::Number((index as f64 * 0.7).sin())),
        ];
        if index.is_multiple_of(3) {
            fields.push(("text_pair", Field::Text("two".to_owned())));
        }
        if let Some((name, value)) = &self.changed {
            fields.retain(|(own, _)| own != name);
            fields.push((name, value.clone()));
        }
        Ok(Example::new(fields.into_iter().map(|(name, field)| (name.to_owned(), field))))
    }
}

fn fields() -> TextFields {
    TextFields { text: "text".to_owned(), pair: "text_pair".to_owned() }
}

fn masked() -> MaskFlags {
    let mask_token = Some("id=3".to_owned());
    MaskFlags { fields: fields(), mask_rate: 0.4, masked_part: 0.8, mask_token }
}

fn given() -> GivenLabels {
    GivenLabels { labels: Some(LABELS.map(str::to_owned).to_vec()) }
}

fn labels() -> LabelFlags {
    LabelFlags { fields: fields(), label_field: "label".to_owned(), labels: given() }
}

fn words() -> WordFlags {
    let [words_field, label_field] = ["tokens", "labels"].map(str::to_owned);
    WordFlags { words_field, label_field, labels: given() }
}

fn numbers() -> NumberFlags {
    NumberFlags { fields: fields(), label_field: "number".to_owned() }
}

const SIZES: &str = "--hidden 16 --heads 2 --layers 3 --ffn 24 --vocab 256";

const SMALL: &str = "--seq 16 --batch 8 --steps 3 --threads 1 --lr 0.01 --tokenizer bytes";

fn train<T: Task>(
    words: &str,
    flags: T::Flags,
    changed: Option<(&'static str, Field)>,
) -> meshwright::Result<Summary> {
    run::<T>(&format!("{SIZES} {words}"), flags, changed)
}

/// Trains a model of other sizes, or one of a folder.
fn run<T: Task>(
    words: &str,
    flags: T::Flags,
    changed: Option<(&'static str, Field)>,
) -> meshwright::Result<Summary> {
    let words = format!("train {SMALL} {words}");
    let words = words.split_whitespace().map(Into::into);
    let settings = RunSettings::read(words, &Optimizers::default())?;
    let settings = settings.with_examples(Sentences { changed }).with_task_flags(flags);
    TaskTrainer::<T>::with_settings(settings)?.train()
}

fn check_meshes<T: Task>(flags: fn() -> T::Flags) {
    let alone = train::<T>("--mesh 1", flags(), None).unwrap();
    for words in [
        "--mesh 1 --micro-batches 4",
        "--mesh fsdp=2,tp=2 --micro-batches 2",
        "--mesh dp=2 --recompute full",
        "--mesh cp=2",
        "--mesh pp=2,dp=2 --micro-batches 2",
    ] {
        let run = train::<T>(words, flags(), None).unwrap();
        let pairs = [(&alone.losses, &run.losses), (&alone.grad_norms, &run.grad_norms)];
        for (expected, found) in pairs {
            for (a, b) in expected.iter().zip(found) {
                assert!((a / b - 1.0).abs() < 2e-5, "{words}: {expected:?} and {found:?}");
            }
        }
    }
}

#[test]
fn masked_tokens_are_learned_alike_on_every_mesh() {
    check_meshes::<MaskedLm<BertMaskedLm>>(masked);
    check_meshes::<MaskedLm<ModernBertMaskedLm>>(masked);
}

#[test]
fn classes_are_learned_alike_on_every_mesh() {
    check_meshes::<Classification<BertClassifier>>(labels);
    check_meshes::<Classification<ModernBertClassifier>>(labels);
}

#[test]
fn numbers_and_classes_of_words_are_learned_alike_on_every_mesh() {
    check_meshes::<Regression<BertClassifier>>(numbers);
    check_meshes::<TokenClassification<BertTokenClassifier>>(words);
}

#[test]
fn wrong_examples_are_refused_in_words() {
    type Classes = Classification<BertClassifier>;
    type Words = TokenClassification<BertTokenClassifier>;
    fn refused<T: Task>(
        words: &str,
        flags: T::Flags,
        changed: Option<(&'static str, Field)>,
    ) -> String {
        train::<T>(&format!("--mesh 1 {words}"), flags, changed).err().unwrap().to_string()
    }
    let text = |text: &str| Field::Text(text.to_owned());
    let of = |name, value| refused::<Classes>("", labels(), Some((name, value)));
    for (found, reason) in [
        (of("label", text("top")), "`label` is \"top\", but the labels of the model are \"low\""),
        (of("label", Field::Integer(3)), "`label` is 3, but the model has 3 labels: 0 to 2"),
        (of("text", text("")), "the text has no tokens; leave the example out"),
        (of("text", Field::Integer(3)), "`text` is a whole number, but has to be a text"),
        (
            refused::<Words>("", words(), Some(("labels", Field::List(Vec::new())))),
            "`labels` has 0 labels, but `tokens` has",
        ),
        (
            refused::<MaskedLm<BertMaskedLm>>("", MaskFlags { mask_token: None, ..masked() }, None),
            "--mask-token: bytes has no token for masked ones",
        ),
        (
            refused::<MaskedLm<BertMaskedLm>>("", MaskFlags { mask_rate: 0.0, ..masked() }, None),
            "the rate of masked tokens is 0",
        ),
        (
            refused::<Classes>(
                "",
                LabelFlags { labels: GivenLabels { labels: Some(vec!["1".into()]) }, ..labels() },
                None,
            ),
            "--labels: \"1\" is neither several names nor a number of labels",
        ),
    ] {
        assert!(found.contains(reason), "no `{reason}` in {found}");
    }
}

/// Training begins with the encoder of a folder with another head, also on ranks that share the new one.
#[test]
fn a_classifier_begins_with_a_masked_language_model() {
    let out = tempfile::tempdir().unwrap();
    let [masked_lm, on_one, on_two] = ["masked", "one", "two"].map(|name| out.path().join(name));
    let words = format!("--mesh 1 --export-hf {}", masked_lm.display());
    train::<MaskedLm<BertMaskedLm>>(&words, masked(), None).unwrap();
    let classify = |mesh: &str, to: &Path| {
        let [from, to] = [masked_lm.as_path(), to].map(Path::display);
        let words = format!("--mesh {mesh} --init-from {from} --export-hf {to}");
        run::<Classification<BertClassifier>>(&words, labels(), None).unwrap().losses
    };
    let (one, two) = (classify("1", &on_one), classify("fsdp=2,tp=2", &on_two));
    for (a, b) in one.iter().zip(&two) {
        assert!((a / b - 1.0).abs() < 2e-5, "{one:?} and {two:?}");
    }
    let config = fs::read_to_string(on_two.join("config.json")).unwrap();
    for part in ["BertForSequenceClassification", "\"high\"", "single_label_classification"] {
        assert!(config.contains(part), "no {part} in {config}");
    }
    // The folder is one of a classifier then, whose labels need not be given.
    let words = format!("--mesh 1 --init-from {}", on_one.display());
    let flags = LabelFlags { labels: GivenLabels { labels: None }, ..labels() };
    run::<Classification<BertClassifier>>(&words, flags, None).unwrap();
}
