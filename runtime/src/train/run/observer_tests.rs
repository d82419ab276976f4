//! Observers that a program adds: the calls on each rank, and errors on some of them.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use crate::comm::Site;
use crate::models::llama::Llama;
use crate::os::exit_code::{LOST, REFUSED};
use crate::tensor::Rank;
use crate::train::{Config, Error, Result, StepObserver, StepReport, Summary, Trainer};

/// A run that takes a fraction of a second.
const SMALL: &str =
    "t --steps 3 --layers 1 --hidden 16 --heads 2 --ffn 16 --seq 8 --batch 4 --sample-tokens 0";

/// The calls on each rank, as text.
type Calls = Arc<Mutex<BTreeMap<usize, Vec<String>>>>;

/// The method that fails, on one rank.
#[derive(Clone, Copy, PartialEq)]
enum Failure {
    Make,
    End(u64),
    Finish,
}

/// Lists its calls; `Rc` stays on the thread of its rank.
struct Lister {
    calls: Calls,
    loss: Rc<f64>,
    fails: Option<Failure>,
}

impl Lister {
    fn note(&self, rank: &Rank, call: String) {
        self.calls.lock().unwrap().entry(rank.index()).or_default().push(call);
    }

    fn fail_at(&self, place: Failure) -> Result<()> {
        match self.fails {
            Some(fails) if fails == place => {
                Err(Error::of_observer(io::Error::other("the tracker is away")))
            }
            _ => Ok(()),
        }
    }
}

impl StepObserver for Lister {
    fn begin(&mut self, rank: &Rank, step: u64) {
        self.note(rank, format!("begin {step}"));
    }

    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        assert!(report.tokens == 32 && report.seconds > 0.0 && report.grad_norm > 0.0);
        assert_eq!((report.lr, report.save_failed), (1e-3, None));
        assert_eq!(report.attention_balance, None);
        self.loss = Rc::new(report.loss);
        self.note(report.rank, format!("end {} {:?}", report.step, report.loss));
        self.fail_at(Failure::End(report.step))
    }

    fn finish(&mut self, rank: &Rank) -> Result<()> {
        self.note(rank, format!("finish {:?}", self.loss));
        self.fail_at(Failure::Finish)
    }
}

/// Trains with an observer that fails on rank 1.
fn train(flags: &str, fails: Option<Failure>) -> (Result<Summary>, BTreeMap<usize, Vec<String>>) {
    let line = format!("{SMALL} {flags}");
    let config = Config::parse(line.split_whitespace()).unwrap();
    let calls = Calls::default();
    let of_run = Arc::clone(&calls);
    let make = move |rank: &Rank| {
        let fails = fails.filter(|_| rank.index() == 1);
        let lister = Lister { calls: Arc::clone(&of_run), loss: Rc::new(0.0), fails };
        lister.fail_at(Failure::Make)?;
        Ok(lister)
    };
    let trained = Trainer::<Llama>::new(config).unwrap().on_step(make).train();
    let calls = calls.lock().unwrap().clone();
    (trained, calls)
}

#[test]
fn every_rank_has_an_observer_of_all_steps() {
    for (mesh, ranks) in [("dp=2,tp=2", 4), ("fsdp=2", 2), ("1", 1)] {
        let (summary, calls) = train(&format!("--mesh {mesh}"), None);
        let losses = summary.unwrap().losses;
        let mut expected: Vec<String> = Vec::new();
        for (step, loss) in (1..).zip(&losses) {
            expected.extend([format!("begin {step}"), format!("end {step} {loss:?}")]);
        }
        expected.push(format!("finish {:?}", losses[2]));
        assert_eq!(calls.len(), ranks);
        assert!(calls.values().all(|calls| *calls == expected), "{mesh}: {calls:?}");
    }
}

#[test]
fn an_observer_of_one_rank_is_made_there() {
    let config = Config::parse(format!("{SMALL} --mesh dp=2").split(' ')).unwrap();
    let calls = Calls::default();
    let of_run = Arc::clone(&calls);
    let make = move |rank: &Rank| {
        let lister = Lister { calls: Arc::clone(&of_run), loss: Rc::new(0.0), fails: None };
        Ok((rank.index() == 1).then_some(lister))
    };
    Trainer::<Llama>::new(config).unwrap().on_step(make).train().unwrap();
    let calls = calls.lock().unwrap();
    assert_eq!(
        calls.iter().map(|(rank, calls)| (*rank, calls.len())).collect::<Vec<_>>(),
        [(1, 7)]
    );
}

/// An error on one rank ends the run on all of them, after the checkpoint of its step.
#[test]
fn an_error_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let save = |name: &str| dir.path().join(name).display().to_string();
    let check = |trained: Result<Summary>| {
        let error = trained.map(drop).unwrap_err();
        assert_eq!(error.to_string(), "observer: the tracker is away");
        assert_eq!(error.exit_code(), REFUSED);
    };
    let (trained, calls) = train("--mesh dp=2,tp=2", Some(Failure::Make));
    check(trained);
    assert!(calls.values().flatten().all(|call| call == "begin 1"), "{calls:?}");

    let flags = format!("--mesh dp=2,tp=2 --save {} --save-every 1", save("a"));
    let (trained, calls) = train(&flags, Some(Failure::End(2)));
    check(trained);
    assert_eq!(calls[&1].len(), 4);
    assert!(calls.values().flatten().all(|call| !call.contains("finish")), "{calls:?}");
    assert!(dir.path().join("a/step-00000002").is_dir());
    assert!(!dir.path().join("a/step-00000003").exists());

    // The results of the run are there.
    for (name, failure) in [("b", Failure::End(3)), ("c", Failure::Finish)] {
        let flags = format!("--mesh dp=2 --save {} --export-hf {}", save(name), save("hf"));
        check(train(&flags, Some(failure)).0);
        assert!(dir.path().join(name).join("step-00000003").is_dir());
    }
    assert!(dir.path().join("hf/config.json").is_file());
}

/// A call that the other ranks do not make, in a step and after the last one.
#[test]
fn a_collective_of_one_rank_ends_the_run() {
    struct Alone {
        at: u64,
    }
    impl StepObserver for Alone {
        fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
            if report.step == self.at {
                report.rank.comms().world().barrier(&Site::new("observer"))?;
            }
            Ok(())
        }
    }
    for at in [1, 3] {
        let config = Config::parse(format!("{SMALL} --mesh dp=2").split(' ')).unwrap();
        let make = move |rank: &Rank| Ok((rank.index() == 0).then_some(Alone { at }));
        let trained = Trainer::<Llama>::new(config).unwrap().on_step(make).train();
        let text = trained.map(drop).unwrap_err().to_string();
        assert!(text.contains("observer"), "{text}");
    }
}

/// A run that stops anyway is stopped, not failed.
#[test]
fn a_stop_outweighs_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let flags = format!("--mesh dp=2 --save {} --stop-after 1s --steps", dir.path().display());
    let line = SMALL.replace("--steps 3", "--seed 0");
    let config = Config::parse(format!("{line} {flags} 1000000").split(' ')).unwrap();
    struct Late;
    impl StepObserver for Late {
        fn end(&mut self, _: &StepReport<'_>) -> Result<()> {
            Ok(())
        }

        fn finish(&mut self, _: &Rank) -> Result<()> {
            Err(Error::of_observer("too late"))
        }
    }
    let trained = Trainer::<Llama>::new(config).unwrap().on_step(|_| Ok(Late)).train();
    let error = trained.map(drop).unwrap_err();
    assert!(matches!(error, Error::Stopped(_)), "{error}");
    assert!(dir.path().join("latest").exists());
}

#[test]
fn the_cause_of_an_error_has_the_exit_code() {
    let full = io::Error::from_raw_os_error(libc::ENOSPC);
    assert_eq!(Error::of_observer(full).exit_code(), LOST);
}

/// A metric of an observer is in the lines of its steps, with the value of rank 0.
#[test]
fn observers_add_metrics() {
    struct Adds(&'static [&'static str]);
    impl StepObserver for Adds {
        fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
            let own = report.rank.index() as f64 + report.step as f64;
            self.0.iter().try_for_each(|name| report.metric(name, own))
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.jsonl");
    let run = |names: &'static [&'static str]| {
        let line = format!("{SMALL} --mesh dp=2 --metrics {}", path.display());
        let config = Config::parse(line.split(' ')).unwrap();
        Trainer::<Llama>::new(config).unwrap().on_step(move |_| Ok(Adds(names))).train()
    };
    run(&["own", "layers.0/x"]).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    for (step, line) in (1..).zip(lines) {
        assert_eq!((&line["own"], &line["layers.0/x"]), (&f64::from(step).into(), &line["own"]));
    }
    for (names, expected) in [
        (
            &["tokens"][..],
            "metric `tokens`: the trainer reports a metric of this name; use another",
        ),
        (&["own", "own"], "metric `own`: it was already added to this step"),
    ] {
        let error = run(names).map(drop).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(error.exit_code(), REFUSED);
    }
}
