//! Training runs of a small model on a mesh, with their results gathered.

use std::ffi::OsStr;
use std::sync::Arc;

use meshwright::backend::Backend;
use meshwright::backend::cpu::CpuBackend;
use meshwright::comm::{CommError, RankComms, launch};
use meshwright::layout::Shape;
use meshwright::nn::{Build, Sizes, build};
use meshwright::optim::{AdamWOptions, Optimizer, UpdateRule};
use meshwright::tensor::{Gradients, Loss, Mean, ParamRef, Rank, Settings};
use meshwright::train::{Config, LanguageModel, Machine, Optimizers, Summary, Trainer};
use meshwright_examples::lion::Lion;

use crate::compare::{Tensors, assert_same_bits};
use crate::data::Turn;

/// Settings of a run.
#[derive(Clone)]
pub struct Setup {
    /// Sizes of the model.
    pub sizes: Sizes,
    /// Training steps.
    pub steps: u64,
    /// Threads of each rank.
    pub threads: usize,
    /// The machine that ranks compute on; `None` for the CPU.
    pub machine: Option<Arc<dyn Machine>>,
    /// Update rule of the parameters.
    pub optimizer: Arc<dyn UpdateRule>,
    /// Learning rate.
    pub lr: f64,
    /// Settings of the ranks, such as dtype and ZeRO stage.
    pub settings: Settings,
    /// Gradient-accumulation steps (micro-batches) per rank.
    pub micro_batches: usize,
    /// True to clip gradients to a norm of 1.
    pub clips: bool,
}

impl Setup {
    /// Ten steps of a model with these sizes.
    pub fn new(sizes: Sizes) -> Setup {
        Setup {
            sizes,
            steps: 10,
            threads: 1,
            machine: None,
            optimizer: Arc::new(AdamWOptions::default()),
            lr: 3e-3,
            settings: Settings::new(7),
            micro_batches: 1,
            clips: true,
        }
    }
}

/// The results of a run, which are the same on every mesh up to the order of summation.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Loss of each step, before its update.
    pub losses: Vec<f64>,
    /// Gradient norm of each step, before clipping.
    pub norms: Vec<f64>,
    /// Global gradients of the trained parameters in the first step.
    pub gradients: Tensors,
    /// Global parameters before the first step.
    pub initial: Tensors,
    /// Global parameters after the last step.
    pub trained: Tensors,
}

/// Removes results that are rounding noise. Softmax is invariant to a bias of the keys, so its gradient is noise, which
/// AdamW turns into updates. The gradient is compared together with that of the queries' bias, with which a GPT-2
/// stores it, and the updated bias is not compared.
pub fn without_noise(mut outcome: Outcome) -> Outcome {
    let is_noise = |path: &String| path.ends_with(".k_bias.bias");
    let noise: Vec<String> =
        outcome.gradients.keys().filter(|path| is_noise(path)).cloned().collect();
    for path in noise {
        let gradient = outcome.gradients.remove(&path).unwrap_or_default();
        let queries = outcome.gradients.get_mut(&path.replace("k_bias", "q_bias"));
        queries.expect("queries have a bias").extend(gradient);
        outcome.trained.remove(&path);
    }
    outcome
}

/// Trains an `M` on `mesh`; `loss` computes the loss of a micro-batch.
///
/// # Panics
/// When a rank fails, or when two ranks of the mesh come to different bits.
#[track_caller]
pub fn train<M: Build, S: Shape>(
    mesh: &str,
    setup: &Setup,
    loss: impl Fn(&M, &Rank, Turn) -> Loss<S> + Sync,
) -> Outcome {
    let outcomes = on_setup_mesh(mesh, setup, |rank| {
        let built = build::<M>(rank, &setup.sizes).unwrap_or_else(|error| panic!("{error}"));
        let mut optimizer = Optimizer::new(rank, &built.units, Arc::clone(&setup.optimizer));
        let params = built.params();
        let gather = || -> Tensors {
            params.iter().map(|param| (param.path().to_owned(), param.gather(rank))).collect()
        };
        let initial = gather();
        let (mut losses, mut norms, mut first) = (Vec::new(), Vec::new(), Tensors::new());
        for step in 0..setup.steps {
            rank.set_step(step);
            let mut mean = Mean::default();
            let mut one = |index| {
                let turn = Turn { step, index, count: setup.micro_batches };
                let loss = loss(&built.model, rank, turn);
                mean += loss.reduce();
                loss
            };
            let last = setup.micro_batches - 1;
            let earlier = (0..last).fold(None, |earlier: Option<Gradients<_>>, index| {
                let loss = one(index);
                Some(match earlier {
                    Some(gradients) => gradients.accumulate(loss),
                    None => loss.accumulate(),
                })
            });
            let loss = one(last);
            let mut gradients = match earlier {
                Some(gradients) => gradients.backward(loss),
                None => loss.backward(),
            }
            .reduce();
            losses.push(mean.value());
            if step == 0 {
                let trained = params.iter().filter(|param| !param.is_frozen());
                let gather = |param: &ParamRef| (param.path().to_owned(), gradients.gather(param));
                first = trained.map(gather).collect();
            }
            norms.push(if setup.clips { gradients.clip(1.0) } else { gradients.norm() });
            optimizer.step(setup.lr, gradients);
        }
        Outcome { losses, norms, gradients: first, initial, trained: gather() }
    });
    let Some((first, others)) = outcomes.split_first() else { panic!("{mesh} has no ranks") };
    for (index, other) in others.iter().enumerate() {
        let label = format!("{mesh}: rank {} compared with rank 0", index + 1);
        assert_same_bits(&format!("{label}, gradients"), &other.gradients, &first.gradients);
        assert_same_bits(&format!("{label}, parameters"), &other.trained, &first.trained);
        assert_eq!(other.losses, first.losses, "{label}, losses");
        assert_eq!(other.norms, first.norms, "{label}, gradient norms");
    }
    outcomes.into_iter().next().expect("there is a first rank")
}

/// Runs `body` on every rank of `mesh`, on the machine and with the threads and settings of `setup`.
///
/// # Panics
/// When a rank fails.
#[track_caller]
pub fn on_setup_mesh<T: Send>(
    mesh: &str,
    setup: &Setup,
    body: impl Fn(&Rank) -> T + Sync,
) -> Vec<T> {
    let join = |comms: RankComms| match &setup.machine {
        Some(machine) => {
            let backend = machine.backend(comms.rank()).unwrap_or_else(|error| panic!("{error}"));
            let comms = machine.connect(comms, &*backend);
            (comms.unwrap_or_else(|error| panic!("{error}")), backend)
        }
        None => (comms, cpu_backend(setup.threads)),
    };
    on_mesh_of(mesh, join, setup.settings, body)
}

/// Runs `body` on every rank of `mesh`, and returns the results in the order of ranks.
///
/// # Panics
/// When a rank fails.
#[track_caller]
pub fn on_mesh<T: Send>(mesh: &str, threads: usize, body: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
    on_mesh_with(mesh, threads, Settings::new(7), body)
}

/// Runs `body` like [`on_mesh`], with settings.
///
/// # Panics
/// When a rank fails.
#[track_caller]
pub fn on_mesh_with<T: Send>(
    mesh: &str,
    threads: usize,
    settings: Settings,
    body: impl Fn(&Rank) -> T + Sync,
) -> Vec<T> {
    on_mesh_of(mesh, |comms| (comms, cpu_backend(threads)), settings, body)
}

fn cpu_backend(threads: usize) -> Box<dyn Backend> {
    Box::new(CpuBackend::new(threads).expect("threads start"))
}

#[track_caller]
fn on_mesh_of<T: Send>(
    mesh: &str,
    join: impl Fn(RankComms) -> (RankComms, Box<dyn Backend>) + Sync,
    settings: Settings,
    body: impl Fn(&Rank) -> T + Sync,
) -> Vec<T> {
    let shape = mesh.parse().unwrap_or_else(|error| panic!("{mesh}: {error}"));
    let results = launch(&shape, |comms| {
        let (comms, backend) = join(comms);
        Ok::<T, CommError>(body(&Rank::with_settings(comms, backend, settings)))
    });
    results.unwrap_or_else(|error| panic!("{mesh}: {error}"))
}

/// Trains an `M` with the trainer, as by a command line of `words`, without sampling a continuation unless they say so.
/// `--optimizer lion` is that of the examples.
///
/// # Errors
/// As the trainer.
pub fn train_with_words<'a, M: LanguageModel>(
    words: impl IntoIterator<Item = &'a OsStr>,
) -> meshwright::Result<Summary> {
    let words: Vec<&OsStr> = words.into_iter().collect();
    let first = ["train", "--sample-tokens", "0"].map(OsStr::new);
    let first = if words.contains(&first[1]) { &first[..1] } else { &first[..] };
    let optimizers = Optimizers::default().with(Lion::entry());
    Trainer::<M>::new(Config::parse_with([first, &words].concat(), &optimizers)?)?.train()
}

/// Trains like [`train_with_words`], with flags that all have a value.
///
/// # Errors
/// As the trainer.
pub fn train_with_flags<M: LanguageModel>(flags: &[(&str, &OsStr)]) -> meshwright::Result<Summary> {
    train_with_words::<M>(flags.iter().flat_map(|(flag, value)| [OsStr::new(flag), value]))
}
