//! One rank's run: build, load, step, save, export, sample.

use std::sync::Mutex;
use std::time::Instant;

use crate::comm::{RankComms, Site};
use crate::data::{MicroBatch, Prefetch};
use crate::layout::AxisSet;
use crate::nn::{Built, build};
use crate::optim::{Ema, Optimizer, ParamGroups};
use crate::tensor::{Extent, Gradients, Mean, Rank, Reduced, Settings, scope};

use super::batch_check::check_first_batches;
use super::graphs::{Graphs, Turn};
use super::plan::Plan;
use super::recorder::Recorder;
use super::report::Totals;
use super::trained::{self, Trained, TrainedMut};
use super::{
    Error, LanguageModel, MetricsFile, Progress, Result, Summary, sample, saving, weights,
};

/// What the ranks of the process share besides their messages.
pub struct Shared {
    /// The first rank writes.
    pub metrics: Option<Mutex<MetricsFile>>,
}

impl Shared {
    /// Opens the files that are written while the run goes on.
    pub fn new(plan: &Plan) -> Result<Shared> {
        let metrics = match &plan.config.metrics {
            // Of several processes that of rank 0 writes.
            _ if plan.machine.own_rank().is_some_and(|rank| rank > 0) => None,
            Some(path) => Some(Mutex::new(MetricsFile::open(path, plan.first_step())?)),
            None => None,
        };
        Ok(Shared { metrics })
    }
}

/// One rank, ready to train.
pub struct RankLoop<'a, M: LanguageModel> {
    plan: &'a Plan,
    rank: Rank,
    graphs: Graphs<(M::Batch, M::Seq)>,
    built: Built<M>,
    optimizer: Optimizer,
    average: Option<Ema>,
    recorder: Option<Recorder<'a>>,
    batches: Prefetch,
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
        let backend = plan.machine.backend(comms.rank())?;
        let comms = plan.machine.connect(comms, &*backend)?;
        let logits_limit = plan.memory.logits_limit();
        let settings = Settings { logits_limit, ..config.settings() };
        let rank = Rank::with_settings(comms, backend, settings);
        let built = build::<M>(&rank, &plan.sizes)?;
        let params = built.params();
        if let (None, Some(folder)) = (&plan.resume, &plan.weights) {
            weights::import_hf(folder, M::HF_NAMES, &params)?;
        }
        let (rule, groups) = (config.optimizer.rule(), ParamGroups::default());
        let mut optimizer = Optimizer::with_groups(&rank, &built.units, rule, &groups)?;
        let mut average = config.optimizer.ema.map(|decay| Ema::new(&rank, &built.units, decay));
        if let Some(checkpoint) = &plan.resume {
            let (optimizer, average) = (&mut optimizer, average.as_mut());
            let trained = TrainedMut { params: &params, optimizer, average };
            trained::load_from(checkpoint, trained).map_err(Error::of_flag("--resume"))?;
        }
        let recorder = (config.metrics.as_ref())
            .map(|_| Recorder::new(&rank, &built, plan, shared.metrics.as_ref()));
        let data = AxisSet::DATA;
        let rows = Extent::part(config.batch, rank.position(data), rank.degree_of(data));
        let rows = rows.offset..rows.offset + rows.local;
        let batches = Prefetch::start(&plan.dataset, rows, plan.first_step()..config.steps)?;
        let hindrance = plan.machine.why_not_recorded();
        let graphs = Graphs::new(&rank, config.graphs, hindrance.as_deref());
        let saved = None;
        Ok(RankLoop { plan, rank, graphs, built, optimizer, average, recorder, batches, saved })
    }

    /// Trains to the last step.
    pub fn run(mut self) -> Result<Summary> {
        let config = &self.plan.config;
        let first = self.plan.first_step();
        let start = Instant::now();
        let mut progress = (self.rank.index() == 0).then(|| Progress::new(first, config.steps));
        let mut totals = Totals::default();
        let (mut losses, mut grad_norms, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        check_first_batches(&self.rank, config.batch, self.batches.peek(first)?)?;
        self.rank.declared_values().compare(&self.rank);
        for step in first..config.steps {
            if let Some(recorder) = &mut self.recorder {
                recorder.begin(&self.rank);
            }
            let rank = self.rank.clone();
            let done = totals.count(&rank, || self.step(step))?;
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
        totals.count(&self.rank, || self.rank.finish_trace());
        self.graphs.close();
        let report = totals.report(&self.rank, &self.plan.memory)?;
        let mut average = self.average.take();
        let (sample, prompt_len) = match &mut average {
            Some(average) => average.with_average(|| self.hand_over()),
            None => self.hand_over(),
        }?;
        rates.sort_by(f64::total_cmp);
        let tokens_per_s = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
        Ok(Summary { losses, grad_norms, tokens_per_s, elapsed, report, sample, prompt_len })
    }

    /// Exports the model, and samples a continuation and the length of its prompt.
    fn hand_over(&self) -> Result<(Vec<u32>, usize)> {
        if let (Some(folder), Some(format)) = (&self.plan.config.export_hf, &self.plan.export) {
            let params = self.built.params();
            weights::export_hf(&self.rank, folder, format, M::HF_NAMES, &params)?;
        }
        sample::continuation(&self.rank, &self.built.model, self.plan)
    }

    fn step(&mut self, step: u64) -> Result<Step> {
        let start = Instant::now();
        let config = &self.plan.config;
        self.rank.set_step(step);
        let (mean, mut gradients) = self.differentiate(step)?;
        let grad_norm = match config.optimizer.clip {
            Some(max_norm) => gradients.clip(max_norm),
            None => gradients.norm(),
        };
        if !grad_norm.is_finite() {
            return Err(self.diverged(step, "gradient norm", grad_norm, gradients.local_squares()));
        }
        let lr = config.optimizer.lr.at(step);
        let span = scope::begin();
        match &mut self.average {
            Some(average) => self.optimizer.step_and_average(lr, gradients, average),
            None => self.optimizer.step(lr, gradients),
        }
        scope::record("optimizer", span);
        Ok(Step {
            loss: mean.value(),
            tokens: mean.count(),
            grad_norm,
            lr,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// Loss and gradients of a step.
    fn differentiate(&mut self, step: u64) -> Result<(Mean, Gradients<Reduced>)> {
        let batch = self.batches.take(step)?;
        let config = &self.plan.config;
        let count = config.micro_batches;
        let parts: Vec<MicroBatch<'_>> =
            (0..count).map(|index| batch.micro_batch(count, index)).collect();
        let turn = Turn { step, sizes: [config.batch, config.seq], parts: &parts };
        let model = &self.built.model;
        let (losses, gradients) =
            self.graphs
                .differentiate(&self.rank, &turn, |tokens, targets| model.loss(tokens, targets));
        // Only now: a device that is asked for a loss has the backward pass to go on with.
        let mut mean = Mean::default();
        for loss in losses {
            let of_all = loss.reduce();
            if !of_all.value().is_finite() {
                return Err(self.diverged(step, "loss", of_all.value(), loss.local_sum()));
            }
            mean += of_all;
        }
        Ok((mean, gradients.reduce()))
    }

    fn save_if_due(&mut self, steps: u64) -> Result<()> {
        let config = &self.plan.config;
        let Some(save) = &config.save else { return Ok(()) };
        let due = save.every.is_some_and(|every| steps.is_multiple_of(every));
        if due || steps == config.steps { self.save(steps, save.keep) } else { Ok(()) }
    }

    /// Saves the state after `steps` steps. Every rank calls it.
    fn save(&mut self, steps: u64, keep: Option<usize>) -> Result<()> {
        let (optimizer, average) = (&self.optimizer, self.average.as_ref());
        let trained = Trained { params: &self.built.params(), optimizer, average };
        saving::save(&self.rank, &trained, self.plan, steps, keep)?;
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
