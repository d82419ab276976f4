//! The cases of every engine, on ranks that are processes over MPI, and the failures of such ranks. The program starts
//! itself by `mpirun`: the one beside the compiler wrapper in `MPICC`, or in `PATH`.

mod cases;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use meshwright_backend::{Buffer, CachingAllocator, Category, View, ViewMut};
use meshwright_comm::mpi::{MpiEngine, MpiSettings};
use meshwright_comm::process_launch::{RankAssignment, Store, StoreOptions};
use meshwright_comm::{
    CommError, LaunchOptions, MessageId, RankComms, ReduceOp, Site, launch_rank,
};
use meshwright_mesh::{AxisId, AxisSet, MeshShape};

/// The variable with the name of a scenario, which the parent passes to its ranks.
const SCENARIO: &str = "MESHWRIGHT_TEST_SCENARIO";

/// The exit code of a rank with an error that it has printed.
const FAILED: u8 = 3;

fn main() -> ExitCode {
    match RankAssignment::from_environment().expect("variables of a launcher") {
        Some(assignment) => run_rank(&assignment),
        None => {
            start_all();
            ExitCode::SUCCESS
        }
    }
}

/// A run of several ranks.
struct Scenario {
    name: &'static str,
    mesh: &'static str,
    /// Texts that the output must have.
    texts: &'static [&'static str],
    succeeds: bool,
}

const SCENARIOS: [Scenario; 11] = [
    Scenario { name: "cases", mesh: "tp=1", texts: &[], succeeds: true },
    Scenario { name: "cases", mesh: "tp=2", texts: &[], succeeds: true },
    Scenario { name: "cases", mesh: "tp=3", texts: &[], succeeds: true },
    Scenario { name: "cases", mesh: "dp=2,tp=2", texts: &[], succeeds: true },
    Scenario {
        name: "other call",
        mesh: "tp=3",
        texts: &[
            "issued different calls",
            "rank 1: broadcast(f32 x 8 from rank 0) over tp, issued by b.norm",
            "all_reduce(sum, f32 x 8) over tp, issued by a.down",
        ],
        succeeds: false,
    },
    Scenario {
        name: "other size",
        mesh: "tp=2",
        texts: &[
            "issued different calls",
            "all_reduce(sum, f32 x 8)",
            "all_reduce(sum, f32 x 9000)",
        ],
        succeeds: false,
    },
    // The counts of an all-to-all are in no tag: its members know only their own.
    Scenario {
        name: "other counts",
        mesh: "tp=2",
        texts: &[
            "issued different calls",
            "rank 0: all_to_all(f32, send [2, 2], receive [2, 4])",
            "rank 1: a part of 36000 bytes of another call",
        ],
        succeeds: false,
    },
    Scenario {
        name: "other message",
        mesh: "pp=2",
        texts: &["recv(f32 x 4 from rank 0)", "micro-batch 1", "rank 0: a message of 16 bytes"],
        succeeds: false,
    },
    Scenario {
        name: "killed",
        mesh: "tp=3",
        texts: &[
            "rank 0: rank 1 was lost",
            "rank 2: rank 1 was lost",
            "all_reduce(sum, f32 x 1000) over tp, issued by blocks.3.mlp.down",
        ],
        succeeds: false,
    },
    Scenario {
        name: "late",
        mesh: "tp=2",
        texts: &["rank 0: all_reduce", "waited 0.3 s for ranks [1]"],
        succeeds: false,
    },
    Scenario {
        name: "other world",
        mesh: "tp=4",
        texts: &["MPI has started 2 processes together, but the run has 4 ranks"],
        succeeds: false,
    },
];

fn start_all() {
    for Scenario { name, mesh, texts, succeeds } in SCENARIOS {
        let shape: MeshShape = mesh.parse().expect("a mesh");
        let ranks = if name == "other world" { 2 } else { shape.world_size() };
        let (start, program) = (Instant::now(), std::env::current_exe().expect("this program"));
        let output = Command::new(mpirun())
            .args(["-n", &ranks.to_string()])
            .arg(program)
            .arg(mesh)
            .env(SCENARIO, name)
            .env("MASTER_PORT", free_port().to_string())
            // More ranks than cores, and the root of a container.
            .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .output()
            .unwrap_or_else(|error| panic!("mpirun: {error}"));
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        let text = text.concat();
        assert_eq!(
            output.status.success(),
            succeeds,
            "{name} on {mesh}: {}\n{text}",
            output.status
        );
        for expected in texts {
            assert!(text.contains(expected), "{name} on {mesh}: no `{expected}` in\n{text}");
        }
        println!("{name} on {mesh}: as expected, in {:.1} s", start.elapsed().as_secs_f64());
    }
}

fn mpirun() -> PathBuf {
    let beside =
        std::env::var_os("MPICC").map(|wrapper| Path::new(&wrapper).with_file_name("mpirun"));
    beside.filter(|program| program.exists()).unwrap_or_else(|| "mpirun".into())
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

fn run_rank(assignment: &RankAssignment) -> ExitCode {
    let name = std::env::var(SCENARIO).expect("a scenario");
    let mesh: MeshShape = std::env::args().nth(1).expect("a mesh").parse().expect("a mesh");
    let rank = assignment.rank;
    // The launcher ends all ranks when one is lost; they have to report it themselves.
    // SAFETY: the process has no handler of this signal.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    let timeout = Duration::from_secs(60);
    let options = StoreOptions { timeout, ..StoreOptions::default() };
    let store =
        Arc::new(Store::open(assignment, &options).unwrap_or_else(|error| panic!("{error}")));
    let outcome =
        launch_rank(&LaunchOptions::default(), &mesh, rank, CommError::exit_code, |comms| {
            let timeout = if name == "late" { Duration::from_millis(300) } else { timeout };
            let settings =
                MpiSettings { shape: mesh, rank, timeout, peers: Arc::clone(&store) as _ };
            let engine = MpiEngine::new(settings).map_err(|error| CommError::Engine {
                rank,
                call: "start".into(),
                problem: error.to_string(),
            })?;
            run_scenario(&name, &comms.over(engine))
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rank {rank}: {}", error.failures[0].cause);
            // The other ranks have the time to report theirs before the launcher ends them.
            std::thread::sleep(Duration::from_millis(300));
            ExitCode::from(FAILED)
        }
    }
}

fn run_scenario(name: &str, comms: &RankComms) -> Result<(), CommError> {
    let (world, rank) = (comms.world(), comms.rank());
    let sum = |field: &str, len: usize| {
        let mut data = vec![1f32; len];
        world.all_reduce(&Site::new(field), ReduceOp::Sum, ViewMut::from(&mut data[..]))
    };
    match name {
        "cases" => {
            for axes in [AxisSet::of(AxisId::Tp), AxisSet::of(AxisId::Dp), AxisSet::ALL] {
                let group = comms.group(axes);
                for (name, case) in cases::CASES {
                    case(&group).inspect_err(|_| eprintln!("{name} over {axes} fails"))?;
                }
            }
            Ok(())
        }
        // Every rank has issued both calls before, in one order.
        "other call" => {
            let tp = comms.group(AxisSet::of(AxisId::Tp));
            let mut data = [1f32; 8];
            for step in 0..3 {
                for turn in 0..2 {
                    let view = ViewMut::from(&mut data[..]);
                    if (turn == 0) != (step == 2 && rank == 1) {
                        tp.all_reduce(&Site::new("a.down"), ReduceOp::Sum, view)?;
                    } else {
                        tp.broadcast(&Site::new("b.norm"), 0, view)?;
                    }
                }
            }
            Ok(())
        }
        "other size" => {
            let tp = comms.group(AxisSet::of(AxisId::Tp));
            let mut data = vec![1f32; 9000];
            for len in [8, 9000, if rank == 0 { 8 } else { 9000 }] {
                let view = ViewMut::from(&mut data[..len]);
                // Blocking calls of both ranks end with the mismatch.
                tp.all_reduce(&Site::new("a.down"), ReduceOp::Sum, view)?;
            }
            Ok(())
        }
        "other counts" => {
            let tp = comms.group(AxisSet::of(AxisId::Tp));
            let data = vec![1f32; 9002];
            let mut received = [0f32; 6];
            let to_first = if rank == 0 { 2 } else { 9000 };
            let send = [to_first, 2];
            let src = View::from(&data[..to_first + 2]);
            let recv = if rank == 0 { [2, 4] } else { [2, 2] };
            let dst = ViewMut::from(&mut received[..recv[0] + recv[1]]);
            tp.all_to_all(&Site::new("experts"), src, dst, &send, &recv)
        }
        "other message" => {
            let pp = comms.group(AxisSet::of(AxisId::Pp));
            let id = |micro_batch| MessageId {
                kind: "activation",
                from_stage: 0,
                to_stage: 1,
                micro_batch,
                part: 0,
            };
            let site = |micro_batch| Site::new("x").with_message(id(micro_batch));
            if rank == 0 {
                pp.start_send(&site(0), 1, Arc::new(buffer(4))).wait()?;
                return sum("end", 1);
            }
            pp.start_recv(&site(1), 0, buffer(4)).wait()?;
            sum("end", 1)
        }
        "killed" => loop {
            sum("blocks.2.mlp.down", 1000)?;
            if rank == 1 {
                // SAFETY: it ends this process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            comms.group(AxisSet::of(AxisId::Tp)).all_reduce(
                &Site::new("blocks.3.mlp.down"),
                ReduceOp::Sum,
                ViewMut::from(&mut [1f32; 1000][..]),
            )?;
        },
        "late" => {
            if rank == 1 {
                std::thread::sleep(Duration::from_secs(2));
                return Ok(());
            }
            sum("late", 3)
        }
        "other world" => Ok(()),
        other => panic!("unknown scenario `{other}`"),
    }
}

fn buffer(len: usize) -> Buffer {
    CachingAllocator::new().copy_of(&vec![1f32; len], Category::Communication)
}
