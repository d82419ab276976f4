//! Runs of a program on a mesh in a process of their own.
//!
//! A number that a program keeps in a `static` outlives its first run. In one process, the run on the mesh would find
//! the number of the run on one rank, and both would agree. So the program is started again, and ends when it has
//! observed the run on the mesh.

use std::cell::RefCell;
use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::mesh::MeshShape;

use super::observed::{Field, Kind, Observed, Record};

/// Names the run that a process is to observe, as a [`Request`] in JSON.
const VARIABLE: &str = "MESHWRIGHT_OBSERVED_RUN";

/// Name of the thread that runs `main`, and tests that have no thread of their own.
const MAIN_THREAD: &str = "main";

/// Cargo's folder for the programs of tests.
const TEST_FOLDER: &str = "deps";

/// A comparison of a program, which the program reaches again when it is started again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ComparedRun {
    /// Line of the program that compares.
    line: String,
    /// Number of comparisons in this line before, on the same thread.
    index: usize,
}

/// The runs that a process is to observe.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    run: ComparedRun,
    mesh: String,
    noise: Vec<Option<u32>>,
    answer: PathBuf,
}

/// Description of the numbers in an answer, which follow it as bytes.
#[derive(Serialize, Deserialize)]
struct Header {
    rank: usize,
    keeps: bool,
    records: Vec<RecordHeader>,
}

#[derive(Serialize, Deserialize)]
struct RecordHeader {
    step: u64,
    kind: Kind,
    name: String,
    index: usize,
    hash: u64,
    len: Option<usize>,
}

impl RecordHeader {
    fn of(record: &Record) -> RecordHeader {
        let Record { field: Field { step, kind, name }, index, hash, numbers } = record;
        RecordHeader {
            step: *step,
            kind: *kind,
            name: name.clone(),
            index: *index,
            hash: *hash,
            len: numbers.as_ref().map(Vec::len),
        }
    }

    /// Returns the record with its numbers, which `file` has next.
    fn read(self, file: &mut impl Read) -> io::Result<Record> {
        let RecordHeader { step, kind, name, index, hash, len } = self;
        let numbers = len.map(|len| {
            let mut numbers = vec![0.0; len];
            file.read_exact(bytemuck::cast_slice_mut::<f32, u8>(&mut numbers))?;
            io::Result::Ok(numbers)
        });
        Ok(Record { field: Field { step, kind, name }, index, hash, numbers: numbers.transpose()? })
    }
}

/// The part of this process in a comparison.
pub(crate) enum Part {
    /// It compares.
    Compares(ComparedRun),
    /// It only observes runs on a mesh.
    Observes(Observer),
    /// It skips the comparison, since it is to observe another one.
    Skips,
}

impl Part {
    /// Returns the part of this process in the comparison at `location`.
    pub(crate) fn of_comparison(location: &Location<'_>) -> Part {
        thread_local! {
            static COUNTS: RefCell<HashMap<String, usize>> = RefCell::default();
        }
        let line = location.to_string();
        let index = COUNTS.with_borrow_mut(|counts| {
            let count = counts.entry(line.clone()).or_insert(0);
            *count += 1;
            *count - 1
        });
        let run = ComparedRun { line, index };
        match requested() {
            None => Part::Compares(run),
            Some(request) if request.run == run => Part::Observes(Observer(request)),
            Some(_) => Part::Skips,
        }
    }
}

/// Returns the mesh on which this process is to observe a comparison, if it was started for that.
pub(crate) fn observed_mesh() -> Option<MeshShape> {
    requested()?.mesh.parse().ok()
}

fn requested() -> Option<Request> {
    serde_json::from_str(&env::var(VARIABLE).ok()?).ok()
}

/// Observes runs on a mesh for another process.
pub(crate) struct Observer(Request);

impl Observer {
    /// Observes the runs, each on a mesh and with the key of rounding noise, and ends the process.
    pub(crate) fn observe<E>(
        self,
        mut run: impl FnMut(&MeshShape, Option<u32>) -> Result<Vec<Observed>, E>,
    ) -> ! {
        let Observer(Request { mesh, noise, answer, .. }) = self;
        let observe = || {
            let mesh = mesh.parse().ok()?;
            let runs = noise.into_iter().map(|noise| run(&mesh, noise).ok());
            write_answer(&answer, &runs.collect::<Option<Vec<_>>>()?).ok()
        };
        std::process::exit(i32::from(observe().is_none()))
    }
}

impl ComparedRun {
    /// Starts the program again, and returns what the ranks of `mesh` observe in runs with each key of `noise`; `None`
    /// if it fails, or does not come to this comparison.
    pub(super) fn observe(
        &self,
        mesh: &MeshShape,
        noise: &[Option<u32>],
    ) -> Option<Vec<Vec<Observed>>> {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let file = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("meshwright-observed-{}-{file}", std::process::id());
        let answer = env::temp_dir().join(name);
        let request = Request {
            run: self.clone(),
            mesh: mesh.to_string(),
            noise: noise.to_vec(),
            answer: answer.clone(),
        };
        let path = env::current_exe().ok()?;
        let mut program = Command::new(&path);
        if path.parent().is_some_and(|folder| folder.ends_with(TEST_FOLDER)) {
            // A thread of the test harness has the name of its test. Without one, all tests before would run again.
            let thread = std::thread::current();
            let test = thread.name().filter(|name| *name != MAIN_THREAD)?;
            program.args(["--exact", test, "--nocapture"]);
        } else {
            program.args(env::args_os().skip(1));
        }
        program
            .env(VARIABLE, serde_json::to_string(&request).ok()?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let ended = program.status();
        let observed = read_answer(&answer);
        let _ = fs::remove_file(&answer);
        ended.ok().filter(|status| status.success())?;
        observed.ok()
    }
}

fn write_answer(path: &Path, runs: &[Vec<Observed>]) -> io::Result<()> {
    let header = |observed: &Observed| Header {
        rank: observed.rank,
        keeps: observed.keeps,
        records: observed.records.iter().map(RecordHeader::of).collect(),
    };
    let headers: Vec<Vec<Header>> =
        runs.iter().map(|ranks| ranks.iter().map(header).collect()).collect();
    let mut file = io::BufWriter::new(File::create_new(path)?);
    serde_json::to_writer(&mut file, &headers)?;
    file.write_all(b"\n")?;
    for record in runs.iter().flatten().flat_map(|observed| &observed.records) {
        file.write_all(bytemuck::cast_slice(record.numbers.as_deref().unwrap_or_default()))?;
    }
    file.flush()
}

fn read_answer(path: &Path) -> io::Result<Vec<Vec<Observed>>> {
    let mut file = BufReader::new(File::open(path)?);
    let mut headers = Vec::new();
    file.read_until(b'\n', &mut headers)?;
    let headers: Vec<Vec<Header>> = serde_json::from_slice(&headers)?;
    let mut observed_of = |header: Header| -> io::Result<Observed> {
        let Header { rank, keeps, records } = header;
        let records = records.into_iter().map(|record| record.read(&mut file));
        Ok(Observed { rank, keeps, step: 0, records: records.collect::<io::Result<_>>()? })
    };
    headers.into_iter().map(|ranks| ranks.into_iter().map(&mut observed_of).collect()).collect()
}
