//! Compilation of kernels without a GPU.

use std::sync::Arc;

use meshwright::backend::Backend;
use meshwright::models::{Gpt2, Llama};
use meshwright::train::{Config, Gpus, LanguageModel, Trainer};
use meshwright_cuda::native::compile_into_cache;
use meshwright_cuda::{CudaBackend, Driver, DriverError, KernelSource, NullDriver, SOURCES};
use meshwright_kernel_check::generated_sources;

use super::suite::report::Effort;
use super::suite::{Sizes, TABLES, measured_report};

/// Compiles the kernels of the tables and the example models.
pub fn run(architecture: &str) -> Result<(), DriverError> {
    let sources = sources();
    let references: Vec<&KernelSource> = sources.iter().collect();
    compile_into_cache(&references, architecture)?;
    println!("{} sources are compiled for {architecture}", sources.len());
    Ok(())
}

/// Returns every source that tables or models load, each once.
fn sources() -> Vec<KernelSource> {
    let mut all: Vec<KernelSource> = SOURCES.iter().copied().cloned().collect();
    all.extend(generated_sources());
    let null = Arc::new(NullDriver::new(|_, _| {}).with_attention());
    tables(&null);
    let sizes = "--hidden 128 --layers 2 --heads 2";
    for flags in ["--dtype bf16", "--dtype f32", "--dtype bf16 --recompute none"] {
        train::<Llama>(&null, &format!("{sizes} --kv-heads 1 {flags}"));
        train::<Gpt2>(&null, &format!("{sizes} {flags}"));
    }
    for source in null.loaded_sources() {
        if !all.contains(&source) {
            all.push(source);
        }
    }
    all
}

fn tables(null: &Arc<NullDriver>) {
    let once =
        Effort { series: 1, at_least: Default::default(), few: 1, sustained: Default::default() };
    let sizes = Sizes::full();
    for table in TABLES {
        let backend: Arc<dyn Backend> =
            Arc::new(CudaBackend::new(Arc::clone(null) as Arc<dyn Driver>));
        let mut nowhere = |_: &serde_json::Value| {};
        (table.rows)(&mut measured_report(backend, &sizes, "", once, &mut nowhere), &sizes);
    }
}

/// Trains for two steps.
fn train<M: LanguageModel>(null: &Arc<NullDriver>, flags: &str) {
    let words = format!(
        "train --device cuda --mesh 1 --batch 2 --seq 64 --steps 2 --sample-tokens 0 {flags}"
    );
    let config = Config::parse(words.split_whitespace()).expect("these flags exist");
    let gpus = Gpus::new(vec![Arc::clone(null) as Arc<dyn Driver>], 1);
    let trained = Trainer::<M>::on(config, Box::new(gpus)).and_then(|trainer| trainer.train());
    trained.expect("a null device does not fail");
}
