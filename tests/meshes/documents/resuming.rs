//! Runs with documents that are resumed.

use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::train::LanguageModel;

use super::bags::Bags;
use super::run::{EXAMPLE, Run};

const STEPS: u64 = 6;

#[test]
fn packed_runs_resume_bitwise_on_other_meshes() {
    let run = Run::new();
    for (index, (mesh, words)) in [
        ("1", "--pack"),
        ("dp=2", "--pack --mask-borders --order shuffled --micro-batches 2"),
        ("fsdp=2,tp=2", "--mask-borders --order shuffled"),
        ("pp=2", "--pack --order shuffled --micro-batches 4"),
    ]
    .into_iter()
    .enumerate()
    {
        let saved = run.path(&format!("saved {index}").replace(' ', "-"));
        let words = format!("{words} --mesh {mesh} --steps {STEPS}");
        let whole = run.train::<Bags>(&format!("{words} --save {saved} --save-every 3")).unwrap();
        assert!(whole.losses.iter().all(|loss| loss.is_finite()));
        let half = format!("{saved}/step-00000003");
        let rest = run.train::<Bags>(&format!("{words} --resume {half}")).unwrap();
        assert_eq!(rest.losses, whole.losses[3..], "{mesh}");
        assert_eq!(rest.grad_norms, whole.grad_norms[3..], "{mesh}");
        let one = words.replace(&format!("--mesh {mesh}"), "--mesh 1");
        let one = run.train::<Bags>(&one).unwrap();
        for (found, expected) in whole.losses.iter().zip(&one.losses) {
            assert!((found - expected).abs() < 1e-5 * expected, "{mesh}: {found}, not {expected}");
        }
    }
}

#[test]
fn a_resumed_run_needs_the_same_documents() {
    let run = Run::new();
    let saved = run.path("saved");
    run.train::<Bags>(&format!("--pack --steps 2 --mesh 1 --save {saved}")).unwrap();
    let refused = |words: &str| {
        let words = format!("{words} --steps 4 --mesh 1 --resume {saved}/latest");
        run.train::<Bags>(&words).unwrap_err().to_string()
    };
    let text = refused("--mask-borders");
    assert!(text.contains("--pack: false, but true was saved"), "{text}");
    assert!(text.contains("--mask-borders: true, but false was saved"), "{text}");
    run.train::<Bags>(&format!("--pack --steps 4 --mesh 1 --resume {saved}/latest")).unwrap();
}

#[track_caller]
fn check_resumed<M: LanguageModel>(mesh: &str) {
    let run = Run::new();
    let words = format!("{EXAMPLE} --pack --order shuffled --mesh {mesh} --steps 4");
    let saved = run.path("saved");
    let whole = run.train::<M>(&format!("{words} --save {saved} --save-every 2")).unwrap();
    let half = format!("{saved}/step-00000002");
    let rest = run.train::<M>(&format!("{words} --resume {half}")).unwrap();
    assert_eq!(rest.losses, whole.losses[2..], "{mesh}");
    assert_eq!(rest.grad_norms, whole.grad_norms[2..], "{mesh}");
    // A checkpoint does not depend on the ranks of cp.
    let words = words.replace(&format!("--mesh {mesh}"), "--mesh 1");
    let other = run.train::<M>(&format!("{words} --resume {half}")).unwrap();
    for (found, expected) in other.losses.iter().zip(&rest.losses) {
        assert!((found - expected).abs() < 1e-5 * expected, "{mesh}: {found}, not {expected}");
    }
}

#[test]
fn examples_resume_bitwise_with_documents() {
    for mesh in ["cp=4", "pp=2,cp=2 --micro-batches 2", "fsdp=2,cp=2"] {
        check_resumed::<Llama>(mesh);
        check_resumed::<Gpt2>(mesh);
    }
}
