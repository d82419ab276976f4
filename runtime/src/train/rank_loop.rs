//! One rank's run: build, load, step, save, sample.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::backend::cpu::CpuBackend;
use crate::checkpoint::{RankFile, TrainState, Writer};
use crate::comm::{RankComms, Site};
use crate::data::DataPosition;
use crate::layout::AxisSet;
use crate::nn::{Built, build};
use crate::optim::{AdamW, AdamWOptions};
use crate::tensor::{Extent, Rank, Tokens};

use super::flops::{measure_peak, model_flops_per_token};
use super::trainer::{Plan, Summary};
use super::{Error, LanguageModel, MetricsFile, Progress, Result, StepMetrics, sample, weights};

/// What the ranks of the process share besides their messages.
pub struct Shared {
    metrics: Option<Mutex<MetricsFile>>,
    /// What each rank wrote of the checkpoint under way.
    rank_files: Mutex<Vec<RankFile>>,
}

impl Shared {
    /// Opens the files that the run writes.
    pub fn new(plan: &Plan) -> Result<Shared> {
        let metrics =
            plan.config.metrics.as_deref().map(|path| MetricsFile::open(path, plan.first_step()));
        Ok(Shared { metrics: metrics.transpose()?.map(Mutex::new), rank_files: Mutex::default() })
    }
}

/// One rank, ready to train.
pub struct RankLoop<'a, M> {
    plan: &'a Plan,
    shared: &'a Shared,
    rank: Rank,
    built: Built<M>,
    optimizer: AdamW,
    /// FLOP/s of all ranks together.
    peak: f64,
}

/// What one step came to.
struct Step {
    loss: f64,
    tokens: u64,
    grad_norm: f64,
    lr: f64,
    seconds: f64,
}

impl<'a, M: LanguageModel> RankLoop<'a, M> {
    /// Builds the model on this rank and gives it its weights.
    pub fn new(plan: &'a Plan, shared: &'a Shared, comms: RankComms) -> Result<Self> {
        let config = &plan.config;
        let threads = config.threads_per_rank(config.mesh.world_size());
        let backend = CpuBackend::new(threads).map_err(|error| {
            Error::Input(format!("--threads {threads}: the threads could not be started: {error}"))
        })?;
        let rank = Rank::new(comms, Box::new(backend), config.seed);
        let built = build::<M>(&rank, &M::sizes(&plan.sizes))?;
        let options = AdamWOptions {
            betas: config.optimizer.betas,
            eps: config.optimizer.eps,
            weight_decay: config.optimizer.weight_decay,
        };
        let mut optimizer = AdamW::new(&rank, &built.units, options);
        let params = built.params();
        if let Some(checkpoint) = &plan.resume {
            checkpoint.check_names(weights::checkpoint_names(&params))?;
            weights::load_checkpoint(checkpoint, &mut optimizer)?;
        } else if let Some(folder) = &plan.weights {
            weights::import_hf(folder, M::HF_NAMES, &params)?;
        }
        let mut peak = [measure_peak(&rank)];
        rank.all_reduce_f64(AxisSet::ALL, &Site::new("peak FLOP/s"), &mut peak);
        Ok(RankLoop { plan, shared, rank, built, optimizer, peak: peak[0] })
    }

    /// Trains to the last step.
    pub fn run(mut self) -> Result<Summary> {
        let config = &self.plan.config;
        let first = self.plan.first_step();
        let is_first_rank = self.rank.index() == 0;
        let mut progress = is_first_rank.then(|| Progress::new(first, config.steps));
        let (mut losses, mut grad_norms, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        for step in first..config.steps {
            let flops = self.rank.backend().flops();
            let bytes = self.rank.comms().bytes_by_axes();
            let done = self.step(step)?;
            let rate = done.tokens as f64 / done.seconds;
            self.record(step, &done, flops, &bytes)?;
            if let Some(progress) = &mut progress {
                progress.step(step, done.loss, rate);
            }
            losses.push(done.loss);
            grad_norms.push(done.grad_norm);
            rates.push(rate);
            if let Some(save) = &config.save {
                let due = save.every.is_some_and(|every| (step + 1).is_multiple_of(every));
                if due || step + 1 == config.steps {
                    self.save(&save.dir, step + 1, save.keep)?;
                }
            }
        }
        if let Some(progress) = &progress {
            progress.finish();
        }
        if let Some(folder) = &config.export_hf {
            weights::export_hf(
                &self.rank,
                folder,
                &self.plan.sizes,
                M::HF_NAMES,
                &self.built.params(),
            )?;
        }
        let (sample, prompt_len) = sample::continuation(&self.rank, &self.built.model, self.plan)?;
        rates.sort_by(f64::total_cmp);
        let tokens_per_s = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
        Ok(Summary { losses, grad_norms, tokens_per_s, sample, prompt_len })
    }

    fn step(&mut self, step: u64) -> Result<Step> {
        let start = Instant::now();
        let config = &self.plan.config;
        self.rank.set_step(step);
        let (tokens, targets) = self.batch(step)?;
        let loss = self.built.model.loss(&tokens, &targets);
        let mean = loss.reduce();
        if !mean.value().is_finite() {
            return Err(self.diverged(step, "loss", mean.value(), loss.local_sum()));
        }
        let mut gradients = loss.backward().reduce();
        let grad_norm = match config.optimizer.clip {
            Some(max_norm) => gradients.clip(max_norm),
            None => gradients.norm(),
        };
        if !grad_norm.is_finite() {
            return Err(self.diverged(step, "gradient norm", grad_norm, gradients.local_squares()));
        }
        let lr = config.optimizer.lr.at(step);
        self.optimizer.step(lr, gradients);
        Ok(Step {
            loss: mean.value(),
            tokens: (config.batch * config.seq) as u64,
            grad_norm,
            lr,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// This rank's sequences of the global batch.
    #[allow(clippy::type_complexity, reason = "the two are what the model's loss takes")]
    fn batch(&self, step: u64) -> Result<(Tokens<(M::Batch, M::Seq)>, Tokens<(M::Batch, M::Seq)>)> {
        let config = &self.plan.config;
        let data = AxisSet::DATA;
        let rows = Extent::part(config.batch, self.rank.position(data), self.rank.degree_of(data));
        let batch = self.plan.dataset.rows(step, rows.offset..rows.offset + rows.local)?;
        let sizes = [config.batch, config.seq];
        let tokens = Tokens::from_block(&self.rank, &sizes, &batch.tokens);
        let targets = Tokens::from_block(&self.rank, &sizes, &batch.targets);
        Ok((tokens, targets))
    }

    /// Says at which step and on which rank a number was no longer finite. Every rank calls it; the model is as it was
    /// before the step, and is saved where the run saves at all.
    fn diverged(&mut self, step: u64, what: &str, value: f64, local: f64) -> Error {
        let world = self.rank.comms().shape().world_size();
        let mut bad = vec![0.0; world];
        bad[self.rank.index()] = if local.is_finite() { 0.0 } else { 1.0 };
        self.rank.all_reduce_f64(AxisSet::ALL, &Site::new("divergence"), &mut bad);
        let ranks: Vec<String> =
            (0..world).filter(|rank| bad[*rank] > 0.0).map(|rank| rank.to_string()).collect();
        let origin = match ranks.as_slice() {
            [] => "in the sum over all ranks".to_owned(),
            [rank] => format!("on rank {rank}"),
            ranks => format!("on ranks {}", ranks.join(", ")),
        };
        let kept = match &self.plan.config.save {
            Some(save) => match self.save(&save.dir, step, None) {
                Ok(()) => format!("the state before this step is in {}", save.dir.display()),
                Err(error) => format!("the state before this step could not be saved: {error}"),
            },
            None => "nothing was saved (--save DIR keeps the state before such a step)".to_owned(),
        };
        Error::Diverged(format!(
            "step {step}: the {what} is {value} {origin}; training stopped, {kept}. A lower --lr, a longer --warmup or \
             cleaner data may help"
        ))
    }

    /// Writes a checkpoint after `steps` steps; every rank writes its own file.
    fn save(&mut self, dir: &Path, steps: u64, keep: Option<usize>) -> Result<()> {
        let world = self.rank.comms().world();
        let site = Site::new("--save");
        let mut writer = (self.rank.index() == 0).then(|| Writer::begin(dir, steps)).transpose()?;
        world.barrier(&site)?;
        let writer = writer.take().unwrap_or_else(|| Writer::join(dir, steps));
        let blocks = weights::checkpoint_blocks(&self.rank, &mut self.optimizer);
        let entries: Vec<_> = blocks.iter().map(weights::Block::entry).collect();
        let file = writer.write_rank(self.rank.index(), &entries)?;
        self.shared.rank_files.lock().unwrap_or_else(PoisonError::into_inner).push(file);
        world.barrier(&site)?;
        if self.rank.index() == 0 {
            let config = &self.plan.config;
            let mut files = std::mem::take(
                &mut *self.shared.rank_files.lock().unwrap_or_else(PoisonError::into_inner),
            );
            files.sort_by(|a, b| a.name.cmp(&b.name));
            let state = TrainState {
                step: steps,
                seed: config.seed,
                mesh: config.mesh.to_string(),
                data: DataPosition::after(steps, &self.plan.dataset),
                config: serde_json::to_value(config).unwrap_or_default(),
            };
            writer.commit(files, state, keep)?;
        }
        Ok(world.barrier(&site)?)
    }

    /// Writes the step's line of metrics: every rank contributes, the first one writes.
    fn record(
        &self,
        step: u64,
        done: &Step,
        flops_before: u64,
        bytes_before: &BTreeMap<AxisSet, u64>,
    ) -> Result<()> {
        let Some(metrics) = &self.shared.metrics else { return Ok(()) };
        let comm_bytes = self.comm_bytes(bytes_before);
        let mut flops = [(self.rank.backend().flops() - flops_before) as f64];
        self.rank.all_reduce_f64(AxisSet::ALL, &Site::new("--metrics"), &mut flops);
        let peak_bytes = self.peak_bytes()?;
        if self.rank.index() != 0 {
            return Ok(());
        }
        let (config, sizes) = (&self.plan.config, &self.plan.sizes);
        let embedding = M::HF_NAMES
            .iter()
            .find(|name| name.name.contains("embed_tokens"))
            .map_or("", |name| name.path);
        let per_token = model_flops_per_token(&self.built, embedding, sizes.tied, config.seq);
        let line = StepMetrics {
            step,
            loss: done.loss,
            grad_norm: done.grad_norm,
            lr: done.lr,
            tokens: done.tokens,
            step_ms: done.seconds * 1e3,
            tokens_per_s: done.tokens as f64 / done.seconds,
            mfu: per_token * done.tokens as f64 / done.seconds / self.peak,
            hfu: flops[0] / done.seconds / self.peak,
            peak_bytes,
            comm_bytes,
        };
        Ok(metrics.lock().unwrap_or_else(PoisonError::into_inner).write(&line)?)
    }

    /// Bytes that this rank sent since `before`, by axis.
    fn comm_bytes(&self, before: &BTreeMap<AxisSet, u64>) -> BTreeMap<String, u64> {
        let sent = self.rank.comms().bytes_by_axes();
        let since = sent
            .iter()
            .map(|(axes, bytes)| (*axes, bytes - before.get(axes).copied().unwrap_or(0)));
        since
            .filter(|(axes, bytes)| !axes.is_empty() && *bytes > 0)
            .map(|(axes, bytes)| (axes.to_string(), bytes))
            .collect()
    }

    /// Most bytes of any rank, by category, and of all categories together.
    fn peak_bytes(&self) -> Result<BTreeMap<&'static str, u64>> {
        let meter = self.rank.meter();
        let mut own: Vec<(&'static str, u64)> =
            meter.peak().map(|(category, bytes)| (category.name(), bytes as u64)).collect();
        own.push(("total", meter.total_peak() as u64));
        let halves: Vec<u32> =
            own.iter().flat_map(|(_, bytes)| [(bytes >> 32) as u32, *bytes as u32]).collect();
        let world = self.rank.comms().world();
        let counts = vec![halves.len(); world.size()];
        let mut all = vec![0u32; halves.len() * world.size()];
        let is_root = self.rank.index() == 0;
        let room = is_root.then(|| all.as_mut_slice().into());
        world.gather(&Site::new("--metrics"), 0, halves.as_slice().into(), room, &counts)?;
        let most = |index: usize| {
            all.chunks_exact(halves.len())
                .map(|rank| u64::from(rank[2 * index]) << 32 | u64::from(rank[2 * index + 1]))
                .max()
                .unwrap_or(0)
        };
        Ok(own.iter().enumerate().map(|(index, (name, _))| (*name, most(index))).collect())
    }
}
