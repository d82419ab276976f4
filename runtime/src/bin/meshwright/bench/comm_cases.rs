//! The measurements of `bench comm`, and the table of their results.

use clap::ArgMatches;
use meshwright::backend::DType;
use meshwright::bench::{COLLECTIVES, Collective, CollectiveTime, even_size, measure_collective};
use meshwright::comm::Site;
use meshwright::counted;
use meshwright::launch::ProcessRank;
use meshwright::layout::AxisSet;
use meshwright::tensor::Rank;
use meshwright::train::{Error, Machine};
use meshwright_backend::__internal::Bytes;

#[cfg(feature = "cuda")]
use super::failure;
use super::table::{align, size_text, time_text};
use crate::failure::Failure;

/// Copies of the largest tensor that a rank may need: the operands, and the staging buffer of a message.
const COPIES: f64 = 3.5;

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

impl CommCases {
    pub fn of(matches: &ArgMatches, device: &str) -> Result<CommCases, Failure> {
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
    pub fn check_memory(&self, machine: &dyn Machine) -> Result<(), Error> {
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
    pub fn check_agreement(&self, rank: &Rank) -> Result<(), Error> {
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

    pub fn measure(&self, rank: &Rank) -> Result<Vec<MeasuredCollective>, Error> {
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

    pub fn describe(&self, machine: &dyn Machine, measured: &[MeasuredCollective]) -> String {
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

/// Returns the number of ranks: of the processes, if a launcher has started them, unless one is to start threads.
fn choose_ranks(given: Option<usize>, device: &str) -> Result<usize, Failure> {
    let own = ProcessRank::from_environment().map_err(|error| error.to_string())?;
    let ranks = match (own.map(|own| own.world), given) {
        (None | Some(1), Some(ranks)) => ranks,
        (None, None) => default_ranks(device)?,
        (Some(world), Some(ranks)) if ranks != world => {
            let message = format!(
                "--ranks {ranks}: {world} processes were started, each of them a rank; start {ranks}, or leave it out"
            );
            return Err(message.into());
        }
        (Some(world), _) => world,
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
