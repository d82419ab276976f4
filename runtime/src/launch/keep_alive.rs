//! Connections that notice when the other side is gone without a word.

use std::net::TcpStream;

/// Seconds of silence after which the system asks the other side whether it is there.
#[cfg(target_os = "linux")]
const SILENCE: libc::c_int = 10;
/// Questions without an answer, [`SILENCE`] seconds apart, after which the connection is broken.
#[cfg(target_os = "linux")]
const QUESTIONS: libc::c_int = 4;

/// Lets reads of `stream` fail within a minute of the end of the other host, or of the way to it. Elsewhere than on Linux
/// the system takes its own time.
#[cfg(target_os = "linux")]
pub fn keep_alive(stream: &TcpStream) {
    use std::os::fd::AsRawFd;
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, SILENCE),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, SILENCE),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, QUESTIONS),
    ];
    for (level, name, value) in options {
        let value: libc::c_int = value;
        let size = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the socket is open, and the value is as long as is said. Where the system declines, it stays as it was.
        unsafe {
            libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), size)
        };
    }
}

#[cfg(not(target_os = "linux"))]
pub fn keep_alive(_: &TcpStream) {}
