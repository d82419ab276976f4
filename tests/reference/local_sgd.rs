//! DiLoCo of four replicas, which PyTorch trains one after the other: by the fixtures `local_sgd` and
//! `streaming_diloco`.

use std::ffi::OsString;
use std::path::Path;

use meshwright::models::llama::Llama;
use meshwright_tests::compare::{Report, Tensors};
use meshwright_tests::run::train_with_flags;

use super::{Case, weights_of};

/// Tolerance over 40 steps. The noise of PyTorch's own f32 is 2.3e-7 for losses, 1.1e-6 for norms and 1.6e-6 for
/// parameters.
const TOLERANCE: f64 = 1e-5;

#[test]
fn replicas_train_as_in_pytorch() {
    assert_as_in_pytorch("local_sgd");
}

#[test]
fn fragments_are_synchronized_as_in_pytorch() {
    assert_as_in_pytorch("streaming_diloco");
}

#[track_caller]
fn assert_as_in_pytorch(fixture: &str) {
    let (case, start) = (Case::open(fixture), Case::open("untied_mha"));
    let mut report = Report::default();
    for (mesh, flags) in [
        ("dp=4", ""),
        ("dp=4,tp=2", ""),
        ("dp=4,fsdp=2", "--zero 1"),
        ("dp=4,fsdp=2", "--zero 2"),
        ("dp=4,fsdp=2", "--zero 3"),
        ("dp=4,pp=2", ""),
        ("dp=4,cp=2", ""),
    ] {
        let out = tempfile::tempdir().unwrap();
        let found = case.train_replicas(&start.folder, mesh, flags, out.path());
        let label = format!("{mesh} {flags}");
        report.scalars("loss", &label, &found.0, &case.numbers("losses"), TOLERANCE);
        report.scalars("norm", &label, &found.1, &case.numbers("norms"), TOLERANCE);
        let finals: Tensors = weights_of(out.path())
            .into_iter()
            .map(|(name, values)| (format!("final.{name}"), values))
            .collect();
        case.compare("parameter", "final.", &finals, TOLERANCE, &mut report);
    }
    report.print();
}

impl Case {
    /// Trains with the settings of the fixture, and exports. Returns losses and gradient norms by step.
    fn train_replicas(
        &self,
        from: &Path,
        mesh: &str,
        flags: &str,
        to: &Path,
    ) -> (Vec<f64>, Vec<f64>) {
        let betas = self.numbers("betas");
        let number = |key: &str| self.number(key).to_string();
        let mut words: Vec<(String, OsString)> = [
            "batch",
            "seq",
            "steps",
            "lr",
            "eps",
            "weight_decay",
            "clip",
            "local_steps",
            "outer_lr",
            "outer_momentum",
            "fragments",
            "fragment_delay",
        ]
        .map(|key| (format!("--{}", key.replace('_', "-")), number(key).into()))
        .into();
        words.push(("--betas".into(), format!("{},{}", betas[0], betas[1]).into()));
        words.push(("--mesh".into(), mesh.into()));
        words.push(("--init-from".into(), from.into()));
        words.push(("--data".into(), self.folder.join("tokens.bin").into()));
        words.push(("--export-hf".into(), to.into()));
        let given: Vec<&str> = flags.split_whitespace().collect();
        let given = given.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].into()));
        words.extend(given);
        let words: Vec<_> =
            words.iter().map(|(flag, value)| (&**flag, value.as_os_str())).collect();
        let summary = train_with_flags::<Llama>(&words).unwrap();
        (summary.losses, summary.grad_norms)
    }
}
