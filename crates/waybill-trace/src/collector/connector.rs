//! Events of the proc connector (netlink): the kernel names every process that starts a program or ends, and what it was has to
//! be looked up in `/proc`, where short ones are gone already. The fall-back where eBPF is not to be had.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind,
        netlink::{self, SocketAddrNetlink},
        recv, send, socket_with, sockopt,
    },
};

use super::{
    clock::{after_boot, monotonic},
    lookup::{LookedUp, look_up},
};
use crate::{
    kernel::{ExitEvent, KernelEvent},
    process::CgroupIds,
};

/// Numbers of `linux/connector.h` and `linux/cn_proc.h`.
const PROCESS_GROUP: u32 = 1;
const LISTEN: u32 = 1;
const EXEC: u32 = 2;
const EXIT: u32 = 0x8000_0000;

/// Before the event stand the headers of netlink and of the connector.
const HEADERS: usize = 16 + 20;
const DONE: u16 = 3;

/// What the kernel may keep for us.
const BUFFER: usize = 4 << 20;

/// A socket on which the kernel names processes.
#[derive(Debug)]
pub(crate) struct Connector {
    socket: OwnedFd,
    cgroups: CgroupIds,
    /// Processes that were told of.
    tracked: HashMap<u32, Tracked>,
    lost: u64,
}

/// A process that was looked at.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    /// When it was made.
    began: u64,
    /// When the last look at it began, in nanoseconds of the clock that events have.
    looked: u64,
}

impl Tracked {
    /// Whether the last look found the program that was started `at` this time, or a later one: it came too late for the one that it was
    /// made for.
    fn has_seen(&self, at: u64) -> bool {
        at <= self.looked
    }
}

impl Connector {
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::CONNECTOR);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
        // Root may have more than others.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER);
        bind(&socket, &SocketAddrNetlink::new(0, PROCESS_GROUP))?;
        send(&socket, &listen_message(), SendFlags::empty())?;
        Ok(Self { socket, cgroups: CgroupIds::find()?, tracked: HashMap::new(), lost: 0 })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// How many processes were gone before they could be looked at, anywhere on the machine, and how often the kernel could
    /// not tell.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) fn drain(&mut self, mut take: impl FnMut(KernelEvent)) {
        let mut buffer = [0; 8192];
        // Paths are used again by other cgroups, which have other IDs.
        self.cgroups.forget();
        loop {
            match recv(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((length, _)) => {
                    if let Some(event) = buffer.get(..length).and_then(ProcessEvent::parse) {
                        self.look(event).into_iter().for_each(&mut take);
                    }
                }
                Err(Errno::NOBUFS) => self.lost += 1,
                Err(_) => return,
            }
        }
    }

    fn look(&mut self, event: ProcessEvent) -> Option<KernelEvent> {
        match event {
            ProcessEvent::Exec { pid, at } => {
                if self.tracked.get(&pid).is_some_and(|it| it.has_seen(at)) {
                    self.lost += 1;
                    return None;
                }
                let looked = monotonic();
                match look_up(pid, after_boot(), &mut self.cgroups) {
                    LookedUp::Found(event) => {
                        self.tracked.insert(pid, Tracked { began: event.began, looked });
                        Some(KernelEvent::Exec(event))
                    }
                    LookedUp::Elsewhere => None,
                    LookedUp::Gone => {
                        self.lost += 1;
                        None
                    }
                }
            }
            ProcessEvent::Exit(pid, status) => {
                let began = self.tracked.remove(&pid)?.began;
                Some(KernelEvent::Exit(ExitEvent { time: after_boot(), pid, began, status }))
            }
        }
    }
}

/// What the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessEvent {
    Exec {
        pid: u32,
        /// In nanoseconds of the monotonic clock.
        at: u64,
    },
    /// As `wait` tells it.
    Exit(u32, u32),
}

impl ProcessEvent {
    fn parse(message: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = message.get(HEADERS + at..HEADERS + at + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let at = message.get(HEADERS + 8..HEADERS + 16)?.try_into().ok().map(u64::from_ne_bytes)?;
        let (thread, process) = (word(16)?, word(20)?);
        match word(0)? {
            EXEC => Some(Self::Exec { pid: process, at }),
            // Threads end too.
            EXIT if thread == process => Some(Self::Exit(process, word(24)?)),
            _ => None,
        }
    }
}

/// Asks the kernel to tell.
fn listen_message() -> Vec<u8> {
    let length = u32::try_from(HEADERS + 4).unwrap_or_default();
    let mut message = Vec::new();
    message.extend(length.to_ne_bytes());
    message.extend(DONE.to_ne_bytes());
    message.extend([0; 10]);
    // The connector's: group, value, number, answer, length, flags.
    message.extend([PROCESS_GROUP, 1, 0, 0].iter().flat_map(|word: &u32| word.to_ne_bytes()));
    message.extend(4_u16.to_ne_bytes());
    message.extend(0_u16.to_ne_bytes());
    message.extend(LISTEN.to_ne_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(words: &[u32]) -> Vec<u8> {
        let mut message = vec![0; HEADERS];
        message.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        message
    }

    #[test]
    fn starts_and_ends_of_processes_are_read_and_those_of_threads_are_not() {
        let parse = |words: &[u32]| ProcessEvent::parse(&message(words));
        let started = Some(ProcessEvent::Exec { pid: 7, at: 1 + (2 << 32) });
        assert_eq!(parse(&[EXEC, 0, 1, 2, 7, 7]), started);
        assert_eq!(parse(&[EXIT, 0, 0, 0, 7, 7, 0x0300]), Some(ProcessEvent::Exit(7, 0x0300)));
        assert_eq!(parse(&[EXIT, 0, 0, 0, 8, 7, 0]), None);
        assert_eq!(parse(&[1, 0, 0, 0, 8, 7, 0]), None);
        assert_eq!(parse(&[EXIT, 0, 0, 0, 7, 7]), None, "cut");
        assert_eq!(ProcessEvent::parse(b""), None);
    }

    /// Hole: a shell that became another program at once was recorded as that program twice.
    #[test]
    fn a_program_that_was_seen_early_is_not_seen_again() {
        let tracked = Tracked { began: 1, looked: 10 };
        assert!(tracked.has_seen(9));
        assert!(tracked.has_seen(10));
        assert!(!tracked.has_seen(11));
    }

    #[test]
    fn the_request_is_as_long_as_it_says() {
        assert_eq!(listen_message().len(), HEADERS + 4);
    }
}
