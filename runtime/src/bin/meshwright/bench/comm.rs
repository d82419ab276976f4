//! The subcommand `bench comm`: times and bandwidths of collectives.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use meshwright::backend::DType;
use meshwright::bench::{COLLECTIVES, Collective, CollectiveTime, even_size, measure_collective};
use meshwright::comm::LaunchOptions;
use meshwright::comm::Site;
use meshwright::counted;
use meshwright::launch::ProcessRank;
use meshwright::layout::{AxisId, AxisSet};
use meshwright::mesh::MeshShape;
use meshwright::tensor::Rank;
use meshwright::train::{Error, Machine, run_on_machine};
use meshwright_backend::__internal::Bytes;

use super::comm_record::{bandwidth_curves, comm_record};
use super::output::{BenchFiles, file_args};
use super::table::{align, size_text, time_text};
use super::{device_arg, failure, open, refused};
use crate::failure::Failure;

/// Most ranks that are started as threads.
const MAX_THREADS: u64 = 1024;

/// Copies of the largest tensor that a rank may need: the operands, and the staging buffer of a message.
const COPIES: f64 = 3.5;

pub fn command() -> Command {
    let names = || COLLECTIVES.iter().map(|collective| collective.name);
    Command::new("comm")
        .about(
            "Measure collectives between ranks: time, algorithm and bus bandwidth. Ranks are threads, or the processes \
             that mpirun, torchrun or `meshwright run` has started",
        )
        .arg(
            Arg::new("ranks")
                .long("ranks")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=MAX_THREADS))
                .help("Number of ranks, at least 2 [default: all GPUs, else 2; of processes, as many as there are]"),
        )
        .arg(device_arg())
        .arg(
            Arg::new("ops")
                .long("ops")
                .value_name("NAME,..")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .value_parser(PossibleValuesParser::new(names()))
                .help("Collectives to measure [default: all]"),
        )
        .arg(
            Arg::new("sizes")
                .long("sizes")
                .value_name("BYTES,..")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .default_value("1KiB,8KiB,64KiB,1MiB,8MiB,64MiB")
                .help("Sizes of the whole tensor, rounded down to the same number of elements for each rank"),
        )
        .arg(
            Arg::new("dtype")
                .long("dtype")
                .value_name("DTYPE")
                .value_parser(["f32", "bf16"])
                .default_value("f32")
                .help("Dtype of the elements; sums of bf16 are computed in f32"),
        )
        .args(file_args("Write the measurements, which `meshwright calibrate` reads beside a record of --record"))
}

/// The collectives that are measured, and their sizes in bytes.
pub struct CommCases {
    pub ranks: usize,
    pub dtype: DType,
    pub collectives: Vec<&'static Collective>,
    pub sizes: Vec<usize>,
}

/// A measured collective.
pub struct MeasuredCollective {
    pub collective: &'static Collective,
    pub time: CollectiveTime,
}

/// Runs the subcommand. Returns the text to print, which is empty on all processes but the first.
pub fn run_command(matches: &ArgMatches) -> Result<String, Failure> {
    let device: &String = matches.get_one("device").expect("it has a default");
    let cases = CommCases::of(matches, device)?;
    let files = BenchFiles::of(matches);
    let machine = open(device, cases.ranks, None)?;
    cases
        .check_memory(&*machine)
        .inspect_err(|error| machine.announce_failure(error))
        .map_err(failure)?;
    let shape = MeshShape::new([(AxisId::Dp, cases.ranks)]).expect("the number of ranks is valid");
    let measured = run_on_machine(&*machine, &shape, &LaunchOptions::default(), |rank| {
        if rank.index() == 0 {
            files.check().map_err(refused)?;
        }
        cases.check_agreement(rank)?;
        cases.measure(rank)
    });
    let measured = measured.map_err(failure)?;
    if machine.own_rank().is_some_and(|rank| rank > 0) {
        return Ok(String::new());
    }
    let record = comm_record(&cases, &*machine, &measured);
    let written = files.write(&record, &bandwidth_curves(&cases, &measured))?;
    Ok(cases.describe(&*machine, &measured) + &written)
}

impl CommCases {
    fn of(matches: &ArgMatches, device: &str) -> Result<CommCases, Failure> {
        let given = matches.get_one::<u64>("ranks").map(|ranks| *ranks as usize);
        let ranks = choose_ranks(given, device)?;
        let dtype = match matches.get_one::<String>("dtype").map(String::as_str) {
            Some("bf16") => DType::Bf16,
            _ => DType::F32,
        };
        let texts = matches.get_many::<String>("sizes").into_iter().flatten();
        let mut sizes = texts
            .map(|text| parse_size(text.trim(), dtype, ranks))
            .collect::<Result<Vec<usize>, String>>()?;
        sizes.sort_unstable();
        sizes.dedup();
        let names: Vec<&String> = matches.get_many("ops").into_iter().flatten().collect();
        let is_chosen =
            |one: &&Collective| names.is_empty() || names.iter().any(|name| *name == one.name);
        let collectives = COLLECTIVES.iter().filter(is_chosen).collect();
        Ok(CommCases { ranks, dtype, collectives, sizes })
    }

    fn largest(&self) -> usize {
        let has_data = self.collectives.iter().any(|one| one.has_data());
        self.sizes.last().copied().filter(|_| has_data).unwrap_or(0)
    }

    /// Refuses sizes that the memory of all ranks cannot hold.
    fn check_memory(&self, machine: &dyn Machine) -> Result<(), Error> {
        let needed = COPIES * self.largest() as f64 * self.ranks as f64;
        match machine.memory() {
            Some(memory) if needed > memory => Err(Error::Input(format!(
                "--sizes: {} on {} needs about {} in all, but {} are available; use smaller sizes, or fewer ranks",
                size_text(self.largest()),
                counted(self.ranks, "rank"),
                Bytes(needed),
                Bytes(memory)
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that all processes measure the same: their calls would not match.
    fn check_agreement(&self, rank: &Rank) -> Result<(), Error> {
        let names: Vec<&str> = self.collectives.iter().map(|one| one.name).collect();
        let digest = digest(&format!("{names:?} {:?} {}", self.sizes, self.dtype.name()));
        let mut digests = vec![0.0; self.ranks];
        digests[rank.index()] = digest;
        rank.all_reduce_f64(AxisSet::ALL, &Site::new("settings"), &mut digests);
        match digests.iter().position(|other| *other != digests[0]) {
            None => Ok(()),
            Some(other) => Err(Error::Input(format!(
                "--ops, --sizes or --dtype of rank {other} differ from those of rank 0; start all processes by \
                 one command"
            ))),
        }
    }

    fn measure(&self, rank: &Rank) -> Result<Vec<MeasuredCollective>, Error> {
        let sizes_of = |one: &'static Collective| {
            let sizes = if one.has_data() { &self.sizes[..] } else { &[0] };
            sizes.iter().map(move |size| (one, *size))
        };
        let cases = self.collectives.iter().copied().flat_map(sizes_of);
        cases
            .map(|(collective, size)| {
                let time = measure_collective(rank, collective, size, self.dtype)?;
                Ok(MeasuredCollective { collective, time })
            })
            .collect()
    }

    fn describe(&self, machine: &dyn Machine, measured: &[MeasuredCollective]) -> String {
        let head = ["operation", "size", "time", "algorithm GB/s", "bus GB/s"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(measured.iter().map(|one| {
            let name = one.collective.name.to_owned();
            let time = time_text(one.time.seconds);
            if !one.collective.has_data() {
                return vec![name, String::new(), time];
            }
            let rate = |rate: f64| format!("{:.3}", rate / 1e9);
            let size = size_text(one.time.size);
            vec![
                name,
                size,
                time,
                rate(one.time.algorithm_bandwidth()),
                rate(self.bus_bandwidth(one)),
            ]
        }));
        let place = match (machine.own_rank(), machine.device().is_gpu) {
            (Some(_), true) => "processes over NCCL",
            (Some(_), false) => "processes over MPI",
            (None, true) if machine.device().ranks_each == 1 => "threads over NCCL",
            (None, _) => "threads",
        };
        format!(
            "{} as {place} ({}), {}\n{}",
            counted(self.ranks, "rank"),
            machine.device().name,
            self.dtype.name(),
            align(&rows, 1)
        )
    }

    /// Returns the bus bandwidth of a measurement in bytes per second.
    pub fn bus_bandwidth(&self, measured: &MeasuredCollective) -> f64 {
        measured.time.algorithm_bandwidth() * measured.collective.bus_factor(self.ranks)
    }
}

/// Returns the number of ranks: of the processes, if a launcher has started several.
fn choose_ranks(given: Option<usize>, device: &str) -> Result<usize, Failure> {
    let own = ProcessRank::from_environment().map_err(|error| error.to_string())?;
    let ranks = match (own.map_or(1, |own| own.world), given) {
        (1, Some(ranks)) => ranks,
        (1, None) => default_ranks(device)?,
        (world, Some(ranks)) if ranks != world => {
            let message = format!(
                "--ranks {ranks}: {world} processes were started, each of them a rank; start {ranks}, or leave it out"
            );
            return Err(message.into());
        }
        (world, _) => world,
    };
    if ranks < 2 {
        let message = "one rank has no other to communicate with; use --ranks 2 or more, or start several processes \
                       (mpirun -n 2 meshwright bench comm); of one GPU, --ranks 2 shares it";
        return Err(message.to_owned().into());
    }
    Ok(ranks)
}

#[cfg(feature = "cuda")]
fn default_ranks(device: &str) -> Result<usize, Failure> {
    if device == "cuda" { meshwright::train::Gpus::count().map_err(failure) } else { Ok(2) }
}

#[cfg(not(feature = "cuda"))]
fn default_ranks(_: &str) -> Result<usize, Failure> {
    Ok(2)
}

/// Reads a size in bytes, and rounds it down to an even one.
fn parse_size(text: &str, dtype: DType, ranks: usize) -> Result<usize, String> {
    let bytes: Bytes = text.parse().map_err(|()| {
        format!("--sizes: must be numbers of bytes such as 64KiB,8MiB, not `{text}`")
    })?;
    match even_size(bytes.0 as usize, dtype, ranks) {
        0 => Err(format!(
            "--sizes: `{text}` has no element of {} for each of {}; use at least {} B",
            dtype.name(),
            counted(ranks, "rank"),
            dtype.bytes() * ranks
        )),
        size => Ok(size),
    }
}

/// Returns a hash that f64 holds exactly.
fn digest(text: &str) -> f64 {
    let byte = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, byte);
    (hash >> 11) as f64
}
