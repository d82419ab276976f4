//! Where the ranks of a run compute.

#[cfg(feature = "cuda")]
mod choice;
#[cfg(feature = "cuda")]
mod gpus;
mod host_memory;

use crate::backend::cpu::CpuBackend;
use crate::backend::{Backend, DType};
use crate::comm::RankComms;
use crate::launch::{Place, PlaceError};

use crate::train::config::{Config, Device};
use crate::train::console::counted;
use crate::train::{Error, Result};

/// What a run's ranks compute on. [`Trainer::on`](crate::train::Trainer::on) takes one of your own.
pub trait Machine: Send + Sync {
    /// The backend of one rank, by its number in the world; called once, on the thread of the rank.
    ///
    /// # Errors
    /// Where the machine does not have what the rank needs.
    fn backend(&self, rank: usize) -> Result<Box<dyn Backend>>;

    /// The rank that this process runs, where every rank is a process; none: all ranks are threads of this one.
    fn own_rank(&self) -> Option<usize> {
        None
    }

    /// The rank's communicators, over what connects the devices: those of the process, where nothing else does. Called
    /// once, on the thread of the rank.
    ///
    /// # Errors
    /// Where the ranks do not find each other.
    fn connect(&self, comms: RankComms, _backend: &dyn Backend) -> Result<RankComms> {
        Ok(comms)
    }

    /// Why steps are submitted operation by operation even where they could be recorded, if they are.
    fn why_not_recorded(&self) -> Option<String> {
        None
    }

    /// What it is, in a few words: "4 threads", "an NVIDIA H100".
    fn describe(&self) -> String;

    /// Bytes of memory that all ranks together can have, where that is known.
    fn memory(&self) -> Option<f64>;

    /// FLOP/s that all ranks together could reach in large products of `dtype`, where that is known; else it is
    /// measured.
    fn peak_flops(&self, dtype: DType) -> Option<f64>;
}

#[cfg(feature = "cuda")]
pub use gpus::Gpus;

/// The machine that the settings ask for.
///
/// # Errors
/// Where it is not there.
pub fn machine_of(config: &Config) -> Result<Box<dyn Machine>> {
    let place = place_of_process(config.device)?.filter(|place| place.world > 1);
    let world = config.mesh.world_size();
    match config.device {
        Device::Cpu => {
            refuse_processes(place)?;
            Ok(Box::new(Processor { threads: config.threads_per_rank(world), ranks: world }))
        }
        Device::Cuda => gpus(config, place),
    }
}

/// Who this process is, where a launcher has started several.
fn place_of_process(device: Device) -> Result<Option<Place>> {
    match Place::of_process() {
        // Without a word of how many there are, a variable may have been set for something else.
        Err(PlaceError::Missing { missing, .. })
            if device == Device::Cpu && missing != "MASTER_ADDR" =>
        {
            Ok(None)
        }
        place => place.map_err(|error| Error::Input(error.to_string())),
    }
}

/// On the processor, ranks are threads of one process: several would each do all of the run, and write to the same files.
fn refuse_processes(place: Option<Place>) -> Result<()> {
    match place {
        Some(Place { rank, world, .. }) => Err(Error::Input(format!(
            "this process was started as rank {rank} of {world}, but on the processor the ranks of a run are threads of one \
             process; start one, and give its ranks with --mesh, or use --device cuda"
        ))),
        None => Ok(()),
    }
}

/// The processor of this machine, its threads shared out among the ranks.
struct Processor {
    threads: usize,
    ranks: usize,
}

impl Machine for Processor {
    fn backend(&self, _: usize) -> Result<Box<dyn Backend>> {
        let threads = self.threads;
        let backend = CpuBackend::new(threads).map_err(|error| {
            Error::Input(format!("--threads {threads}: the threads could not be started: {error}"))
        })?;
        Ok(Box::new(backend))
    }

    fn describe(&self) -> String {
        let each = if self.ranks == 1 { "" } else { " each" };
        format!("{}{each}", counted(self.threads, "thread"))
    }

    fn memory(&self) -> Option<f64> {
        host_memory::available()
    }

    fn peak_flops(&self, _: DType) -> Option<f64> {
        None
    }
}

#[cfg(feature = "cuda")]
fn gpus(config: &Config, place: Option<Place>) -> Result<Box<dyn Machine>> {
    let (mesh, nondeterministic) = (&config.mesh, config.nondeterministic);
    Ok(Box::new(match place {
        Some(place) => Gpus::of_process(mesh, &place, nondeterministic)?,
        None => Gpus::of_host(mesh.world_size(), nondeterministic)?,
    }))
}

#[cfg(not(feature = "cuda"))]
fn gpus(_: &Config, _: Option<Place>) -> Result<Box<dyn Machine>> {
    Err(Error::Input(
        "--device cuda: this program was built without GPUs; build it with --features cuda, or use --device cpu".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_processes_is_refused() {
        let place = |world: &str| {
            let of = |name: &str| match name {
                "RANK" | "LOCAL_RANK" => Some("0".to_owned()),
                "WORLD_SIZE" => Some(world.to_owned()),
                "MASTER_ADDR" => Some("localhost".to_owned()),
                _ => None,
            };
            Place::of(of).unwrap()
        };
        let text = refuse_processes(place("4")).unwrap_err().to_string();
        assert!(text.contains("started as rank 0 of 4"), "{text}");
        assert!(refuse_processes(None).is_ok());
    }
}
