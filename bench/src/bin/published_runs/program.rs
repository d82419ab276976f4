//! The program of a published run, as this project writes it, and logs of its steps.

use std::ffi::OsStr;
use std::io::Write;
use std::sync::Arc;

use meshwright::mesh::MeshShape;
use meshwright::models::Llama;
use meshwright::sim::StepLog;
use meshwright::train::{Config, LanguageModel, Trainer};
use serde_json::json;
use tempfile::NamedTempFile;

use crate::decoder::PlainDecoder;
use crate::row::{Mesh, Model, Recompute, Run};

/// A program without its number of micro-batches.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Program {
    model: Model,
    mesh: Mesh,
    seq: usize,
    micro_batch: usize,
    recompute: Recompute,
    /// Bytes of an element of a gradient in its reduction.
    reduce_bytes: u64,
}

/// A step of a program.
pub struct LoggedStep {
    pub mesh: MeshShape,
    /// A log for each position along `pp`.
    pub logs: Vec<Arc<StepLog>>,
}

impl Program {
    /// Returns the program of a run whose gradients have `reduce_bytes` in their reduction.
    pub fn new(run: &Run, reduce_bytes: u64) -> Program {
        Program {
            model: run.model.clone(),
            mesh: run.mesh,
            seq: run.seq,
            micro_batch: run.micro_batch,
            recompute: run.recompute,
            reduce_bytes,
        }
    }

    /// Returns the logs of a dry run of a step.
    ///
    /// # Errors
    /// The reason why this project cannot run the program.
    pub fn step(&self, micro_batches: usize) -> Result<LoggedStep, String> {
        if self.model.is_gated {
            self.step_of::<Llama>(micro_batches)
        } else {
            self.step_of::<PlainDecoder>(micro_batches)
        }
    }

    fn step_of<M: LanguageModel>(&self, micro_batches: usize) -> Result<LoggedStep, String> {
        let flags = self.flags(micro_batches);
        let architecture = self.architecture()?;
        let mut words: Vec<&OsStr> = flags.split(' ').map(OsStr::new).collect();
        if let Some(file) = &architecture {
            words.extend([OsStr::new("--architecture"), file.path().as_os_str()]);
        }
        let config = Config::parse(words).map_err(|error| one_line(&error.to_string()))?;
        let mesh = config.mesh;
        let trainer = Trainer::<M>::new(config).map_err(|error| one_line(&error.to_string()))?;
        let logs = trainer.step_logs().map_err(|error| one_line(&error.to_string()))?;
        Ok(LoggedStep { mesh, logs })
    }

    /// Returns a configuration of the model if its heads are not as wide as flags can say.
    fn architecture(&self) -> Result<Option<NamedTempFile>, String> {
        let model = &self.model;
        if model.has_usual_heads() {
            return Ok(None);
        }
        let config = json!({
            "model_type": "llama",
            "hidden_size": model.hidden,
            "intermediate_size": model.ffn,
            "num_hidden_layers": model.layers,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads,
            "head_dim": model.head_dim,
            "vocab_size": model.vocab,
            "max_position_embeddings": self.seq,
            "tie_word_embeddings": !model.is_gated,
        });
        let file = || -> std::io::Result<NamedTempFile> {
            let mut file = NamedTempFile::with_suffix(".json")?;
            file.write_all(config.to_string().as_bytes())?;
            Ok(file)
        };
        file().map(Some).map_err(|error| format!("a temporary file: {error}"))
    }

    fn flags(&self, micro_batches: usize) -> String {
        let Program { model, mesh, seq, micro_batch, .. } = self;
        let batch = mesh.dp * micro_batch * micro_batches;
        let replicas = mesh.dp / mesh.shard_group;
        let (pp, fsdp, cp, tp) = (mesh.pp, mesh.shard_group, mesh.cp, mesh.tp);
        let mut flags = format!(
            "train --explain --device cuda --dtype bf16 --nondeterministic --seq {seq} --batch {batch} \
             --micro-batches {micro_batches} --mesh pp={pp},dp={replicas},fsdp={fsdp},cp={cp},tp={tp} --zero {}",
            mesh.zero
        );
        let Model { layers, hidden, ffn, heads, kv_heads, vocab, is_gated, .. } = model;
        if model.has_usual_heads() {
            flags += &format!(
                " --layers {layers} --hidden {hidden} --ffn {ffn} --heads {heads} --kv-heads {kv_heads} \
                 --vocab {vocab}"
            );
            // A GPT's head is its embedding.
            if !is_gated {
                flags += " --tied";
            }
        }
        if mesh.pp > 1 {
            flags += &format!(" --stages {}", stage_layers(*layers, mesh.pp * mesh.virtual_stages));
            if mesh.virtual_stages > 1 {
                flags +=
                    &format!(" --schedule interleaved --virtual-stages {}", mesh.virtual_stages);
            }
        }
        if mesh.cp > 1 {
            flags += " --cp ring";
        }
        if self.reduce_bytes == 2 && mesh.dp * mesh.cp > 1 {
            flags += " --reduce-dtype bf16";
        }
        flags += match self.recompute {
            Recompute::Nothing | Recompute::CoreAttention => " --recompute none",
            Recompute::Attention => " --recompute attn",
            Recompute::Layers => " --recompute full",
        };
        flags
    }
}

/// Returns the layers of each stage: as many in all, else fewer in the last and the first one, which have the head and
/// the embedding.
fn stage_layers(layers: usize, stages: usize) -> String {
    let most = layers.div_ceil(stages);
    let mut missing = most * stages - layers;
    let mut cut = vec![most; stages];
    let ends_first = [stages - 1, 0].into_iter().chain(1..stages.saturating_sub(1)).cycle();
    for stage in ends_first {
        if missing == 0 {
            break;
        }
        if cut[stage] > 0 {
            cut[stage] -= 1;
            missing -= 1;
        }
    }
    cut.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_fewer_layers() {
        for (layers, stages, cut) in [
            (8, 4, "2,2,2,2"),
            (6, 4, "1,2,2,1"),
            (7, 4, "2,2,2,1"),
            (5, 4, "1,1,2,1"),
            (2, 4, "0,1,1,0"),
        ] {
            assert_eq!(stage_layers(layers, stages), cut);
        }
    }
}
