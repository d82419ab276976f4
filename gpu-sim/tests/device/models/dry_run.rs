//! The dry run is the program on a device, too: kernels, collectives, transfers and buffers of a step.

use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::train::{Config, Gpus, LanguageModel, Trainer};
use meshwright_gpu_sim::{drivers, not_checked_on_gpu};
use meshwright_tests::models::nested_llama;
use meshwright_tests::step_logs::assert_same_steps;

#[track_caller]
fn check<M: LanguageModel>(flags: &str) {
    if not_checked_on_gpu() {
        return;
    }
    let sizes = "--layers 2 --hidden 32 --heads 2 --seq 16 --batch 4 --steps 3 --sample-tokens 0";
    let line = format!("train --device cuda --no-graphs {sizes} {flags}");
    let config = || Config::parse(line.split(' ')).unwrap();
    let trainer = || {
        let machine = Gpus::new(drivers(5, config().mesh.world_size()), 1);
        Trainer::<M>::on(config(), Box::new(machine)).unwrap()
    };
    let (real, dry) = (trainer().record_steps().unwrap(), trainer().step_logs().unwrap());
    assert_same_steps(flags, &real, &dry);
}

#[test]
fn sharded_steps() {
    check::<Llama>("--mesh fsdp=2,tp=2 --zero 3 --recompute full --dtype bf16 --micro-batches 2");
    check::<Gpt2>("--mesh fsdp=2 --zero 1");
}

#[test]
fn offloaded_activations() {
    check::<nested_llama::Llama>("--mesh 1 --micro-batches 2");
}

#[test]
fn experts() {
    check::<Mixtral>("--mesh 1");
}
