//! One rank's run: build, load, step, save, export, sample.

use std::sync::Mutex;
use std::time::Instant;

use crate::backend::cpu::CpuBackend;
use crate::checkpoint::RankFile;
use crate::comm::{RankComms, Site};
use crate::layout::AxisSet;
use crate::nn::{Built, build};
use crate::optim::{AdamW, AdamWOptions};
use crate::tensor::{Extent, Rank, Tokens};

use super::plan::Plan;
use super::recorder::Recorder;
use super::{
    Error, LanguageModel, MetricsFile, Progress, Result, Summary, sample, saving, weights,
};

/// What the ranks of the process share besides their messages.
pub struct Shared {
    /// The first rank writes.
    pub metrics: Option<Mutex<MetricsFile>>,
    /// What each rank wrote of the checkpoint under way.
    pub rank_files: Mutex<Vec<RankFile>>,
}

impl Shared {
    /// Opens the files that are written while the run goes on.
    pub fn new(plan: &Plan) -> Result<Shared> {
        let metrics = match &plan.config.metrics {
            Some(path) => Some(Mutex::new(MetricsFile::open(path, plan.first_step())?)),
            None => None,
        };
        Ok(Shared { metrics, rank_files: Mutex::default() })
    }
}

/// One rank, ready to train.
pub struct RankLoop<'a, M> {
    plan: &'a Plan,
    shared: &'a Shared,
    rank: Rank,
    built: Built<M>,
    optimizer: AdamW,
    recorder: Option<Recorder<'a>>,
    /// Steps that were done at the last checkpoint.
    saved: Option<u64>,
}

/// What one step came to.
pub struct Step {
    pub loss: f64,
    /// Tokens in the mean of the loss.
    pub tokens: u64,
    pub grad_norm: f64,
    pub lr: f64,
    pub seconds: f64,
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
        if let Some(checkpoint) = &plan.resume {
            weights::load_checkpoint(checkpoint, &mut optimizer)
                .map_err(Error::of_flag("--resume"))?;
        } else if let Some(folder) = &plan.weights {
            weights::import_hf(folder, M::HF_NAMES, &built.params())?;
        }
        let recorder = shared.metrics.as_ref().map(|file| Recorder::new(&rank, &built, plan, file));
        Ok(RankLoop { plan, shared, rank, built, optimizer, recorder, saved: None })
    }

    /// Trains to the last step.
    pub fn run(mut self) -> Result<Summary> {
        let config = &self.plan.config;
        let first = self.plan.first_step();
        let start = Instant::now();
        let mut progress = (self.rank.index() == 0).then(|| Progress::new(first, config.steps));
        let (mut losses, mut grad_norms, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        for step in first..config.steps {
            if let Some(recorder) = &mut self.recorder {
                recorder.begin(&self.rank);
            }
            let done = self.step(step)?;
            if let Some(recorder) = &self.recorder {
                recorder.record(&self.rank, step, &done)?;
            }
            let rate = done.tokens as f64 / done.seconds;
            if let Some(progress) = &mut progress {
                progress.step(step, done.loss, rate);
            }
            losses.push(done.loss);
            grad_norms.push(done.grad_norm);
            rates.push(rate);
            self.save_if_due(step + 1)?;
        }
        if let Some(progress) = &progress {
            progress.finish();
        }
        let elapsed = start.elapsed();
        if let Some(folder) = &config.export_hf {
            let params = self.built.params();
            weights::export_hf(&self.rank, folder, &self.plan.sizes, M::HF_NAMES, &params)?;
        }
        let (sample, prompt_len) = sample::continuation(&self.rank, &self.built.model, self.plan)?;
        rates.sort_by(f64::total_cmp);
        let tokens_per_s = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
        Ok(Summary { losses, grad_norms, tokens_per_s, elapsed, sample, prompt_len })
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
            tokens: mean.count(),
            grad_norm,
            lr,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// This rank's sequences of the global batch, and what follows each of their tokens.
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

    fn save_if_due(&mut self, steps: u64) -> Result<()> {
        let config = &self.plan.config;
        let Some(save) = &config.save else { return Ok(()) };
        let due = save.every.is_some_and(|every| steps.is_multiple_of(every));
        if due || steps == config.steps { self.save(steps, save.keep) } else { Ok(()) }
    }

    /// Saves the state after `steps` steps. Every rank calls it.
    fn save(&mut self, steps: u64, keep: Option<usize>) -> Result<()> {
        saving::save(&self.rank, &self.optimizer, self.plan, self.shared, steps, keep)?;
        self.saved = Some(steps);
        Ok(())
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
        let kept = self.keep_state_before(step);
        Error::Diverged(format!(
            "step {step}: the {what} is {value} {origin}; training stopped, {kept}. A lower --lr, a longer --warmup or \
             cleaner data may help"
        ))
    }

    /// Saves the state before `step`, where the run saves at all, and says where it is.
    fn keep_state_before(&mut self, step: u64) -> String {
        let Some(save) = &self.plan.config.save else {
            return "nothing was saved (--save DIR keeps the state before such a step)".to_owned();
        };
        let kept = format!("the state before this step is in {}", save.dir.display());
        if self.saved == Some(step) {
            return kept;
        }
        match self.save(step, None) {
            Ok(()) => kept,
            Err(error) => format!("the state before this step could not be saved ({error})"),
        }
    }
}
