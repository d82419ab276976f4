//! Tasks other than the next token, on meshes and against one rank.

use std::io;

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::data::{Example, ExampleSource, Field, RowStreams, RowWriter};
use meshwright::prelude::*;
use meshwright::train::{Config, FamilyModel, Rows, Summary, Task, TaskSetup, TaskTrainer};
use tempfile::TempDir;

dims! {
    Batch @ data,
    Seq,
    Hidden,
    Vocab,
    /// Numbers of each example beside its text.
    Facts,
}

type Stream = Tensor<(Batch, Seq, Hidden)>;
type Ids = Tokens<(Batch, Seq)>;
type Facing = Tensor<(Batch, Facts)>;

/// A model of a text and of numbers beside it.
#[model]
struct Tagger {
    #[pipeline_stage]
    enter: Enter,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage(last)]
    tags: LmHead<Hidden, Vocab>,
    #[pipeline_stage(last)]
    value: Linear<Hidden, Facts>,
}

#[model]
struct Enter {
    embed: Embedding<Vocab, Hidden>,
    facts: Linear<Facts, Hidden>,
}

#[forward]
impl Enter {
    fn forward(&self, (ids, facts): &(Ids, Facing)) -> Stream {
        self.embed.forward(ids) + &self.facts.forward(facts)
    }
}

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

dims! {
    Ffn,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.down.forward(&self.up.forward(&self.norm.forward(x)).silu())
    }
}

#[forward]
impl Tagger {
    fn forward(&self, input: &(Ids, Facing)) -> Stream;
}

impl FamilyModel for Tagger {
    type Positions = Seq;
    type Config = LlamaConfig;

    fn tensor_names(_: &LlamaConfig) -> Vec<HfName> {
        Vec::new()
    }

    fn dim_sizes(config: &LlamaConfig) -> Sizes {
        Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with(Facts, FACTS)
    }
}

const FACTS: usize = 3;

/// Names the class of each letter, except of those that a row hides: from none to nearly all of them.
struct Tagging {
    seq: usize,
    vocab: usize,
}

impl Task for Tagging {
    type Model = Tagger;
    type Extra = Ids;
    type Over = (Batch, Seq);
    type Flags = ();
    const NAME: &'static str = "tagging";

    fn open(setup: &TaskSetup<'_, LlamaConfig, ()>) -> Result<Tagging, String> {
        Ok(Tagging { seq: setup.seq(), vocab: setup.family().vocab })
    }

    fn streams(&self) -> RowStreams {
        RowStreams::new().ids("ids", &[self.seq], self.vocab).values("facts", &[FACTS]).targets(
            "tags",
            &[self.seq],
            self.vocab,
        )
    }

    fn row(&self, example: &Example, key: u64, row: &mut RowWriter<'_>) -> Result<(), String> {
        let text = example.text("text")?;
        let hidden = key as usize % self.seq;
        for (at, letter) in text.bytes().take(self.seq).enumerate() {
            row.ids("ids")[at] = u32::from(letter);
            if at >= hidden {
                row.ids("tags")[at] = u32::from(letter) % 7;
            }
        }
        let facts = example.numbers("facts")?;
        for (own, fact) in row.values("facts").iter_mut().zip(facts) {
            *own = fact as f32;
        }
        Ok(())
    }

    fn input(&self, rows: &Rows<'_>) -> ((Ids, Facing), Ids) {
        ((rows.tokens("ids"), rows.tensor("facts")), rows.tokens("tags"))
    }

    fn loss(&self, model: &Tagger, output: &Stream, tags: &Ids) -> Loss<(Batch, Seq)> {
        model.tags.loss(output, tags)
    }
}

/// Predicts the numbers of each example from its text.
struct Guessing(Tagging);

impl Task for Guessing {
    type Model = Tagger;
    type Extra = (Facing, Targets<(Batch,)>);
    type Over = (Batch,);
    type Flags = ();
    const NAME: &'static str = "guessing";

    fn open(setup: &TaskSetup<'_, LlamaConfig, ()>) -> Result<Guessing, String> {
        Ok(Guessing(Tagging::open(setup)?))
    }

    fn streams(&self) -> RowStreams {
        self.0.streams()
    }

    fn row(&self, example: &Example, key: u64, row: &mut RowWriter<'_>) -> Result<(), String> {
        self.0.row(example, key, row)
    }

    fn input(&self, rows: &Rows<'_>) -> ((Ids, Facing), Self::Extra) {
        let facts: Facing = rows.tensor("facts");
        ((rows.tokens("ids"), facts.scale(0.0)), (facts, rows.counted()))
    }

    fn loss(
        &self,
        model: &Tagger,
        output: &Stream,
        (facts, counted): &Self::Extra,
    ) -> Loss<(Batch,)> {
        let difference = model.value.forward(&output.mean(Seq)) - facts;
        Loss::masked_mean_of(&difference.square().mean(Facts), counted)
    }
}

/// Texts of letters that follow from their number, with numbers beside them.
struct Letters {
    examples: u64,
    broken: Option<u64>,
}

impl ExampleSource for Letters {
    fn name(&self) -> &str {
        "letters"
    }

    fn examples(&self) -> u64 {
        self.examples
    }

    fn fingerprint(&self) -> String {
        format!("letters {}", self.examples)
    }

    fn read(&self, index: u64) -> io::Result<Example> {
        if self.broken == Some(index) {
            return Err(io::Error::other("line 9 is torn"));
        }
        let letter = |at: u64| (b'a' + ((index * 31 + at * at * 7) % 26) as u8) as char;
        let facts = (0..FACTS).map(|at| Field::Number((index as f64 * 0.7 + at as f64).sin()));
        let fields = [
            ("text", Field::Text((0..12).map(letter).collect())),
            ("facts", Field::List(facts.collect())),
        ];
        Ok(Example::new(fields.map(|(name, field)| (name.to_owned(), field))))
    }
}

const SMALL: &str = "--hidden 16 --heads 2 --layers 2 --ffn 24 --vocab 128 --seq 12 --batch 8 --steps 4 \
                     --threads 1 --lr 0.01";

fn trainer<T: Task>(flags: &str, examples: Letters) -> meshwright::Result<TaskTrainer<T>> {
    // Flags that are given again replace those of all runs.
    let is_given = |pair: &&[&str]| !flags.split_whitespace().any(|word| word == pair[0]);
    let defaults: Vec<&str> = SMALL.split_whitespace().collect();
    let defaults = defaults.chunks(2).filter(is_given).flatten().copied().collect::<Vec<_>>();
    let words = format!("train {} {flags}", defaults.join(" "));
    TaskTrainer::new(Config::parse(words.split_whitespace())?.with_examples(examples))
}

fn train<T: Task>(flags: &str) -> meshwright::Result<Summary> {
    // The second step reaches into the second epoch, in which rows have other keys.
    trainer::<T>(flags, Letters { examples: 13, broken: None })?.train()
}

fn check_meshes<T: Task>() {
    let alone = train::<T>("--mesh 1").unwrap();
    for flags in [
        "--mesh 1 --micro-batches 2",
        "--mesh 1 --micro-batches 4",
        "--mesh dp=2",
        "--mesh dp=2 --micro-batches 2",
        "--mesh tp=2",
        "--mesh fsdp=2,tp=2 --micro-batches 2",
        "--mesh fsdp=2 --zero 3 --recompute full",
        "--mesh pp=2 --micro-batches 2",
        "--mesh pp=2,dp=2 --micro-batches 4",
    ] {
        let run = train::<T>(flags).unwrap();
        let pairs = [(&alone.losses, &run.losses), (&alone.grad_norms, &run.grad_norms)];
        for (expected, found) in pairs {
            for (a, b) in expected.iter().zip(found) {
                assert!((a / b - 1.0).abs() < 1e-5, "{flags}: {expected:?} and {found:?}");
            }
        }
    }
}

#[test]
fn tags_are_learned_alike_on_every_mesh() {
    check_meshes::<Tagging>();
}

#[test]
fn numbers_are_learned_alike_on_every_mesh() {
    check_meshes::<Guessing>();
}

#[test]
fn a_task_is_resumed_bit_for_bit() {
    let folder = TempDir::new().unwrap();
    let save = folder.path().join("run");
    let whole = train::<Tagging>("--mesh fsdp=2").unwrap();
    let first = format!("--mesh fsdp=2 --steps 2 --save {}", save.display());
    let first = train::<Tagging>(&first).unwrap();
    let rest = format!("--mesh fsdp=2 --resume {}", save.display());
    let rest = train::<Tagging>(&rest).unwrap();
    assert_eq!([&first.losses[..], &rest.losses].concat(), whole.losses);
    let other = format!("--mesh fsdp=2 --resume {}", save.display());
    let other = train::<Guessing>(&other).err().unwrap().to_string();
    assert!(other.contains("--data: letters for the task guessing with"), "{other}");
    assert!(other.contains("the checkpoint, letters for the task tagging with"), "{other}");
}

#[test]
fn tasks_are_explained_and_simulated() {
    let examples = || Letters { examples: 13, broken: None };
    let explained = trainer::<Tagging>("--mesh fsdp=2,tp=2 --explain", examples()).unwrap();
    let text = explained.explain().unwrap();
    assert!(text.contains("blocks"), "{text}");
    let planned = trainer::<Tagging>("--mesh pp=2 --micro-batches 2", examples()).unwrap();
    assert_eq!(planned.step_logs().unwrap().len(), 2);
}

#[test]
fn wrong_examples_are_refused_by_number() {
    let refused = |flags: &str, examples| match trainer::<Tagging>(flags, examples) {
        Ok(trainer) => trainer.train().err().unwrap().to_string(),
        Err(error) => error.to_string(),
    };
    let torn = refused("--mesh dp=2", Letters { examples: 6, broken: Some(3) });
    assert!(torn.contains("example 3 of letters: line 9 is torn"), "{torn}");
    let small = refused("--mesh 1 --vocab 100", Letters { examples: 6, broken: None });
    assert!(small.contains("`ids` holds"), "{small}");
    assert!(small.contains("its ids are below 100"), "{small}");
    let long = refused("--mesh 1 --seq 20", Letters { examples: 6, broken: None });
    assert!(long.contains("an id of `ids` is not written"), "{long}");
    let files = refused("--mesh 1 --data x.jsonl", Letters { examples: 6, broken: None });
    assert!(files.contains("--data: the program makes its examples, letters"), "{files}");
    let packed = refused("--mesh 1 --text-key a", Letters { examples: 6, broken: None });
    assert!(packed.contains("--text-key: the task tagging makes rows of examples"), "{packed}");
    let none = refused("--mesh 1", Letters { examples: 0, broken: None });
    assert!(none.contains("letters has no rows"), "{none}");
}
