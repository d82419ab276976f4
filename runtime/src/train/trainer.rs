//! The trainer: one command line, any language model, any mesh.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::checkpoint::hf::{HfFolder, LlamaConfig};
use crate::checkpoint::{Checkpoint, Writer};
use crate::comm::launch;
use crate::data::{DataPosition, Dataset, TokenFile, read_corpus};
use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;

use super::config::{Config, ModelSizes, ModelSource};
use super::rank_loop::{RankLoop, Shared};
use super::{Error, LanguageModel, Result};

/// Trains a `M` as a [`Config`] says.
///
/// ```text
/// fn main() -> meshwright::Result<()> {
///     Trainer::<Llama>::from_args()?.run()
/// }
/// ```
pub struct Trainer<M> {
    plan: Plan,
    model: PhantomData<M>,
}

/// What is settled before the ranks start: files are open, settings checked against each other.
pub(super) struct Plan {
    pub(super) config: Config,
    pub(super) sizes: LlamaConfig,
    pub(super) weights: Option<HfFolder>,
    pub(super) resume: Option<Checkpoint>,
    pub(super) dataset: Dataset,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Loss of every step that was run.
    pub losses: Vec<f64>,
    /// Gradient norm, before clipping, of every step that was run.
    pub grad_norms: Vec<f64>,
    /// Median of tokens per second over all ranks.
    pub tokens_per_s: f64,
    /// The prompt's tokens followed by the sampled ones.
    pub sample: Vec<u32>,
    /// Number of prompt tokens in `sample`.
    pub prompt_len: usize,
}

impl<M: LanguageModel> Trainer<M> {
    /// A trainer with the settings of the command line.
    ///
    /// Bad settings end the process: one message on stderr, code 2. `--help` prints and ends it too.
    ///
    /// # Errors
    /// None at present; the type leaves room for programs that would rather go on.
    pub fn from_args() -> Result<Trainer<M>> {
        let trainer = Config::from_args().map_err(Error::Config).and_then(Trainer::new);
        Ok(trainer.unwrap_or_else(|error| error.exit()))
    }

    /// A trainer with these settings: opens every file the run reads.
    ///
    /// # Errors
    /// Settings that contradict each other or the files, and files that cannot be used.
    pub fn new(config: Config) -> Result<Trainer<M>> {
        Ok(Trainer { plan: Plan::new(config)?, model: PhantomData })
    }

    /// Trains, prints what came of it, and samples a continuation. A failure ends the process: one message on stderr,
    /// code 2.
    ///
    /// # Errors
    /// None at present; see [`train`](Self::train) for a form that returns them.
    pub fn run(self) -> Result<()> {
        let shape = self.plan.config.mesh;
        eprintln!("{}", self.plan.describe());
        let is_text = self.plan.dataset.file().encoding().is_text();
        match self.train() {
            Ok(summary) => summary.print(&shape, is_text),
            Err(error) => error.exit(),
        }
        Ok(())
    }

    /// Trains on the ranks of the mesh, which are threads of this process.
    ///
    /// # Errors
    /// Of the rank that failed first; the others are stopped by it.
    pub fn train(self) -> Result<Summary> {
        let plan = &self.plan;
        let shared = Shared::new(plan)?;
        let summaries =
            launch(&plan.config.mesh, |comms| RankLoop::<M>::new(plan, &shared, comms)?.run())
                .map_err(Error::of_ranks)?;
        summaries.into_iter().next().ok_or_else(|| Error::Input("the mesh has no ranks".into()))
    }
}

impl Plan {
    fn new(config: Config) -> Result<Plan> {
        check_mesh(&config.mesh)?;
        let data_ranks = config.mesh.degree_of(AxisSet::DATA);
        if !config.batch.is_multiple_of(data_ranks) {
            return Err(Error::Input(format!(
                "--batch {} does not divide by the {data_ranks} data-parallel ranks of --mesh {}: each reads as many \
                 sequences",
                config.batch, config.mesh
            )));
        }
        let (sizes, weights) = match &config.model {
            ModelSource::InitFrom(folder) => {
                let folder = HfFolder::open(folder)?;
                (folder.config().clone(), Some(folder))
            }
            ModelSource::New(sizes) => (llama_config(sizes, config.seq), None),
        };
        let file = match &config.data {
            Some(path) => TokenFile::open(path, sizes.vocab)?,
            None => TokenFile::from_text(
                read_corpus(&own_text())?,
                sizes.vocab,
                "the project's own text",
            )?,
        };
        let dataset = Dataset::new(file, config.seq, config.batch, config.order, config.seed)?;
        let resume = config
            .resume
            .as_deref()
            .map(|path| open_checkpoint(path, &config, &dataset))
            .transpose()?;
        if let Some(save) = &config.save {
            Writer::prepare(&save.dir)?;
        }
        Ok(Plan { config, sizes, weights, resume, dataset })
    }

    /// Steps that are done before the run begins.
    pub(super) fn first_step(&self) -> u64 {
        self.resume.as_ref().map_or(0, |checkpoint| checkpoint.manifest().state.step)
    }

    fn describe(&self) -> String {
        let Plan { config, sizes, dataset, .. } = self;
        let source = match &config.model {
            ModelSource::InitFrom(folder) => format!("weights of {}", folder.display()),
            ModelSource::New(_) => format!("a new model from seed {}", config.seed),
        };
        let resumed = match &self.resume {
            Some(checkpoint) => format!(", resumed from {}", checkpoint.folder().display()),
            None => String::new(),
        };
        format!(
            "{source}{resumed}: {} layers of {}, {} query and {} key-value heads, vocabulary {}\n\
             {} ranks ({}), {} threads each; {} tokens of {}; {} sequences of {} a step",
            sizes.layers,
            sizes.hidden,
            sizes.heads,
            sizes.kv_heads,
            sizes.vocab,
            config.mesh.world_size(),
            config.mesh,
            config.threads_per_rank(config.mesh.world_size()),
            dataset.file().len(),
            dataset.file().name(),
            config.batch,
            config.seq,
        )
    }
}

impl Summary {
    fn print(&self, shape: &MeshShape, is_text: bool) {
        let last = self.losses.last().copied().unwrap_or(f64::NAN);
        println!(
            "{} steps on {shape}: loss {last:.4}, {:.0} tokens/s",
            self.losses.len(),
            self.tokens_per_s
        );
        if self.sample.len() > self.prompt_len {
            let (prompt, continuation) = self.sample.split_at(self.prompt_len);
            println!("--- prompt ---\n{}", readable(prompt, is_text));
            println!("--- continuation ---\n{}", readable(continuation, is_text));
        }
    }
}

/// Tokens as text where they are bytes, else as numbers.
fn readable(tokens: &[u32], is_text: bool) -> String {
    if is_text {
        let bytes: Vec<u8> = tokens.iter().map(|token| *token as u8).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    } else {
        tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// The axes that this version can train over.
fn check_mesh(mesh: &MeshShape) -> Result<()> {
    for axis in [AxisId::Pp, AxisId::Fsdp, AxisId::Ep, AxisId::Cp] {
        let degree = mesh.degree(axis);
        if degree > 1 {
            return Err(Error::Input(format!(
                "--mesh: {axis}={degree} comes with a later version; leave it out, or use dp and tp"
            )));
        }
    }
    Ok(())
}

/// The configuration of a new model.
fn llama_config(sizes: &ModelSizes, seq: usize) -> LlamaConfig {
    LlamaConfig {
        hidden: sizes.hidden,
        ffn: sizes.ffn,
        layers: sizes.layers,
        heads: sizes.heads,
        kv_heads: sizes.kv_heads,
        head_dim: sizes.hidden / sizes.heads,
        vocab: sizes.vocab,
        norm_eps: 1e-5,
        rope_theta: 10_000.0,
        tied: sizes.tied,
        max_positions: seq,
        bos: serde_json::Value::Null,
        eos: serde_json::Value::Null,
    }
}

/// The project's own book and sources, the text of a run without `--data`.
fn own_text() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    ["README.md", "book/src", "examples", "macros/src", "runtime/src"]
        .map(|part| root.join(part))
        .into()
}

fn open_checkpoint(path: &Path, config: &Config, dataset: &Dataset) -> Result<Checkpoint> {
    let checkpoint = Checkpoint::open(path)?;
    for skipped in checkpoint.skipped() {
        eprintln!("warning: {skipped}; going on from {}", checkpoint.folder().display());
    }
    let state = &checkpoint.manifest().state;
    state.data.check_resume(&DataPosition::after(state.step, dataset))?;
    if state.step >= config.steps {
        return Err(Error::Input(format!(
            "--resume: {} is of step {}, and --steps {} counts from the beginning: nothing is left to train",
            checkpoint.folder().display(),
            state.step,
            config.steps
        )));
    }
    Ok(checkpoint)
}
