//! The rendezvous of the test's library over TCP: each request uses a connection of its own.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use meshwright::backend::{DType, ReduceOp};
use meshwright::comm::nccl::{Comm, Transfer};

use crate::nccl_stub::hub::{Hub, Offer, RendezvousTable, Taken};

/// First byte of a request.
const BEGIN: u64 = 0;
const SPLIT: u64 = 1;
const TRANSFER: u64 = 2;
const SEND: u64 = 3;
const RECV: u64 = 4;
const HAS_MESSAGE: u64 = 5;

/// Encodes an absent value.
const NONE: u64 = u64::MAX;

/// Serves requests about `hub` until the process ends; returns the address.
pub fn serve(hub: Arc<Hub>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let hub = Arc::clone(&hub);
            // A killed process does not read the response.
            std::thread::spawn(move || drop(answer(&hub, stream)));
        }
    });
    address
}

fn answer(hub: &Arc<Hub>, mut stream: TcpStream) -> io::Result<()> {
    let (words, bytes) = read(&mut stream)?;
    let [kind, comm, rest @ ..] = words.as_slice() else { panic!("half a question") };
    let (kind, comm) = (*kind, Comm(*comm));
    let number = |idx: usize| rest[idx] as usize;
    let taken = match kind {
        BEGIN => Some(Taken::Comm(Some(hub.begin(rest[0], number(1), number(2))))),
        SPLIT => {
            let color = (rest[0] != NONE).then(|| number(0));
            hub.meet(comm, Offer::Split(color, number(1)))
        }
        TRANSFER => hub.meet(comm, Offer::Transfer(dtype(rest[0]), transfer(&rest[1..]), bytes)),
        SEND => {
            hub.send(comm, number(0), bytes);
            Some(Taken::Bytes(Vec::new()))
        }
        RECV => hub.recv(comm, number(0)).map(Taken::Bytes),
        HAS_MESSAGE => Some(Taken::Bytes(vec![u8::from(hub.has_message(comm, number(0)))])),
        kind => panic!("a question of kind {kind}"),
    };
    match taken {
        None => write(&mut stream, &[0], &[]),
        Some(Taken::Comm(comm)) => write(&mut stream, &[1, comm.map_or(NONE, |comm| comm.0)], &[]),
        Some(Taken::Bytes(bytes)) => write(&mut stream, &[2], &bytes),
    }
}

/// A process's connection to the rendezvous.
#[derive(Debug)]
pub struct Wire {
    pub address: SocketAddr,
}

impl Wire {
    /// Sends a request; `None` if the library has failed, or the serving process has exited.
    fn ask(&self, words: &[u64], bytes: &[u8]) -> Option<Taken> {
        let answer = || -> io::Result<(Vec<u64>, Vec<u8>)> {
            let mut stream = TcpStream::connect(self.address)?;
            stream.set_nodelay(true)?;
            write(&mut stream, words, bytes)?;
            let answer = read(&mut stream)?;
            stream.shutdown(Shutdown::Both)?;
            Ok(answer)
        };
        match answer() {
            Ok((words, bytes)) => match words[..] {
                [1, comm] => Some(Taken::Comm((comm != NONE).then_some(Comm(comm)))),
                [2] => Some(Taken::Bytes(bytes)),
                _ => None,
            },
            Err(_) => None,
        }
    }
}

impl RendezvousTable for Wire {
    fn begin(&self, id: u64, ranks: usize, rank: usize) -> Comm {
        match self.ask(&[BEGIN, 0, id, ranks as u64, rank as u64], &[]) {
            Some(Taken::Comm(Some(comm))) => comm,
            other => panic!("{other:?} is no communicator"),
        }
    }

    fn meet(&self, comm: Comm, offer: Offer) -> Option<Taken> {
        match offer {
            Offer::Split(color, key) => {
                let color = color.map_or(NONE, |color| color as u64);
                self.ask(&[SPLIT, comm.0, color, key as u64], &[])
            }
            Offer::Transfer(dtype, transfer, bytes) => {
                let mut words = vec![TRANSFER, comm.0, dtype as u64];
                words.extend(words_of(&transfer));
                self.ask(&words, &bytes)
            }
        }
    }

    fn send(&self, comm: Comm, to: usize, bytes: Vec<u8>) {
        self.ask(&[SEND, comm.0, to as u64], &bytes);
    }

    fn recv(&self, comm: Comm, from: usize) -> Option<Vec<u8>> {
        match self.ask(&[RECV, comm.0, from as u64], &[])? {
            Taken::Bytes(bytes) => Some(bytes),
            Taken::Comm(_) => panic!("a message is a communicator"),
        }
    }

    fn has_message(&self, comm: Comm, from: usize) -> bool {
        match self.ask(&[HAS_MESSAGE, comm.0, from as u64], &[]) {
            Some(Taken::Bytes(bytes)) => bytes == [1],
            // A library that fails does not wait.
            _ => true,
        }
    }
}

/// Parameters of a transfer that must match: kind, count, operation and root.
fn words_of(transfer: &Transfer) -> [u64; 4] {
    let maximum = |op: ReduceOp| u64::from(op == ReduceOp::Max);
    match *transfer {
        Transfer::AllReduce { count, op, .. } => [0, count as u64, maximum(op), 0],
        Transfer::Reduce { count, op, root, .. } => [1, count as u64, maximum(op), root as u64],
        Transfer::ReduceScatter { count, .. } => [2, count as u64, 0, 0],
        Transfer::AllGather { count, .. } => [3, count as u64, 0, 0],
        Transfer::Broadcast { count, root, .. } => [4, count as u64, 0, root as u64],
        Transfer::Send { .. } | Transfer::Recv { .. } => panic!("a message in a rendezvous"),
    }
}

fn transfer(words: &[u64]) -> Transfer {
    let (count, root) = (words[1] as usize, words[3] as usize);
    let op = if words[2] == 1 { ReduceOp::Max } else { ReduceOp::Sum };
    let (data, src, dst) = (0, 0, 0);
    match words[0] {
        0 => Transfer::AllReduce { data, count, op },
        1 => Transfer::Reduce { src, dst, count, op, root },
        2 => Transfer::ReduceScatter { src, dst, count },
        3 => Transfer::AllGather { src, dst, count },
        4 => Transfer::Broadcast { src, dst, count, root },
        kind => panic!("a transfer of kind {kind}"),
    }
}

fn dtype(word: u64) -> DType {
    let known = [DType::F32, DType::Bf16, DType::U32, DType::F64];
    known.into_iter().find(|dtype| *dtype as u64 == word).expect("a dtype")
}

fn write(stream: &mut TcpStream, words: &[u64], bytes: &[u8]) -> io::Result<()> {
    let mut message = Vec::new();
    for number in [words.len() as u64, bytes.len() as u64].iter().chain(words) {
        message.extend(number.to_le_bytes());
    }
    message.extend(bytes);
    stream.write_all(&message)
}

fn read(stream: &mut TcpStream) -> io::Result<(Vec<u64>, Vec<u8>)> {
    let mut number = || {
        let mut bytes = [0; 8];
        stream.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
    };
    let (n_words, n_bytes) = (number()?, number()?);
    let words = (0..n_words).map(|_| number()).collect::<io::Result<_>>()?;
    let mut bytes = vec![0; n_bytes as usize];
    stream.read_exact(&mut bytes)?;
    Ok((words, bytes))
}
