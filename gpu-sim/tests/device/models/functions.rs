//! A user-defined function with kernels from a CUDA source, and launches that are refused.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use meshwright::backend::{Backend, CudaKernel, DType, KernelArg, LaunchGrid};
use meshwright::nn::{Layers, RecomputeOverride, Sizes};
use meshwright::tensor::{Settings, ZeroStage};
use meshwright_cuda::Grid;
use meshwright_gpu_sim::{SimDevice, not_checked_on_gpu};
use meshwright_tests::data::TokenData;
use meshwright_tests::models::gated::{Ffn, Gated, Hidden, Vocab};
use meshwright_tests::run::{Setup, train};

use super::{BF16, F32, Tolerance, check};
use crate::support::device;

const DATA: TokenData = TokenData { batch: 4, seq: 6, vocab: 13, masked: true };

fn setup(compute: DType) -> Setup {
    let mut sizes =
        Sizes::new().with(Hidden, 8).with(Ffn, 20).with(Vocab, DATA.vocab).with(Layers, 2);
    sizes.init_std = 0.4;
    let settings = Settings { compute, ..Settings::new(7) };
    Setup { steps: 2, settings, ..Setup::new(sizes) }
}

#[track_caller]
fn check_gated(mesh: &'static str, setup: Setup, tolerance: Tolerance) {
    let cpu = Setup { micro_batches: 1, ..setup.clone() };
    let others = [(mesh, format!("{}", setup.settings.compute), setup)];
    check(&cpu, others, tolerance, |model: &Gated, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}

#[test]
fn cuda_kernels_match_those_of_the_host() {
    check_gated("1", setup(DType::F32), F32);
    check_gated("1", setup(DType::Bf16), BF16);
}

#[test]
fn cuda_kernels_run_on_every_rank() {
    let mut recomputed = setup(DType::F32);
    recomputed.sizes.recompute = Some(RecomputeOverride::Full);
    recomputed.settings.zero = ZeroStage::Parameters;
    check_gated("fsdp=2,tp=2", Setup { micro_batches: 2, ..recomputed }, F32);
}

#[test]
fn saved_results_are_not_recomputed() {
    if not_checked_on_gpu() {
        return;
    }
    let launches = |recompute, steps| {
        let simulated = SimDevice::new(3);
        let machine = meshwright::train::Gpus::new(vec![Arc::new(simulated.driver())], 1);
        let mut setup = Setup { machine: Some(Arc::new(machine)), steps, ..setup(DType::F32) };
        setup.sizes.recompute = recompute;
        train("1", &setup, |model: &Gated, rank, turn| {
            let (tokens, targets) = DATA.block(rank, turn);
            model.loss(&tokens, &targets)
        });
        let is_forward = |(kernel, _): (&str, Grid)| kernel == "gated_norm_f32";
        simulated.log().iter().filter(|entry| entry.launch().is_some_and(is_forward)).count()
    };
    // No call of the eleventh step is checked. The model has two layers, and saves their results.
    for (recompute, expected) in
        [(Some(RecomputeOverride::Off), 2), (Some(RecomputeOverride::Full), 4), (None, 2)]
    {
        let step = launches(recompute, 11) - launches(recompute, 10);
        assert_eq!(step, expected, "{recompute:?}");
    }
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    static SCALE: CudaKernel = CudaKernel::new(
        "scale",
        "KERNEL(scale)(const float* x, float* y, float by, uint64_t len) {\n\
             for (uint64_t i = thread_index(); i < len; i += thread_count()) y[i] = by * x[i];\n\
         }",
    );
    static BROKEN: CudaKernel = CudaKernel::new("broken", "KERNEL(broken)(float* x) { x[0] = y; }");
    let side = device(1, 0);
    let x = side.put(&[1.0f32, 2.0, 3.0]);
    let ids = side.put(&[1u32, 2, 3]);
    let mut y = side.blank(DType::F32, 3);
    let grid = LaunchGrid::over(3);
    let args = [x.view().into(), y.view_mut().into(), 2.0f32.into(), 3usize.into()];
    // SAFETY: the kernel accesses three elements, one per thread.
    unsafe { SCALE.launch(side.backend(), grid, &args) };
    assert_eq!(y.get::<f32>(), [2.0, 4.0, 6.0]);

    let message = |kernel: &CudaKernel, backend: &dyn Backend, args: &[KernelArg<'_>]| {
        // SAFETY: as above; operands that do not fit are refused.
        let launch = AssertUnwindSafe(|| unsafe { kernel.launch(backend, grid, args) });
        let payload = catch_unwind(launch).expect_err("the launch is refused");
        match payload.downcast::<String>() {
            Ok(message) => *message,
            Err(payload) => {
                payload.downcast::<meshwright::backend::DeviceFailure>().expect("a failure").0
            }
        }
    };
    let few = message(&SCALE, side.backend(), &[x.view().into()]);
    assert!(few.contains("takes 4 arguments, but is launched with 1"), "{few}");
    let mut out = side.blank(DType::F32, 3);
    let args = [ids.view().into(), out.view_mut().into(), 2.0f32.into(), 3usize.into()];
    let dtype = message(&SCALE, side.backend(), &args);
    assert!(dtype.contains("takes `const float*` as argument 0"), "{dtype}");
    let mut out = side.blank(DType::F32, 3);
    let compiler = message(&BROKEN, side.backend(), &[out.view_mut().into()]);
    assert!(compiler.contains("`broken` does not compile"), "{compiler}");
    let mut out = side.blank(DType::F32, 3);
    let args = [x.view().into(), out.view_mut().into(), 2.0f32.into(), 3usize.into()];
    let cpu = meshwright::backend::cpu::CpuBackend::new(1).expect("one thread starts nothing");
    let host = message(&SCALE, &cpu, &args);
    assert!(host.contains("launched on a backend without a CUDA device"), "{host}");
}
