//! Sessions with a terminal, whose master the runtime sends to its caller.

use std::{
    fs::File,
    io::{IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::net::UnixListener},
    process::Stdio,
};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use waybill_api::stock::Mode;

use crate::lab::{Lab, finish, signed, wait_for, with_each};

#[test]
fn a_session_with_a_terminal_has_one() {
    with_each(Mode::Enforce, |lab| {
        let words = ["sh", "-c", "busybox tty; read line; echo got $line"];
        let mut claims = lab.claims(None, &words);
        claims.tty = true;
        let file = lab.process(&signed(&claims, None, &words), true, &[]);
        let mut terminal = begin(lab, file.to_str().unwrap());
        terminal.write_all(b"hello\n").unwrap();
        let mut seen = Vec::new();
        let mut part = [0; 256];
        wait_for("the answer of the terminal", || {
            // The other side's end is an error of this one.
            let count = terminal.read(&mut part).unwrap_or(0);
            seen.extend_from_slice(&part[..count]);
            String::from_utf8_lossy(&seen).contains("got hello")
        });
        assert!(
            String::from_utf8_lossy(&seen).contains("/dev/"),
            "{}",
            String::from_utf8_lossy(&seen)
        );
        assert!(lab.record(&claims.session).tty);
    });
}

/// Starts the session as containerd's shim does, and takes its terminal.
fn begin(lab: &Lab, process: &str) -> File {
    let socket = lab.path("console.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut command = lab.wrapped(&[
        "exec",
        "--process",
        process,
        "--console-socket",
        socket.to_str().unwrap(),
        "--detach",
    ]);
    let child = command
        .arg(&lab.id)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut stream = None;
    wait_for("the runtime's connection", || {
        stream = listener.accept().ok();
        stream.is_some()
    });
    let (stream, _) = stream.unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4096];
    recvmsg(&stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
        .unwrap();
    let mut received: Option<OwnedFd> = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            received = descriptors.next();
        }
    }
    assert!(finish(child).success(), "{}", lab.logged());
    File::from(received.expect("the runtime sends the terminal"))
}
