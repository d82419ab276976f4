//! Starts this program once per rank with torchrun's environment variables, and waits for all processes.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use meshwright_gpu_sim::on_gpu;

use super::{environment, wire};
use crate::nccl_stub::hub::Hub;

/// Time limit of a rank that is not killed. Ranks that share a GPU take turns, and compile their kernels first.
const PATIENCE: Duration = Duration::from_secs(240);

/// The processes of one job.
pub struct Job {
    ranks: Vec<Child>,
    started: Instant,
}

/// Exit status and output of a process.
#[derive(Debug)]
pub struct End {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stderr: String,
    /// Time since the start, or since the last [`Job::kill`].
    pub after: Duration,
}

/// Returns a port that is free now, as is the next one.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Job {
    /// Starts `ranks` processes with `role` and `words`. `change` may modify the environment of a rank.
    pub fn start(
        ranks: usize,
        role: &str,
        words: &str,
        change: impl Fn(usize, &mut Command),
    ) -> Job {
        let (port, hub) = (free_port(), wire::serve(Arc::<Hub>::default()));
        let start = |rank: usize| {
            let program = std::env::current_exe().expect("this program has a path");
            let mut command = Command::new(program);
            command.args(["--exact", "--ignored", "--nocapture", environment::TEST]);
            command
                .env(environment::ROLE, role)
                .env(environment::WORDS, words)
                .env(environment::HUB, hub.to_string());
            let variables = [
                ("RANK", rank),
                ("LOCAL_RANK", rank),
                ("WORLD_SIZE", ranks),
                ("LOCAL_WORLD_SIZE", ranks),
                ("MASTER_PORT", usize::from(port)),
            ];
            for (name, value) in variables {
                command.env(name, value.to_string());
            }
            command
                .env("MASTER_ADDR", "127.0.0.1")
                .env("TORCHELASTIC_RUN_ID", format!("job {port}"));
            if on_gpu() {
                share_one_gpu(rank, &mut command);
            }
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            change(rank, &mut command);
            command.spawn().expect("this program can be started")
        };
        Job { ranks: (0..ranks).map(start).collect(), started: Instant::now() }
    }

    /// Kills a process as the system does when out of memory.
    pub fn kill(&mut self, rank: usize) {
        self.ranks[rank].kill().expect("it still runs");
        self.started = Instant::now();
    }

    /// Returns true if a process has exited.
    pub fn has_lost_one(&mut self) -> bool {
        self.ranks.iter_mut().any(|rank| rank.try_wait().expect("a child").is_some())
    }

    /// Waits for all processes.
    pub fn ends(self) -> Vec<End> {
        let Job { ranks, started } = self;
        let wait = |mut child: Child| {
            std::thread::spawn(move || {
                while child.try_wait().expect("a child").is_none() {
                    if started.elapsed() > PATIENCE {
                        child.kill().expect("it still runs");
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                let after = started.elapsed();
                let Output { status, stderr, .. } = child.wait_with_output().expect("a child");
                let stderr = String::from_utf8_lossy(&stderr).into_owned();
                End { code: status.code(), signal: status.signal(), stderr, after }
            })
        };
        let threads: Vec<_> = ranks.into_iter().map(wait).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    /// Waits for all processes, which must succeed.
    #[track_caller]
    pub fn succeed(self) -> Vec<End> {
        let ends = self.ends();
        for (rank, end) in ends.iter().enumerate() {
            assert_eq!(end.code, Some(0), "rank {rank} after {:?}: {}", end.after, end.stderr);
        }
        ends
    }
}

/// NCCL refuses two ranks on one GPU unless it takes their processes for processes of two hosts.
fn share_one_gpu(rank: usize, command: &mut Command) {
    let variables = [
        ("NCCL_HOSTID", format!("rank {rank}").as_str()),
        ("NCCL_SOCKET_IFNAME", "lo"),
        ("NCCL_IB_DISABLE", "1"),
        ("NCCL_MULTI_RANK_GPU_ENABLE", "1"),
        ("MESHWRIGHT_SHARE_GPUS", "1"),
    ]
    .map(|(name, value)| (name, value.to_owned()));
    command.envs(variables);
}
