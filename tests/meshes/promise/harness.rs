//! Test harness: programs compared on all meshes with one rank, and programs that must be refused with a message.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use meshwright::backend::cpu::CpuBackend;
use meshwright::comm::{CommError, launch};
use meshwright::layout::Dims;
use meshwright::nn::{Build, Built, Sizes, build};
use meshwright::tensor::{
    Accumulating, Checks, Gradients, Loss, Mean, Objective, Pooled, Rank, Reduced, Settings,
    ZeroStage,
};
use meshwright_tests::compare::{Tensors, distance};

/// Named results of a program: losses, gradients, parameters.
pub type Numbers = Tensors;

/// A mesh and a ZeRO stage.
#[derive(Debug, Clone, Copy)]
pub struct MeshCase {
    pub mesh: &'static str,
    pub zero: ZeroStage,
}

const fn case(mesh: &'static str, zero: ZeroStage) -> MeshCase {
    MeshCase { mesh, zero }
}

pub const ONE: MeshCase = case("1", ZeroStage::Replicated);

/// Tensor-parallel, data-parallel and fully sharded ranks, and products of them.
pub const MESH_CASES: [MeshCase; 8] = [
    case("tp=2", ZeroStage::Replicated),
    case("dp=2", ZeroStage::Replicated),
    case("fsdp=2", ZeroStage::Optimizer),
    case("fsdp=2", ZeroStage::Gradients),
    case("fsdp=2", ZeroStage::Parameters),
    case("dp=2,tp=2", ZeroStage::Replicated),
    case("fsdp=2,tp=2", ZeroStage::Gradients),
    case("fsdp=2,tp=2", ZeroStage::Parameters),
];

/// Meshes with other axes.
pub const OTHER_MESH_CASES: [MeshCase; 9] = [
    case("cp=2", ZeroStage::Replicated),
    case("cp=2,tp=2", ZeroStage::Replicated),
    case("dp=2,cp=2", ZeroStage::Replicated),
    case("fsdp=2,cp=2", ZeroStage::Parameters),
    case("ep=2", ZeroStage::Replicated),
    case("ep=2,tp=2", ZeroStage::Replicated),
    case("fsdp=2,ep=2", ZeroStage::Gradients),
    case("dp=2,fsdp=2", ZeroStage::Parameters),
    case("dp=2,tp=2", ZeroStage::Replicated),
];

/// Runs `body` on every rank of a mesh; the error names the rank, cause and location of a failure.
pub fn on<T: Send>(case: MeshCase, body: impl Fn(&Rank) -> T + Sync) -> Result<Vec<T>, String> {
    on_with(case, Checks::EveryStep, body)
}

/// [`on`], with the checks of some steps.
pub fn on_with<T: Send>(
    case: MeshCase,
    checks: Checks,
    body: impl Fn(&Rank) -> T + Sync,
) -> Result<Vec<T>, String> {
    let shape = case.mesh.parse().unwrap_or_else(|error| panic!("{}: {error}", case.mesh));
    let settings = Settings { zero: case.zero, checks, ..Settings::new(7) };
    let results = launch(&shape, |comms| {
        let backend = Box::new(CpuBackend::new(1).expect("threads start"));
        Ok::<T, CommError>(body(&Rank::with_settings(comms, backend, settings)))
    });
    results.map_err(|error| error.to_string())
}

/// Runs `body` on one rank and on all meshes, and asserts that all ranks have the results of one rank.
#[track_caller]
pub fn assert_mesh_parity(name: &str, body: impl Fn(&Rank) -> Numbers + Sync) {
    assert_parity_on(name, &MESH_CASES, body);
}

/// [`assert_mesh_parity`], on the meshes of `cases`.
#[track_caller]
pub fn assert_parity_on(name: &str, cases: &[MeshCase], body: impl Fn(&Rank) -> Numbers + Sync) {
    let expected = on(ONE, &body).unwrap_or_else(|error| panic!("{name} on one rank: {error}"));
    let expected = &expected[0];
    for case in cases {
        let label = format!("{name} on {} with {}", case.mesh, case.zero);
        let found = on(*case, &body).unwrap_or_else(|error| panic!("{label}: {error}"));
        for (rank, numbers) in found.iter().enumerate() {
            let differences = differences(numbers, expected);
            assert!(differences.is_empty(), "{label}, rank {rank}:\n{}", differences.join("\n"));
        }
    }
}

fn differences(got: &Numbers, expected: &Numbers) -> Vec<String> {
    assert!(got.keys().eq(expected.keys()), "other names: {:?}", got.keys());
    let largest = |numbers: &[f32]| numbers.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let differs = |(name, expected): (&String, &Vec<f32>)| {
        let got = &got[name];
        let distance = distance(got, expected);
        // Zero up to rounding.
        let is_noise = largest(got).max(largest(expected)) < 1e-9 && got.len() == expected.len();
        let some = |numbers: &[f32]| numbers.iter().take(4).copied().collect::<Vec<_>>();
        (distance > 3e-5 && !is_noise).then(|| {
            format!("  `{name}` by {distance:.1e}: {:?}.. for {:?}..", some(got), some(expected))
        })
    };
    expected.iter().filter_map(differs).collect()
}

/// The line at which a program must be refused.
#[derive(Default)]
pub struct Spot(AtomicU32);

impl Spot {
    /// Sets the line to the next one after `line`.
    pub fn next(&self, line: u32) {
        self.0.store(line + 1, Ordering::Relaxed);
    }
}

/// Runs a program that must be refused on `case`, and fails unless the message has the line of the [`Spot`] in `file`,
/// and all of `parts`.
#[track_caller]
pub fn refused<T: Send>(
    case: MeshCase,
    file: &str,
    parts: &[&str],
    body: impl Fn(&Rank, &Spot) -> T + Sync,
) {
    let spot = Spot::default();
    let result = on(case, |rank| body(rank, &spot));
    let Err(message) = result else { panic!("{}: nothing was refused", case.mesh) };
    let location = format!("{file}:{}", spot.0.load(Ordering::Relaxed));
    for part in parts.iter().chain([&location.as_str()]) {
        assert!(message.contains(part), "{}: no `{part}` in: {message}", case.mesh);
    }
}

/// A mesh without sharded state.
pub const fn mesh(mesh: &'static str) -> MeshCase {
    case(mesh, ZeroStage::Replicated)
}

/// A mesh with all state sharded.
pub const fn stage3(mesh: &'static str) -> MeshCase {
    case(mesh, ZeroStage::Parameters)
}

/// Builds a model.
#[track_caller]
pub fn built<M: Build>(rank: &Rank, sizes: &Sizes) -> Built<M> {
    build(rank, sizes).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the global gradient of every parameter.
pub fn gradients_of<M>(built: &Built<M>, gradients: &Gradients<Reduced>) -> Numbers {
    let one = |param: meshwright::tensor::ParamRef| {
        (format!("gradient of {}", param.path()), gradients.gather(&param))
    };
    built.params().into_iter().map(one).collect()
}

/// Returns every global parameter.
pub fn params_of<M>(name: &str, rank: &Rank, built: &Built<M>) -> Numbers {
    let one = |param: meshwright::tensor::ParamRef| {
        (format!("{name} {}", param.path()), param.gather(rank))
    };
    built.params().into_iter().map(one).collect()
}

/// Losses of any shapes, accumulated.
#[derive(Default)]
pub struct Steps {
    /// Number of losses whose backward runs before the next forward; that of others runs after it.
    eager: usize,
    earlier: Option<Gradients<Accumulating>>,
    waiting: Option<Objective<Pooled>>,
    total: Mean,
}

impl Steps {
    /// Creates an accumulation of `count` losses, each differentiated before the next one is computed.
    pub fn one_by_one(count: usize) -> Steps {
        Steps { eager: count - 1, ..Steps::default() }
    }

    /// Adds the loss of a micro-batch.
    pub fn add(&mut self, loss: impl Into<Objective<Pooled>>) {
        let loss = loss.into();
        let ready = match self.eager.checked_sub(1) {
            Some(eager) => {
                self.eager = eager;
                Some(loss)
            }
            None => self.waiting.replace(loss),
        };
        if let Some(loss) = ready {
            self.earlier = Some(match self.earlier.take() {
                Some(gradients) => gradients.accumulate(loss),
                None => loss.accumulate(),
            });
        }
    }

    /// Records the value of a loss, which is then passed to [`add`](Self::add).
    pub fn note<S: Dims>(&mut self, loss: Loss<S>) -> Loss<S> {
        self.total += loss.reduce();
        loss
    }

    /// Reduces the gradients of all losses.
    pub fn reduce(self) -> (f32, Gradients<Reduced>) {
        let last = self.waiting.expect("there is a loss");
        let gradients = match self.earlier {
            Some(gradients) => gradients.backward(last),
            None => last.backward(),
        };
        (self.total.value() as f32, gradients.reduce())
    }
}

/// Returns losses and gradients as named results.
pub fn numbers<M>(built: &Built<M>, steps: Steps) -> Numbers {
    let (loss, gradients) = steps.reduce();
    let mut numbers = gradients_of(built, &gradients);
    numbers.insert("loss".into(), vec![loss]);
    numbers.insert("norm".into(), vec![gradients.norm() as f32]);
    for param in built.params() {
        let norm = gradients.norm_of(&param) as f32;
        numbers.insert(format!("norm of {}", param.path()), vec![norm]);
    }
    numbers
}

/// Merges several sets of results.
pub fn together<const N: usize>(all: [Numbers; N]) -> Numbers {
    all.into_iter().flatten().collect::<BTreeMap<_, _>>()
}
