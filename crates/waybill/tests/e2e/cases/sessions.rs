//! What people do with a pod: look at it, read its log, run commands in it.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    thread,
    time::Duration,
};

use waybill_testkit::{
    kubectl::Running,
    port,
    stack::{IMAGE, Stack},
};

use super::{ended, gone, pod, ready, shell, start};

pub(super) fn apply_get_describe(stack: &Stack) {
    let manifest = shell("plain", "echo hello; sleep 3600");
    let kubectl = stack.kubectl();
    kubectl.with_input(&["apply", "-f", "-"], &manifest).prints("pod/plain created");
    ready(stack, "plain");
    kubectl.with_input(&["apply", "-f", "-"], &manifest).prints("pod/plain unchanged");
    kubectl.line("get pod plain").shows(&["NAME READY STATUS", "plain 1/1 Running 0"]);
    kubectl.line("get nodes").shows(&["Ready"]);
    kubectl.line("describe pod plain").shows(&[
        "Status: Running",
        "Ready: True",
        "Normal Scheduled",
        "Normal Pulled",
        "Normal Created",
        "Normal Started",
        "PodScheduled True",
    ]);
    let qos = "get pod plain -o jsonpath={.status.qosClass}/{.status.containerStatuses[0].started}";
    kubectl.line(qos).prints("BestEffort/true");
    gone(stack, "plain");
    kubectl.line("get pod plain").fails_with(1, "not found");
}

pub(super) fn logs(stack: &Stack) {
    let script = "for i in 1 2 3; do echo line $i; done; echo oops; until [ -e /go ]; do sleep 0.1; done; \
                  echo last";
    start(stack, "logs", &shell("logs", script));
    let kubectl = stack.kubectl();
    kubectl.eventually_shows("logs logs", "oops");
    kubectl.line("logs logs --tail=2").prints("line 3\noops");
    kubectl.line("logs logs --limit-bytes=6").prints("line 1");
    kubectl.line("logs logs --since=1h").shows(&["line 1", "line 3"]);
    let stamped = kubectl.line("logs logs --timestamps --tail=1");
    assert!(stamped.stdout.starts_with("20") && stamped.stdout.contains("Z oops"), "{stamped:?}");
    let follower = kubectl.follow(&["logs", "-f", "logs"]);
    follower.wait_for("line 1");
    kubectl.line("exec logs -- touch /go").succeeds();
    follower.wait_for("last");
    assert_eq!(follower.ends(), Some(0));
    kubectl.line("logs logs -c other").fails_with(1, "container other is not valid for pod logs");
}

pub(super) fn exec(stack: &Stack) {
    start(stack, "exec", &shell("exec", "sleep 3600"));
    let kubectl = stack.kubectl();
    let run = |script: &str| kubectl.run(&["exec", "exec", "--", "sh", "-c", script]);
    run("echo out; echo err >&2").prints("out");
    run("exit 7").fails_with(7, "exit code 7");
    kubectl.with_input(&["exec", "-i", "exec", "--", "wc", "-c"], "12345").prints("5");
    // More than all buffers between here and there.
    let many = "x".repeat(3 << 20);
    kubectl.with_input(&["exec", "-i", "exec", "--", "wc", "-c"], &many).prints("3145728");
    let printed = run("dd if=/dev/zero bs=1024 count=3072 2>/dev/null | tr '\\000' y");
    assert_eq!(printed.succeeds().stdout.len(), 3 << 20);
    kubectl.line("exec exec -- /no/such").fails_with(1, "");
    kubectl.line("exec nobody -- true").fails_with(1, "not found");
}

/// Both ends have a terminal, and the size of one follows the other.
pub(super) fn exec_on_a_terminal(stack: &Stack) {
    start(stack, "tty", &shell("tty", "sleep 3600"));
    let wait = "until [ \"$(stty size)\" = \"$size\" ]; do sleep 0.05; done; stty size";
    let inside = format!(
        "size=\"33 101\"; {wait}; size=\"44 155\"; {wait}; \
                  test -t 0 && test -t 1 && echo terminal; exit 3"
    );
    let line = format!(
        "stty rows 33 cols 101; (until [ -e go ]; do sleep 0.05; done; stty rows 44 cols 155 </dev/tty) & \
         $KUBECTL exec -it tty -- sh -c '{inside}'"
    );
    let mut command = stack.kubectl().command(Path::new("/usr/bin/script"));
    let session = Running::of(command.args(["-qec", &line, "/dev/null"]).spawn().unwrap());
    session.wait_for("33 101");
    fs::write(stack.dir().join("go"), "").unwrap();
    session.wait_for("44 155");
    session.wait_for("terminal");
    assert_eq!(session.ends(), Some(3));
}

pub(super) fn attach(stack: &Stack) {
    let spec = format!(
        "  restartPolicy: Never
  containers:
  - name: main
    image: {IMAGE}
    stdin: true
    stdinOnce: true
    command: [sh, -c, 'while read line; do echo \"got $line\"; done; echo over']
"
    );
    start(stack, "attach", &pod("attach", &spec));
    let mut attached = stack.kubectl().follow(&["attach", "-i", "attach"]);
    attached.input().write_all(b"one\n").unwrap();
    attached.wait_for("got one");
    attached.input().write_all(b"two\n").unwrap();
    attached.wait_for("got two");
    assert_eq!(attached.ends(), Some(0));
    ended(stack, "attach", "Succeeded");
    stack.kubectl().line("logs attach").shows(&["got one", "got two", "over"]);
}

pub(super) fn cp(stack: &Stack) {
    start(stack, "cp", &shell("cp", "sleep 3600"));
    let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let (there, back) = (stack.dir().join("cp-there"), stack.dir().join("cp-back"));
    fs::write(&there, &content).unwrap();
    let kubectl = stack.kubectl();
    kubectl.run(&["cp", there.to_str().unwrap(), "cp:/tmp/file"]).succeeds();
    kubectl.line("exec cp -- wc -c /tmp/file").prints("800000 /tmp/file");
    kubectl.run(&["cp", "cp:/tmp/file", back.to_str().unwrap()]).succeeds();
    assert!(fs::read(&back).unwrap() == content);
}

pub(super) fn port_forward(stack: &Stack) {
    let [inside] = port::lasting();
    let script = format!(
        "mkdir /www; echo served > /www/index.html; exec httpd -f -p 127.0.0.1:{inside} -h /www"
    );
    start(stack, "forward", &shell("forward", &script));
    let target = format!(":{inside}");
    let forwarding = stack.kubectl().follow(&["port-forward", "pod/forward", &target]);
    let line = forwarding.wait_for("Forwarding from 127.0.0.1:");
    let port = line.split("127.0.0.1:").nth(1).and_then(|it| it.split(' ').next()).unwrap();
    let port: u16 = port.parse().unwrap();
    for _ in 0..3 {
        assert!(fetch(port).contains("served"));
    }
}

/// The server may not listen yet when it is first asked.
fn fetch(port: u16) -> String {
    for _ in 0..50 {
        let mut answer = String::new();
        let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
        connection.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").unwrap();
        if connection.read_to_string(&mut answer).is_ok() && !answer.is_empty() {
            return answer;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("nobody answers through port {port}");
}
