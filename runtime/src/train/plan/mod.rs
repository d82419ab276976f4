//! What is settled before the ranks start: settings are checked against files, model and mesh, and files are open.

use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::cpu::CpuBackend;
use crate::checkpoint::hf::{HfExport, HfFolder, HfFormat};
use crate::checkpoint::{Checkpoint, Writer};
use crate::comm::RankComms;
use crate::data::{Dataset, Tokenizer};
use crate::layout::{AxisId, AxisSet};
use crate::nn::{Built, Sizes, declare};
use crate::tensor::{ParamRef, Rank};

use super::config::{Config, Device, ModelSource};
use super::console::{counted, say, with_commas};
use super::machine::Machine;
use super::{Error, Family, LanguageModel, Outline, Result, weights};

mod dataset;
mod memory;
mod resume;

use memory::{Kept, kept_of, units_of};

pub use memory::MemoryPlan;

/// Most threads of all ranks together: ranks are threads of one process, and more of them only wait for each other.
const MAX_THREADS: usize = 1024;

/// Everything that a run reads, and the settings that were found to fit it.
pub struct Plan {
    pub config: Config,
    /// What the ranks compute on.
    pub machine: Box<dyn Machine>,
    /// What the model is, in the terms of all families.
    pub outline: Outline,
    /// The sizes of its dims, and what of it is recomputed.
    pub sizes: Sizes,
    /// What `--export-hf` writes.
    pub export: Option<HfFormat>,
    /// Elements of the model's parameters.
    pub parameters: usize,
    /// What a rank needs at the least.
    pub memory: MemoryPlan,
    pub weights: Option<HfFolder>,
    pub resume: Option<Checkpoint>,
    pub dataset: Arc<Dataset>,
    /// What turns tokens into text, if that is known.
    pub tokenizer: Option<Tokenizer>,
}

impl Plan {
    /// Opens every file that the run reads, and judges the settings by them. Nothing is written yet.
    pub fn new<M: LanguageModel>(config: Config, machine: Box<dyn Machine>) -> Result<Plan> {
        check_mesh(&config)?;
        let (family, weights) = configuration::<M::Config>(&config)?;
        let outline = family.outline();
        let mut sizes = M::sizes(&family);
        sizes.recompute = config.recompute.or(sizes.recompute);
        check_length(&config, &outline, sizes.get::<M::Seq>())?;
        // Before anything is made of sizes that nothing could hold.
        let available = machine.memory();
        MemoryPlan::of_sizes(&config, &outline, Kept::Unknown, available)
            .check(&config, available)?;
        let built = declared::<M>(&config, &sizes)?;
        let (kept, units) = (kept_of(&config, &built), units_of(&built));
        let memory = MemoryPlan::of_units(&config, &outline, kept, &units, available);
        memory.check(&config, available)?;
        let params = built.params();
        let export = config.export_hf.as_ref().map(|_| HfFormat::of(&family));
        if let Some(format) = &export {
            weights::check_export(format, M::HF_NAMES, &params)?;
        }
        let (file, tokenizer) = dataset::open(&config, outline.vocab)?;
        let dataset = Dataset::new(file, config.seq, config.batch, config.order, config.seed)?;
        let resume = match &config.resume {
            Some(path) => Some(resume::open(path, &config, &dataset, &params)?),
            None => None,
        };
        let parameters = params.iter().map(ParamRef::global_len).sum();
        let dataset = Arc::new(dataset);
        Ok(Plan {
            config,
            machine,
            outline,
            sizes,
            export,
            parameters,
            memory,
            weights,
            resume,
            dataset,
            tokenizer,
        })
    }

    /// Makes sure that the run can write where it is told to, before any work is lost, and that this is not what it
    /// reads.
    pub fn prepare_outputs(&self) -> Result<()> {
        let real = |path: &Option<PathBuf>| path.as_ref().and_then(|path| path.canonicalize().ok());
        let Config { data, tokenizer, metrics, trace, .. } = &self.config;
        let used = [("--data", data), ("--tokenizer", tokenizer), ("--metrics", metrics)];
        for (output, path, others) in
            [("--metrics", metrics, &used[..2]), ("--trace", trace, &used[..])]
        {
            let taken = |other: &Option<PathBuf>| {
                path.is_some() && other == path
                    || real(path).is_some_and(|path| real(other) == Some(path))
            };
            if let Some((flag, _)) = others.iter().find(|(_, other)| taken(other)) {
                return Err(Error::Input(format!(
                    "{output}: is the file of {flag}, too; give another one to write to"
                )));
            }
        }
        if let Some(path) = self.trace_file() {
            std::fs::File::create(&path).map_err(|error| {
                Error::Input(format!("--trace: cannot write {}: {error}", path.display()))
            })?;
        }
        if let Some(save) = &self.config.save {
            Writer::prepare(&save.dir).map_err(Error::of_flag("--save"))?;
        }
        if let Some(folder) = &self.config.export_hf {
            HfExport::prepare(folder).map_err(Error::of_flag("--export-hf"))?;
        }
        Ok(())
    }

    /// Where the trace goes. Processes beside that of rank 0 put their numbers before the ending.
    pub fn trace_file(&self) -> Option<PathBuf> {
        let path = self.config.trace.as_ref()?;
        let Some(rank) = self.machine.own_rank().filter(|rank| *rank > 0) else {
            return Some(path.clone());
        };
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        Some(path.with_extension(format!("rank{rank}.{ending}")))
    }

    /// Steps that are done before the run begins.
    pub fn first_step(&self) -> u64 {
        self.resume.as_ref().map_or(0, |checkpoint| checkpoint.manifest().state.step)
    }

    /// What is going to be trained, on what, for the user.
    pub fn describe(&self) -> String {
        let Plan { config, outline, dataset, .. } = self;
        let tokenizer = match &self.tokenizer {
            Some(tokenizer) if !tokenizer.is_bytes() => format!(" ({})", tokenizer.name()),
            _ => String::new(),
        };
        let source = match (&self.resume, &config.model) {
            (Some(checkpoint), _) => format!("resuming {}", checkpoint.folder().display()),
            (None, ModelSource::InitFrom(folder)) => format!("weights of {}", folder.display()),
            (None, ModelSource::New(_)) => format!("a new model from seed {}", config.seed),
        };
        format!(
            "{source}: {} parameters, {} layers of width {}, {} query and {} key-value heads, vocabulary {}\n\
             {}; {} sequences of {} tokens a step, from the {} tokens of {}{tokenizer}",
            with_commas(self.parameters as u64),
            outline.layers,
            outline.hidden,
            outline.heads,
            outline.kv_heads,
            outline.vocab,
            format_args!("{} with {}", on_mesh(config), self.machine.describe()),
            config.batch,
            config.seq,
            with_commas(dataset.file().len() as u64),
            dataset.file().name(),
        )
    }
}

/// `4 ranks (dp=2,tp=2)`, `1 rank`.
pub fn on_mesh(config: &Config) -> String {
    match config.mesh.world_size() {
        1 => "1 rank".to_owned(),
        world => format!("{world} ranks ({})", config.mesh),
    }
}

/// `4 ranks (dp=2,tp=2) with 1 thread each`, `1 rank with 2 threads`.
fn with_threads(config: &Config) -> String {
    let world = config.mesh.world_size();
    let threads = counted(config.threads_per_rank(world), "thread");
    let each = if world == 1 { "" } else { " each" };
    format!("{} with {threads}{each}", on_mesh(config))
}

/// The configuration of the model to train, and the folder that its weights come from.
fn configuration<F: Family>(config: &Config) -> Result<(F, Option<HfFolder>)> {
    match &config.model {
        ModelSource::InitFrom(folder) => {
            let opened = HfFolder::open::<F>(folder).map_err(Error::of_flag("--init-from"));
            let (family, weights) = opened?;
            if let Some(left_out) = family.warning() {
                say(&format!("warning: --init-from {}: {left_out}", folder.display()));
            }
            Ok((family, Some(weights)))
        }
        ModelSource::New(sizes) => {
            Ok((F::of_sizes(sizes, config.seq).map_err(Error::Input)?, None))
        }
    }
}

/// A model with a table of positions has no others, and one with parameters over its sequence dim has sequences of
/// `fixed` tokens only.
fn check_length(config: &Config, outline: &Outline, fixed: Option<usize>) -> Result<()> {
    let seq = config.seq;
    let advice = match (fixed, outline.longest) {
        (Some(fixed), _) if fixed != seq => {
            format!("the model's sequences have {fixed} tokens; use --seq {fixed}")
        }
        (_, Some(longest)) if longest < seq => {
            format!("the model has {longest} positions; use at most --seq {longest}")
        }
        _ => return Ok(()),
    };
    Err(Error::Input(format!("--seq: {seq} does not fit: {advice}")))
}

/// The axes that this version can train over, and as many ranks as a process can hold and a batch can feed.
fn check_mesh(config: &Config) -> Result<()> {
    let mesh = &config.mesh;
    let later: Vec<String> = [AxisId::Pp, AxisId::Ep, AxisId::Cp]
        .into_iter()
        .filter(|axis| mesh.degree(*axis) > 1)
        .map(|axis| format!("{axis}={}", mesh.degree(axis)))
        .collect();
    if !later.is_empty() {
        return Err(Error::Input(format!(
            "--mesh: {} comes with a later version; leave it out, or use dp, fsdp and tp",
            later.join(",")
        )));
    }
    let world = mesh.world_size();
    let threads = match config.device {
        Device::Cpu => config.threads_per_rank(world),
        Device::Cuda => 1,
    };
    if world.saturating_mul(threads) > MAX_THREADS {
        return Err(Error::Input(format!(
            "{} are too many: ranks are threads of this process, which starts at most {MAX_THREADS} threads in \
             all; use a smaller --mesh or fewer --threads",
            with_threads(config)
        )));
    }
    check_batch(config)
}

/// Every data rank reads as many sequences of a step, and as many in every micro-batch.
fn check_batch(config: &Config) -> Result<()> {
    let mesh = &config.mesh;
    let parts = mesh.degree_of(AxisSet::DATA).saturating_mul(config.micro_batches);
    if config.batch.is_multiple_of(parts) {
        return Ok(());
    }
    let mut factors: Vec<String> = AxisSet::DATA
        .iter()
        .filter(|axis| mesh.degree(*axis) > 1)
        .map(|axis| format!("{axis}={} of --mesh", mesh.degree(axis)))
        .collect();
    if config.micro_batches > 1 {
        factors.push(format!("--micro-batches {}", config.micro_batches));
    }
    Err(Error::Input(format!(
        "--batch {} does not divide into {parts} equal parts ({}); use a multiple of {parts}",
        config.batch,
        factors.join(" x ")
    )))
}

/// A model as it is on the last rank of the mesh, which has most of what does not divide evenly, if all of its sizes
/// fit. No other rank exists yet, and nothing is allocated.
fn declared<M: LanguageModel>(config: &Config, sizes: &Sizes) -> Result<Built<M>> {
    let backend = CpuBackend::new(1).map_err(|error| Error::Input(error.to_string()))?;
    let comms = RankComms::unattended(config.mesh);
    let rank = Rank::with_settings(comms, Box::new(backend), config.settings());
    let declared = declare::<M>(&rank, sizes);
    declared.map_err(|error| {
        Error::Input(format!(
            "{error}\nuse a --mesh whose degrees divide these sizes, or other sizes; this mesh is {}",
            config.mesh
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_threads_read_well() {
        let place = |line: &str| with_threads(&Config::parse(line.split(' ')).unwrap());
        assert_eq!(place("t --mesh 1 --threads 2"), "1 rank with 2 threads");
        assert_eq!(place("t --mesh tp=2 --threads 1"), "2 ranks (tp=2) with 1 thread each");
    }
}
