//! The plan in words, for the first lines of a run.

use crate::data::{Dataset, PackingWaste, SourceSize};
use crate::layout::AxisId;
use crate::mesh::AxisOrder;
use crate::train::config::{Config, LocalSgdConfig, ModelSource};
use crate::train::console::{counted, counted_with_commas, with_commas};

use super::Plan;

impl Plan {
    /// Describes model, machine and data.
    pub fn describe(&self) -> String {
        let Plan { config, outline, dataset, .. } = self;
        let tokenizer = match &self.tokenizer {
            Some(tokenizer) if !tokenizer.is_bytes() => format!(" ({})", tokenizer.name()),
            _ => String::new(),
        };
        let source = match (&self.resume, &config.model) {
            (Some(checkpoint), _) => format!("resuming {}", checkpoint.folder().display()),
            (None, ModelSource::InitFrom(folder)) => format!("weights of {}", folder.display()),
            (None, ModelSource::Architecture(path)) => {
                format!("a new model of {} from seed {}", path.display(), config.seed)
            }
            (None, ModelSource::New(_)) => format!("a new model from seed {}", config.seed),
        };
        let validation = self.validation.as_ref().zip(config.validation.as_ref());
        let validation = validation.map(|(validation, settings)| validation.describe(settings));
        let pipeline = self.pipeline.as_ref().and_then(|pipeline| pipeline.description.as_ref());
        let pipeline = pipeline.map(|description| format!("\n{description}"));
        let pipeline = pipeline.unwrap_or_default();
        format!(
            "{source}: {}, {} of width {}, {} query and {}, vocabulary {}\n\
             {}; {} a step, from {}{tokenizer}",
            counted_with_commas(self.parameters, "parameter"),
            counted(outline.layers, "layer"),
            outline.hidden,
            outline.heads,
            counted(outline.kv_heads, "key-value head"),
            outline.vocab,
            format_args!("{} with {}", describe_mesh(config), self.machine.describe()),
            describe_batch(config, dataset),
            if config.has_synthetic_data() {
                "synthetic data".to_owned()
            } else {
                describe_data(dataset)
            },
        ) + &describe_packing(dataset.packing_waste())
            + &validation.unwrap_or_default()
            + &pipeline
            + &config.local_sgd.map(|local| describe_local(config, local)).unwrap_or_default()
    }
}

/// Describes the synchronization of replicas that train apart, on a line of its own.
fn describe_local(config: &Config, local: LocalSgdConfig) -> String {
    format!(
        "\nlocal SGD: {} train apart, and {} after every {}{}; outer learning rate {}, momentum {}",
        counted(config.mesh.degree(AxisId::Dp), "replica"),
        match local.fragments {
            1 => "are synchronized".to_owned(),
            fragments => format!("one of {fragments} fragments is synchronized"),
        },
        match local.turn_steps() {
            1 => "step".to_owned(),
            steps => format!("{steps} steps"),
        },
        match local.delay {
            0 => String::new(),
            1 => format!(", in the step before (alpha {})", local.alpha()),
            delay => format!(", in the {delay} steps before (alpha {})", local.alpha()),
        },
        local.outer_lr,
        local.outer_momentum
    )
}

/// Describes a global batch: `8 sequences of 128 tokens`, or the rows of a task.
fn describe_batch(config: &Config, dataset: &Dataset) -> String {
    match dataset.streams() {
        Some(streams) => format!("{} ({streams})", counted(config.batch, "row")),
        None => {
            let (rows, tokens) = (counted(config.batch, "sequence"), counted(config.seq, "token"));
            format!("{rows} of {tokens}")
        }
    }
}

/// Describes the sources: `the 5,000 tokens of web.bin`, `the 9,000 tokens of 3 files of web/`, `a mixture of 70.00 %
/// web (5,000 tokens) and 30.00 % code (3,000 tokens)`.
fn describe_data(dataset: &Dataset) -> String {
    let tokens = |tokens: usize| with_commas(tokens as u64);
    let sources: Vec<_> = dataset.sources().collect();
    if dataset.streams().is_some() {
        return format!(
            "the {} of {}",
            counted_with_commas(dataset.rows_of_epoch() as usize, "example"),
            dataset.name()
        );
    }
    if let [source] = &sources[..] {
        let files = match source.files {
            0 | 1 => String::new(),
            files => format!("{} files of ", with_commas(files as u64)),
        };
        return format!("the {} tokens of {files}{}", tokens(source.tokens), source.name);
    }
    let describe = |source: &SourceSize<'_>| {
        let (share, name) = (100.0 * source.share, source.name);
        format!("{share:.2} % {name} ({} tokens)", tokens(source.tokens))
    };
    let (last, rest) = sources.split_last().expect("a dataset has a source");
    let rest: Vec<String> = rest.iter().map(describe).collect();
    format!("a mixture of {} and {}", rest.join(", "), describe(last))
}

/// Describes packed rows and their waste, on a line of its own.
fn describe_packing(waste: Option<PackingWaste>) -> String {
    let Some(waste) = waste else { return String::new() };
    let cut = if waste.cut == 1 { "1 is".to_owned() } else { format!("{} are", waste.cut) };
    format!(
        "\n{} packed into {} of {}, {:.2} % of which are padding; {cut} longer than a row and cut",
        counted_with_commas(waste.documents, "document"),
        counted_with_commas(waste.rows, "row"),
        counted(waste.tokens / waste.rows.max(1), "token"),
        100.0 * waste.fraction(),
    )
}

/// Describes the ranks: `4 ranks (dp=2,tp=2)`, `4 ranks (dp=2,tp=2 in the order tp,dp)`, `1 rank`.
pub fn describe_mesh(config: &Config) -> String {
    let mesh = &config.mesh;
    match (mesh.world_size(), *mesh.order()) {
        (1, _) => "1 rank".to_owned(),
        (world, AxisOrder::DEFAULT) => format!("{world} ranks ({mesh})"),
        (world, order) => format!("{world} ranks ({mesh} in the order {order})"),
    }
}
