//! The address on which rank 0 listens.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

use super::rank_assignment::RankAssignment;

/// Returns the assignment of rank 0 with an address at which it reaches itself: if its host is named, a loopback
/// address, as a cluster may publish the name later.
pub fn assignment_on_host(assignment: &RankAssignment) -> RankAssignment {
    let (host, port) = assignment.master.rsplit_once(':').unwrap_or_default();
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let first = |name: &str| name.trim().split('.').next().unwrap_or_default().to_owned();
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let mut found = assignment.clone();
    if !is_address && !own.trim().is_empty() && first(host) == first(&own) {
        found.master = format!("127.0.0.1:{port}");
    }
    found
}

/// The listener of rank 0.
#[derive(Debug)]
pub struct Listening {
    pub listener: TcpListener,
    /// False if it listens on every address, because the host does not have the given one.
    pub is_at_address: bool,
}

/// Listens on the address of `master`, if this host has it, else on every one.
///
/// A host name that stands for a loopback address on this host has another one on the others.
pub fn listen(master: &str) -> io::Result<Listening> {
    let (host, port) = master.rsplit_once(':').unwrap_or((master, ""));
    let port: u16 = port.parse().map_err(|_| io::Error::other("it has no port"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_meant_local = host == "localhost" || host.parse::<IpAddr>().is_ok();
    // A name that is not known yet is looked for again when rank 0 connects.
    let addresses: Vec<SocketAddr> =
        master.to_socket_addrs().map(|found| found.collect()).unwrap_or_default();
    let usable = |address: &&SocketAddr| is_meant_local || !address.ip().is_loopback();
    for address in addresses.iter().filter(usable) {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(Listening { listener, is_at_address: true }),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(error) => return Err(error),
        }
    }
    let any_v4 = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    let listener = if addresses.iter().any(SocketAddr::is_ipv6) {
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|_| any_v4())
    } else {
        any_v4()
    };
    Ok(Listening { listener: listener?, is_at_address: false })
}
