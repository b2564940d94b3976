//! Sessions with a terminal, whose master the runtime sends to its caller.

use std::{
    fs::{self, File},
    io::{IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::Path,
    process::{Command, Stdio},
};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::{Value, json};
use waybill_api::stock::Mode;

use crate::lab::{Lab, UID, finish, owned, signed, wait_for, with_each};

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

/// CRI-O gives a probe a terminal when its container has one; containerd never does.
#[test]
fn a_probe_has_a_terminal_where_cri_o_gives_it_one() {
    with_each(Mode::Enforce, |lab| {
        let words = owned(&["sh", "-c", "exit 0"]);
        lab.facts("enforce", &json!({"probes": [words]}));
        for (engine, of_container) in [("containerd", true), ("crio", false)] {
            play(lab, engine, of_container);
            let file = lab.process(&words, true, &[]);
            let output = exec(lab, file.to_str().unwrap(), Path::new("/none")).output().unwrap();
            lab.check_refused(&output, "waybill: exec refused: no session");
        }
        let refused = lab.strangers();
        play(lab, "crio", true);
        let file = lab.process(&words, true, &[]);
        drop(begin(lab, file.to_str().unwrap()));
        assert_eq!(lab.strangers().len(), refused.len());
        // Somebody who types has another input than nothing.
        let file = lab.process(&words, true, &[]);
        let mut typing = exec(lab, file.to_str().unwrap(), Path::new("/none"));
        let output = typing.stdin(Stdio::piped()).output().unwrap();
        lab.check_refused(&output, "waybill: exec refused: no session");
    });
}

/// Makes the lab a node of that engine, and says whether its container has a terminal.
fn play(lab: &Lab, engine: &str, terminal: bool) {
    let change = |part: &str, change: &dyn Fn(&mut Value)| {
        let file = lab.path(part);
        let mut document = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        change(&mut document);
        fs::write(file, document.to_string()).unwrap();
    };
    change("opt/oci.json", &|config| config["engine"] = engine.into());
    change("bundle/config.json", &|spec| {
        spec["process"]["terminal"] = terminal.into();
        let notes = [
            ("io.kubernetes.cri-o.ContainerType", "container"),
            ("io.kubernetes.container.name", "main"),
            ("io.kubernetes.pod.uid", UID),
            ("io.kubernetes.pod.name", "web"),
            ("io.kubernetes.pod.namespace", "ns"),
        ];
        notes.iter().for_each(|(key, value)| spec["annotations"][key] = (*value).into());
    });
}

/// An exec as containerd's shim and conmon ask for it.
fn exec(lab: &Lab, process: &str, socket: &Path) -> Command {
    let mut command = lab.wrapped(&["exec", "--process", process, "--console-socket"]);
    command.arg(socket).args(["--detach", &lab.id]).stdin(Stdio::null());
    command
}

/// Starts the session as containerd's shim does, and takes its terminal.
fn begin(lab: &Lab, process: &str) -> File {
    let socket = lab.path("console.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut command = exec(lab, process, &socket);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
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
