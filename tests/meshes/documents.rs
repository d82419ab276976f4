//! Documents in the rows of a batch: positions, masks, packing, and runs that are resumed.

use std::ffi::OsStr;
use std::path::Path;

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::data::{Batch as Rows, Dataset, DocumentOptions, Order, TokenFile};
use meshwright::nn::build;
use meshwright::prelude::*;
use meshwright::train::{Config, Summary};
use meshwright_examples::gpt2::Gpt2;
use meshwright_examples::llama::Llama;
use meshwright_tests::compare::{Report, Tensors, assert_same_bits};
use meshwright_tests::run::{on_mesh, train_with_words};
use tempfile::TempDir;

dims! {
    Batch @ data,
    Seq,
    Positions,
    Hidden,
    Ffn,
    Vocab,
}

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
/// The stream, with the documents of its tokens.
type Flow = (Stream, Documents<(Batch, Seq)>);

/// Adds learned positions within documents, and an MLP. Nothing reads along the sequence.
#[model]
struct Block {
    positions: LearnedPositions<Positions, Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, flow: &Flow) -> Flow {
        let (x, documents) = flow;
        let x = self.positions.forward_in(x, documents);
        let y = &x + self.down.forward(&self.up.forward(&x).gelu());
        (y, documents.clone())
    }
}

/// Embeds tokens, and takes their documents along.
#[model]
struct Start {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
}

#[forward]
impl Start {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Flow {
        (self.embed.forward(tokens), tokens.documents())
    }
}

/// Drops the documents.
#[model]
struct End {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl End {
    fn forward(&self, flow: &Flow) -> Stream {
        self.norm.forward(&flow.0)
    }
}

/// A model whose blocks restart positions; documents cross its pipeline stages, and recomputed segments.
#[model]
struct Bags {
    #[pipeline_stage]
    start: Start,
    #[pipeline_stage]
    #[recompute(every = 1)]
    blocks: Stack<Block>,
    #[pipeline_stage]
    end: End,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Bags {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Bags {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        Sizes::new()
            .with(Positions, config.positions)
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

/// A model that does not ask for the documents of its tokens.
#[model]
struct Unaware {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Stack<UnawareBlock>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[model]
struct UnawareBlock {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl UnawareBlock {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.down.forward(&self.up.forward(x).gelu())
    }
}

#[forward]
impl Unaware {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Unaware {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        Bags::sizes(config)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

const SEQ: usize = 12;
const ROWS: usize = 4;

fn sizes() -> Sizes {
    Sizes::new().with(Positions, SEQ).with(Hidden, 8).with(Ffn, 12).with(Vocab, 16).with(Layers, 2)
}

/// Lengths of the documents of each row: one, two, documents of one token, many.
const LENGTHS: [&[usize]; ROWS] = [&[12], &[5, 7], &[1, 10, 1], &[3, 1, 1, 4, 3]];

fn starts() -> Vec<u32> {
    let row = |lengths: &&[usize]| {
        let mut start = 0;
        let of_document = |len: &usize| {
            let own = start;
            start += *len as u32;
            vec![own; *len]
        };
        lengths.iter().flat_map(of_document).collect::<Vec<u32>>()
    };
    LENGTHS.iter().flat_map(row).collect()
}

fn token(row: usize, position: usize) -> u32 {
    ((row * 31 + position * 7 + position * position) % 16) as u32
}

/// Loss and gradients of rows of several documents on `mesh`.
fn of_packed_rows(mesh: &str) -> (f64, Tensors) {
    let starts = starts();
    on_mesh(mesh, 1, |rank| {
        let built = build::<Bags>(rank, &sizes()).unwrap();
        let own = rank_rows(rank);
        let block = |id: fn(usize, usize) -> u32| -> Vec<u32> {
            own.clone().flat_map(|row| (0..SEQ).map(move |position| id(row, position))).collect()
        };
        let from_block = |ids: &[u32]| Tokens::from_block(rank, &[ROWS, SEQ], ids);
        let tokens =
            from_block(&block(token)).with_documents(&starts[own.start * SEQ..own.end * SEQ]);
        let targets = from_block(&block(|row, position| token(row, position + 1)));
        gradients_of(&built, &tokens, &targets)
    })
    .remove(0)
}

/// The rows of a data rank.
fn rank_rows(rank: &Rank) -> std::ops::Range<usize> {
    let axes = meshwright::layout::AxisSet::DATA;
    let (index, of) = (rank.position(axes), rank.degree_of(axes));
    index * ROWS / of..(index + 1) * ROWS / of
}

fn gradients_of(
    built: &meshwright::nn::Built<Bags>,
    tokens: &Tokens<(Batch, Seq)>,
    targets: &Targets<(Batch, Seq)>,
) -> (f64, Tensors) {
    let loss = built.model.loss(tokens, targets);
    let mean = loss.reduce().value();
    let gradients = loss.backward().reduce();
    let params = built.params();
    let gathered = params.iter().map(|param| (param.path().to_owned(), gradients.gather(param)));
    (mean, gathered.collect())
}

/// Rows of several documents have the loss and gradients of each document in a row of its own, after which nothing counts.
#[test]
fn documents_in_one_row_are_as_documents_apart() {
    let expected = on_mesh("1", 1, |rank| {
        let built = build::<Bags>(rank, &sizes()).unwrap();
        let documents: Vec<(usize, usize, usize)> = (0..ROWS)
            .flat_map(|row| {
                let mut start = 0;
                LENGTHS[row].iter().map(move |len| {
                    start += len;
                    (row, start - len, *len)
                })
            })
            .collect();
        let block = |id: &dyn Fn(usize, usize, bool) -> u32| -> Vec<u32> {
            let of_document = |(row, start, len): &(usize, usize, usize)| {
                let (row, start, len) = (*row, *start, *len);
                (0..SEQ).map(|place| id(row, start + place, place < len)).collect::<Vec<u32>>()
            };
            documents.iter().flat_map(of_document).collect()
        };
        let from_block = |ids: &[u32]| Tokens::from_block(rank, &[documents.len(), SEQ], ids);
        let tokens = block(&|row, position, counts| if counts { token(row, position) } else { 0 });
        let ignored = Targets::<(Batch, Seq)>::IGNORED;
        let targets = block(&|row, position, counts| {
            if counts { token(row, position + 1) } else { ignored }
        });
        gradients_of(&built, &from_block(&tokens), &from_block(&targets))
    })
    .remove(0);
    let mut report = Report::default();
    for mesh in ["1", "dp=2", "tp=2", "tp=4", "fsdp=2,tp=2", "dp=4"] {
        let (loss, gradients) = of_packed_rows(mesh);
        report.scalars("loss", mesh, &[loss], &[expected.0], 1e-6);
        report.tensors("gradient", mesh, &gradients, &expected.1, 2e-6);
    }
    report.print();
}

#[test]
fn rows_of_one_document_are_rows_without_documents() {
    on_mesh("1", 1, |rank| {
        let built = build::<Bags>(rank, &sizes()).unwrap();
        let ids: Vec<u32> = (0..SEQ).map(|position| token(0, position)).collect();
        let tokens = Tokens::from_block(rank, &[1, SEQ], &ids);
        assert!(tokens.documents().starts().is_none() && tokens.documents().ends().is_none());
        let one = tokens.with_documents(&[0; SEQ]);
        let documents = one.documents();
        let held = |block: Option<&std::sync::Arc<meshwright::backend::Buffer>>| {
            block.unwrap().view().to_vec::<u32>()
        };
        assert_eq!(held(documents.starts()), [0; SEQ]);
        assert_eq!(held(documents.ends()), [SEQ as u32; SEQ]);
        let [plain, in_one] = [&tokens, &one].map(|tokens| gradients_of(&built, tokens, tokens));
        assert_eq!(plain.0, in_one.0);
        assert_same_bits("gradients", &in_one.1, &plain.1);
    });
}

#[test]
fn documents_of_other_rows_are_refused() {
    on_mesh("1", 1, |rank| {
        let built = build::<Bags>(rank, &sizes()).unwrap();
        let tokens = |rows: usize| {
            let ids = vec![1; rows * SEQ];
            Tokens::<(Batch, Seq)>::from_block(rank, &[rows, SEQ], &ids)
                .with_documents(&vec![0; rows * SEQ])
        };
        let (two, three) = (tokens(2), tokens(3));
        let flow = built.model.start.forward(&two);
        let mixed = || built.model.blocks.forward(&(flow.0.clone(), three.documents()));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(mixed)).err().unwrap();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains("documents of 3 rows of 12 tokens"), "{text}");
    });
}

/// Text of lines of many lengths, one of them longer than a row.
fn text() -> Vec<u8> {
    let mut text = Vec::new();
    for line in 0..150usize {
        let len = if line == 40 { 60 } else { line * line % 23 };
        text.extend((0..len).map(|index| b'a' + ((line + index * index) % 26) as u8));
        text.push(b'\n');
    }
    text
}

struct Run {
    dir: TempDir,
}

impl Run {
    fn new() -> Run {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("text.txt"), text()).unwrap();
        Run { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn train<M: LanguageModel>(&self, words: &str) -> meshwright::Result<Summary> {
        self.train_without_documents::<M>(&format!("--documents 10 {words}"))
    }

    fn train_without_documents<M: LanguageModel>(
        &self,
        words: &str,
    ) -> meshwright::Result<Summary> {
        train_with_words::<M>(self.line(words).split_whitespace().map(OsStr::new))
    }

    /// Returns the flags of a small model on the text.
    fn line(&self, words: &str) -> String {
        let data = self.path("text.txt");
        let heads = if words.contains("--heads") { "" } else { "--heads 2" };
        format!("--data {data} --hidden 16 --ffn 24 {heads} --layers 2 --seq 24 --batch 8 {words}")
    }

    /// Returns a metric of each step.
    fn metric(&self, path: &str, name: &str) -> Vec<Option<f64>> {
        let lines = std::fs::read_to_string(path).unwrap();
        let of_line =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()[name].as_f64();
        lines.lines().map(of_line).collect()
    }
}

const STEPS: u64 = 6;

#[test]
fn packed_runs_resume_bitwise_on_other_meshes() {
    let run = Run::new();
    for (index, (mesh, words)) in [
        ("1", "--pack"),
        ("dp=2", "--pack --mask-borders --order shuffled --micro-batches 2"),
        ("fsdp=2,tp=2", "--mask-borders --order shuffled"),
        ("pp=2", "--pack --order shuffled --micro-batches 4"),
    ]
    .into_iter()
    .enumerate()
    {
        let saved = run.path(&format!("saved {index}").replace(' ', "-"));
        let words = format!("{words} --mesh {mesh} --steps {STEPS}");
        let whole = run.train::<Bags>(&format!("{words} --save {saved} --save-every 3")).unwrap();
        assert!(whole.losses.iter().all(|loss| loss.is_finite()));
        let half = format!("{saved}/step-00000003");
        let rest = run.train::<Bags>(&format!("{words} --resume {half}")).unwrap();
        assert_eq!(rest.losses, whole.losses[3..], "{mesh}");
        assert_eq!(rest.grad_norms, whole.grad_norms[3..], "{mesh}");
        let one = words.replace(&format!("--mesh {mesh}"), "--mesh 1");
        let one = run.train::<Bags>(&one).unwrap();
        for (found, expected) in whole.losses.iter().zip(&one.losses) {
            assert!((found - expected).abs() < 1e-5 * expected, "{mesh}: {found}, not {expected}");
        }
    }
}

#[test]
fn a_resumed_run_needs_the_same_documents() {
    let run = Run::new();
    let saved = run.path("saved");
    run.train::<Bags>(&format!("--pack --steps 2 --mesh 1 --save {saved}")).unwrap();
    let refused = |words: &str| {
        let words = format!("{words} --steps 4 --mesh 1 --resume {saved}/latest");
        run.train::<Bags>(&words).unwrap_err().to_string()
    };
    let text = refused("--mask-borders");
    assert!(text.contains("--pack: false, but true was saved"), "{text}");
    assert!(text.contains("--mask-borders: true, but false was saved"), "{text}");
    run.train::<Bags>(&format!("--pack --steps 4 --mesh 1 --resume {saved}/latest")).unwrap();
}

/// Whole rows, with their documents.
type WholeRows = (Tensor<(Batch, Seq, Hidden)>, Documents<(Batch, Seq)>);

/// A model that takes documents along, and keeps none apart.
#[model]
struct Passing {
    embed: WithDocuments<Embedding<Vocab, Hidden>>,
    norm: RmsNorm<Hidden>,
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Passing {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> WholeRows {
        Layer::forward(&self.norm, &self.embed.forward(tokens))
    }
}

impl LanguageModel for Passing {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        Bags::sizes(config)
    }

    fn loss_of_output(
        &self,
        (x, _): &Self::Out,
        targets: &Targets<(Batch, Seq)>,
    ) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, (x, _): &Self::Out) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x)
    }
}

/// A model that does not use documents, and does not run on zeros either.
#[model]
struct Probing {
    embed: Embedding<Vocab, Hidden>,
    norm: RmsNorm<Hidden>,
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Probing {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Tensor<(Batch, Seq, Hidden)> {
        let x = self.embed.forward(tokens);
        assert!(x.to_local_vec().iter().any(|x| *x != 0.0), "the embeddings are zeros");
        self.norm.forward(&x)
    }
}

impl LanguageModel for Probing {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        Bags::sizes(config)
    }

    fn loss_of_output(&self, x: &Self::Out, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Self::Out) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x)
    }
}

const UNUSED: &str = "--documents: the model does not use documents, so attention";

/// The plan refuses them, so nothing is allocated or written.
#[test]
fn models_that_do_not_use_documents_are_refused() {
    let run = Run::new();
    let save = run.path("never");
    for mesh in ["1", "dp=2", "tp=2", "pp=2", "pp=2,tp=2"] {
        let words = format!("--documents 10 --steps 2 --mesh {mesh} --save {save}");
        let refused = plan_of::<Unaware>(&run, &words).unwrap();
        assert!(refused.starts_with(UNUSED), "{mesh}: {refused}");
        assert!(refused.contains("tokens.documents()"), "{refused}");
        assert_eq!(plan_of::<Bags>(&run, &words), None, "{mesh}");
        assert_eq!(plan_of::<Unaware>(&run, &words.replace("--documents 10", "")), None, "{mesh}");
        let _ = std::fs::remove_dir_all(&save);
    }
    let words = format!("--documents 10 --steps 2 --mesh dp=2 --save {save}");
    assert!(plan_of::<Passing>(&run, &words).unwrap().starts_with(UNUSED));
    assert!(!Path::new(&save).exists());
}

/// Returns the error of the plan of a run, if it has one.
fn plan_of<M: LanguageModel>(run: &Run, words: &str) -> Option<String> {
    let line = format!("train --threads 1 {}", run.line(words));
    let config = Config::parse(line.split_whitespace()).unwrap();
    Trainer::<M>::new(config).err().map(|error| error.to_string())
}

/// The plan of a model without a dry run cannot tell, so the first step does.
#[test]
fn unused_documents_without_a_dry_run_are_refused_after_a_step() {
    let run = Run::new();
    let save = run.path("never");
    let words = format!("--documents 10 --steps 2 --mesh dp=2 --save {save}");
    assert_eq!(plan_of::<Probing>(&run, &words), None);
    let text = run.train::<Probing>(&words.replace("--documents 10", "")).unwrap_err().to_string();
    assert!(text.starts_with(UNUSED), "{text}");
    assert!(!Path::new(&save).join("latest").exists());
}

#[test]
fn metrics_have_the_padding_of_each_step() {
    let run = Run::new();
    let metrics = run.path("m.jsonl");
    let words = format!("--pack --steps 3 --mesh dp=2 --order shuffled --metrics {metrics}");
    run.train::<Bags>(&words).unwrap();
    let file = TokenFile::from_text(text(), 256, "text").unwrap();
    let options = DocumentOptions { end: 10, packs: true, masks_borders: false };
    let dataset = Dataset::of_documents(file, 24, 8, Order::Shuffled, 0, options).unwrap();
    let lines = std::fs::read_to_string(metrics).unwrap();
    for (step, line) in lines.lines().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let batch = dataset.rows(step as u64, 0..8).unwrap();
        // Padding is the end of documents, as documents that begin and end with it.
        let padding = dataset.padding_of_step(step as u64).unwrap();
        assert_eq!(line["padding"].as_f64().unwrap(), padding, "step {step}");
        let counted = batch.targets.iter().filter(|target| **target != Rows::IGNORED).count();
        assert_eq!(line["tokens"].as_u64().unwrap(), counted as u64, "step {step}");
    }
    run.train::<Bags>(&format!("--steps 1 --mesh 1 --metrics {}", run.path("plain"))).unwrap();
    let plain = std::fs::read_to_string(run.path("plain")).unwrap();
    assert!(!plain.contains("padding"), "{plain}");
}

/// Flags of the models of the examples whose heads can be exchanged among four ranks.
const EXAMPLE: &str = "--heads 4 --lr 0.01";

/// Meshes with flags, of which each trains as one rank does.
const MESHES: [&str; 13] = [
    "--mesh cp=2",
    "--mesh cp=4 --micro-batches 2",
    "--mesh cp=4 --cp gather",
    "--mesh cp=4 --cp ulysses",
    "--mesh cp=4 --cp hybrid=2 --recompute full",
    "--mesh cp=2,tp=2 --micro-batches 2",
    "--mesh fsdp=2,cp=2 --zero 3 --micro-batches 4",
    "--mesh fsdp=2,cp=2 --zero 1 --recompute attn",
    "--mesh pp=2 --micro-batches 4 --schedule zb-h1",
    "--mesh pp=2,cp=2 --micro-batches 2",
    "--mesh pp=2,cp=2,tp=2 --micro-batches 2 --recompute full",
    "--mesh dp=2 --micro-batches 2",
    "--mesh dp=2,tp=2",
];

#[track_caller]
fn check_example<M: LanguageModel>(documents: &str) {
    let run = Run::new();
    let train = |words: &str| {
        let line = run.line(&format!("{EXAMPLE} --documents 10 {documents} {words}"));
        let line = format!("train --steps 3 --sample-tokens 6 {line}");
        let config = Config::parse(line.split_whitespace()).unwrap();
        let trained = Trainer::<M>::new(config).and_then(Trainer::train);
        trained.unwrap_or_else(|error| panic!("{words}: {error}"))
    };
    let one = train("--mesh 1");
    let near = |a: f64, b: f64, tolerance: f64| (a - b).abs() <= tolerance * b.abs();
    for words in MESHES {
        let got = train(words);
        for (found, expected) in got.losses.iter().zip(&one.losses) {
            assert!(
                near(*found, *expected, 5e-6),
                "{documents} {words}: loss {found}, not {expected}"
            );
        }
        for (found, expected) in got.grad_norms.iter().zip(&one.grad_norms) {
            assert!(
                near(*found, *expected, 5e-5),
                "{documents} {words}: norm {found}, not {expected}"
            );
        }
        assert_eq!(got.sample, one.sample, "{documents} {words}");
    }
    let apart = run.train_without_documents::<M>(&format!("{EXAMPLE} --steps 3 --mesh 1")).unwrap();
    assert_ne!(apart.losses, one.losses, "documents matter");
}

#[test]
fn a_llama_trains_on_documents_on_every_mesh() {
    check_example::<Llama>("");
    check_example::<Llama>("--pack --mask-borders --order shuffled");
}

#[test]
fn a_gpt2_trains_on_documents_on_every_mesh() {
    check_example::<Gpt2>("--mask-borders");
    check_example::<Gpt2>("--pack --order shuffled");
}

#[track_caller]
fn check_resumed<M: LanguageModel>(mesh: &str) {
    let run = Run::new();
    let words = format!("{EXAMPLE} --pack --order shuffled --mesh {mesh} --steps 4");
    let saved = run.path("saved");
    let whole = run.train::<M>(&format!("{words} --save {saved} --save-every 2")).unwrap();
    let half = format!("{saved}/step-00000002");
    let rest = run.train::<M>(&format!("{words} --resume {half}")).unwrap();
    assert_eq!(rest.losses, whole.losses[2..], "{mesh}");
    assert_eq!(rest.grad_norms, whole.grad_norms[2..], "{mesh}");
    // A checkpoint does not depend on the ranks of cp.
    let words = words.replace(&format!("--mesh {mesh}"), "--mesh 1");
    let other = run.train::<M>(&format!("{words} --resume {half}")).unwrap();
    for (found, expected) in other.losses.iter().zip(&rest.losses) {
        assert!((found - expected).abs() < 1e-5 * expected, "{mesh}: {found}, not {expected}");
    }
}

#[test]
fn examples_resume_bitwise_with_documents() {
    for mesh in ["cp=4", "pp=2,cp=2 --micro-batches 2", "fsdp=2,cp=2"] {
        check_resumed::<Llama>(mesh);
        check_resumed::<Gpt2>(mesh);
    }
}

/// Counted pair by pair, in the rows that the data has.
#[test]
fn metrics_have_the_balance_of_attention() {
    const STEPS: usize = 3;
    let run = Run::new();
    let metrics = run.path("m.jsonl");
    let balance = |words: &str| {
        let words = format!("{EXAMPLE} --steps {STEPS} --metrics {metrics} {words}");
        let train = if words.contains("--pack") {
            Run::train::<Llama>
        } else {
            Run::train_without_documents::<Llama>
        };
        train(&run, &words).unwrap();
        run.metric(&metrics, "attention_balance")
    };
    let file = TokenFile::from_text(text(), 256, "text").unwrap();
    let options = DocumentOptions { end: 10, packs: true, masks_borders: false };
    let dataset = Dataset::of_documents(file, 24, 8, Order::Shuffled, 0, options).unwrap();
    // Visible pairs of the queries of each rank, in some rows of a step.
    let pairs = |step: usize, rows: std::ops::Range<usize>, ranks: usize| {
        let starts = dataset.rows(step as u64, rows).unwrap().starts.unwrap();
        let mut of_ranks = vec![0u64; ranks];
        for row in starts.chunks(24) {
            for (query, key) in (0..24).flat_map(|query| (0..=query).map(move |key| (query, key))) {
                let chunk = query * 2 * ranks / 24;
                of_ranks[chunk.min(2 * ranks - 1 - chunk)] += u64::from(row[query] == row[key]);
            }
        }
        of_ranks
    };
    let packed = "--pack --order shuffled --mesh";
    for (mesh, ranks, parts) in [
        ("cp=2", 2, 1),
        ("cp=4", 4, 1),
        ("cp=4 --cp gather --micro-batches 2", 4, 2),
        ("dp=2,cp=2", 2, 2),
        ("pp=2,cp=2 --micro-batches 4", 2, 4),
        ("fsdp=2,cp=2,tp=2 --micro-batches 2", 2, 4),
        ("cp=4 --cp hybrid=2", 2, 1),
    ] {
        let found = balance(&format!("{packed} {mesh}"));
        assert_eq!(found.len(), STEPS);
        for (step, found) in found.into_iter().enumerate() {
            // Ranks wait for one another in each micro-batch of each data rank.
            let of_part =
                |part: usize| pairs(step, part * 8 / parts..(part + 1) * 8 / parts, ranks);
            let all: Vec<Vec<u64>> = (0..parts).map(of_part).collect();
            let total: u64 = all.iter().flatten().sum();
            let longest: u64 = all.iter().map(|part| part.iter().max().unwrap()).sum();
            let expected = total as f64 / (ranks as u64 * longest) as f64;
            assert!(expected < 0.99, "packed rows are unequal work");
            let found = found.unwrap();
            assert!(
                (found - expected).abs() < 1e-12,
                "{mesh}, step {step}: {found}, not {expected}"
            );
        }
    }
    assert_eq!(balance(&format!("{packed} cp=4 --cp ulysses")), [Some(1.0); STEPS]);
    assert_eq!(balance("--mesh cp=4"), [Some(1.0); STEPS]);
    assert_eq!(balance(&format!("{packed} dp=2")), [None; STEPS]);
}
