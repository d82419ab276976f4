//! TCP keepalive, the heartbeat of a connection, which detects the loss of the other host.

use std::net::TcpStream;

/// Idle time in seconds before the first keepalive probe, and between probes.
#[cfg(target_os = "linux")]
const PROBE_PERIOD: libc::c_int = 10;
/// Unanswered probes after which the connection is broken.
#[cfg(target_os = "linux")]
const MAX_PROBES: libc::c_int = 4;

/// Enables keepalive: reads of `stream` fail within a minute after the other host, or the network to it, is gone. On
/// other systems than Linux the defaults of the system apply.
#[cfg(target_os = "linux")]
pub fn enable_keep_alive(stream: &TcpStream) {
    use std::os::fd::AsRawFd;
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, PROBE_PERIOD),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, PROBE_PERIOD),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, MAX_PROBES),
    ];
    for (level, name, value) in options {
        let value: libc::c_int = value;
        let size = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the socket is open, and the value has the given size. If the system refuses, the default stays.
        unsafe {
            libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), size)
        };
    }
}

#[cfg(not(target_os = "linux"))]
pub fn enable_keep_alive(_: &TcpStream) {}
