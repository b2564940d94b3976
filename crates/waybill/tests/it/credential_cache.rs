//! The agent of `waybill credential cache`: whom it serves, what it keeps to itself, and what happens when somebody dies.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{
        fs::{FileExt, MetadataExt, PermissionsExt, chown},
        net::{UnixListener, UnixStream},
        process::CommandExt,
    },
    path::Path,
    process::{Child, Command, Output},
    thread,
    time::{Duration, Instant},
};

use rustix::{process::Uid, thread::set_thread_res_uid};
use waybill_testkit::{
    credential_cache::{CachedPlugin, is_written, question},
    kubectl::PATIENCE,
    skip::skip,
};

const BINARY: &str = env!("CARGO_BIN_EXE_waybill");

const NOBODY: u32 = 65534;

/// What a client says to see what an agent holds.
const LIST: &[u8] = b"\0\0\0\x0f\0\0\0\0{\"type\":\"list\"}";

fn plugin(script: &str) -> CachedPlugin {
    let plugin = CachedPlugin::new(BINARY, script);
    plugin.answer_with("CANARY-token", None);
    plugin
}

#[track_caller]
fn gives_the_token(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("\"token\":\"CANARY-token\""),
        "{output:?}"
    );
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        skip("root", "run the tests as root");
    }
    root
}

/// Does something as a user who owns nothing.
fn as_nobody<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let nobody = Uid::from_raw(NOBODY);
    thread::scope(|scope| {
        let acting = scope.spawn(|| {
            // Of this thread alone, which ends with it.
            set_thread_res_uid(nobody, nobody, nobody).unwrap();
            act()
        });
        acting.join().unwrap()
    })
}

/// What an agent answers; an error means that it cannot be reached.
fn ask(socket: &Path, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    let mut answer = Vec::new();
    // It may have closed the connection already, which is an answer too.
    let _ = stream.write_all(question);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read_to_end(&mut answer);
    Ok(answer)
}

/// Nothing comes out of the agent of somebody else, even where its socket is open to all.
#[test]
fn a_second_user_gets_nothing_cred_26() {
    if !is_root() {
        return;
    }
    let plugin = plugin("");
    gives_the_token(&plugin.cache().output().unwrap());
    let socket = plugin.socket_dir().join("credential-1.sock");
    let refused = as_nobody(|| ask(&socket, LIST));
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);

    let open = [(plugin.path("run"), 0o755), (plugin.socket_dir(), 0o755), (socket.clone(), 0o666)];
    open.iter().for_each(|(path, mode)| chmod(path, *mode));
    let answers = [ask(&socket, LIST).unwrap(), as_nobody(|| ask(&socket, LIST)).unwrap()];
    let closed = [(plugin.path("run"), 0o700), (plugin.socket_dir(), 0o700)];
    closed.iter().for_each(|(path, mode)| chmod(path, *mode));
    let [own, others] = answers.map(|answer| String::from_utf8_lossy(&answer).into_owned());
    assert!(own.contains("\"held\":[{"), "{own}");
    assert_eq!(others, "");
}

/// Somebody who waits where our agent should be hears nothing and is not believed.
#[test]
fn a_planted_socket_gets_nothing_and_gives_nothing_cred_26() {
    if !is_root() {
        return;
    }
    let plugin = plugin("");
    fs::create_dir(plugin.socket_dir()).unwrap();
    chmod(&plugin.path("run"), 0o755);
    chmod(&plugin.socket_dir(), 0o777);
    let socket = plugin.socket_dir().join("credential-1.sock");
    let planted = as_nobody(|| UnixListener::bind(&socket)).unwrap();
    chmod(&plugin.socket_dir(), 0o700);
    let heard = thread::spawn(move || {
        let mut heard = Vec::new();
        let _ = planted.accept().unwrap().0.read_to_end(&mut heard);
        heard
    });
    let said = gives_the_token(&plugin.cache().output().unwrap());
    assert!(said.contains("the other end of the socket is another user's"), "{said}");
    assert_eq!(heard.join().unwrap(), b"");
    assert_eq!(plugin.runs(), 1);
}

/// Where no directory is safe, the plugin is run as if there were no cache.
#[test]
fn without_a_safe_directory_there_is_no_agent() {
    let plugin = plugin("");
    chmod(&plugin.path("run"), 0o777);
    chmod(&plugin.path("."), 0o777);
    let output = plugin.cache().output().unwrap();
    let said = gives_the_token(&output);
    // A machine that has /run/user for us is none where this can be tried.
    assert!(
        said.contains("no agent: others can write to")
            || said.contains("running the credential plugin")
    );
    chmod(&plugin.path("run"), 0o700);
    assert_eq!(plugin.agent(), None);
}

/// CRED-26: neither files nor arguments nor variables have it, other processes cannot look, and what is forgotten is wiped.
#[test]
fn a_token_is_in_the_memory_of_the_agent_alone_cred_26() {
    if !is_root() {
        return;
    }
    let plugin = plugin("");
    for path in [".", "run", "answer", "plugin"] {
        chown(plugin.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let run = |mut command: Command| {
        let output = command.uid(NOBODY).gid(NOBODY).env("RUST_LOG", "trace").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("CANARY"), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(plugin.cache()).contains("CANARY"));
    let listed = run(plugin.waybill(&["credential", "list"]));
    assert!(listed.contains("/plugin") && !listed.contains("CANARY"), "{listed}");
    let (_, rest) = listed.split_once("process ").unwrap();
    let proc = Path::new("/proc").join(rest.split_once(',').unwrap().0);

    // The kernel gives processes that nobody may look into to root.
    assert_eq!(fs::metadata(&proc).unwrap().uid(), NOBODY, "the directory itself is its user's");
    assert_eq!(fs::metadata(proc.join("mem")).unwrap().uid(), 0, "what is in it is not");
    let limits = fs::read_to_string(proc.join("limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    for file in ["cmdline", "environ"] {
        assert!(!String::from_utf8_lossy(&fs::read(proc.join(file)).unwrap()).contains("CANARY"));
    }
    let answer = plugin.path("answer");
    assert_eq!(is_written("CANARY", &plugin.path("."), std::slice::from_ref(&answer)), None);
    assert!(fs::read_to_string(&answer).unwrap().contains("CANARY"), "the search would find it");

    assert!(has_in_memory(&proc, b"CANARY-token"));
    assert_eq!(run(plugin.waybill(&["credential", "forget"])), "forgot 1 credential\n");
    assert!(!has_in_memory(&proc, b"CANARY-token"), "it is wiped");
    assert!(Command::new("kill").arg(proc.file_name().unwrap()).status().unwrap().success());
}

/// Looks at every page that a process can write to.
fn has_in_memory(proc: &Path, wanted: &[u8]) -> bool {
    let memory = fs::File::open(proc.join("mem")).unwrap();
    let maps = fs::read_to_string(proc.join("maps")).unwrap();
    maps.lines().filter(|line| line.contains(" rw-p ")).any(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        // Some areas cannot be read at all.
        memory.read_exact_at(&mut bytes, start).is_ok()
            && bytes.windows(wanted.len()).any(|part| part == wanted)
    })
}

/// kubectl waits for the end of the pipe, and not only of the process. The agent holds no descriptor that it inherited.
#[test]
fn the_agent_keeps_no_pipe_open() {
    let plugin = plugin("");
    let mut command =
        plugin.cache_by("exec 7>&1 8>&2; KUBERNETES_EXEC_INFO=\"$0\" \"$@\"; exit $?");
    gives_the_token(&command.output().unwrap());
    assert!(plugin.agent().is_some(), "it is still there");
}

/// CRED-33: the process that asked twice is found behind a script that wraps the command.
#[test]
fn a_process_that_asks_again_is_known_behind_a_script_cred_33() {
    let plugin = plugin("");
    for runs in 1..=2 {
        // This shell stands for a script that was run with the question, and we for kubectl.
        let mut script = plugin.cache_by("\"$@\"; exit $?");
        gives_the_token(&script.env("KUBERNETES_EXEC_INFO", question(false)).output().unwrap());
        assert_eq!(plugin.runs(), runs);
    }
    gives_the_token(&plugin.cache().output().unwrap());
    assert_eq!(plugin.runs(), 2, "others are not concerned");
}

/// Nonsense ends a connection, and nothing else.
#[test]
fn nonsense_does_not_disturb_the_agent() {
    let plugin = plugin("");
    gives_the_token(&plugin.cache().output().unwrap());
    let socket = plugin.socket_dir().join("credential-1.sock");
    for nonsense in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\0", b""]
    {
        assert_eq!(ask(&socket, nonsense).unwrap(), b"");
    }
    gives_the_token(&plugin.cache().output().unwrap());
    assert_eq!(plugin.runs(), 1);
}

/// A plugin that waits until the test lets it go, and two clients of which the second waits for the first.
struct Waiting {
    plugin: CachedPlugin,
    first: Child,
    second: Child,
    /// The process that runs the plugin.
    holder: String,
}

impl Waiting {
    fn new() -> Self {
        let plugin = plugin("until test -e go; do sleep 0.05; done");
        let first = plugin.cache().spawn().unwrap();
        eventually("the first runs the plugin", || plugin.runs() == 1);
        let mut second = plugin.cache().spawn().unwrap();
        let mut line = String::new();
        BufReader::new(second.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let (_, rest) = line.split_once("the credential plugin that process ").expect("it waits");
        let holder = rest.split_once(' ').unwrap().0.to_owned();
        Self { plugin, first, second, holder }
    }

    fn let_go(&self) {
        fs::write(self.plugin.path("go"), "").unwrap();
    }
}

/// CRED-29: nobody waits for the dead.
#[test]
fn whoever_waits_runs_the_plugin_if_its_runner_dies_cred_29() {
    let waiting = Waiting::new();
    assert!(Command::new("kill").args(["-9", &waiting.holder]).status().unwrap().success());
    eventually("the second runs the plugin", || waiting.plugin.runs() == 2);
    waiting.let_go();
    gives_the_token(&waiting.second.wait_with_output().unwrap());
    assert!(!waiting.first.wait_with_output().unwrap().status.success());
}

/// An agent that dies under its clients costs a run of the plugin, and no request.
#[test]
fn clients_go_on_if_the_agent_dies() {
    let waiting = Waiting::new();
    waiting.plugin.kill_agent();
    eventually("the second runs the plugin", || waiting.plugin.runs() == 2);
    waiting.let_go();
    gives_the_token(&waiting.first.wait_with_output().unwrap());
    gives_the_token(&waiting.second.wait_with_output().unwrap());
    // The one who came later had an agent again.
    gives_the_token(&waiting.plugin.cache().output().unwrap());
    assert_eq!(waiting.plugin.runs(), 2);
}

/// It holds nothing, and nobody is there.
#[test]
fn the_agent_leaves_when_it_has_nothing_to_do() {
    let plugin = plugin("");
    gives_the_token(&plugin.cache().output().unwrap());
    let agent = Path::new("/proc").join(plugin.agent().unwrap());
    assert!(plugin.waybill(&["credential", "forget"]).output().unwrap().status.success());
    eventually("it is gone", || !agent.join("cmdline").exists());
}

#[test]
fn the_commands_say_how_they_are_meant() {
    let plugin = plugin("");
    let fails = |arguments: &[&str], words: &str| {
        let output = plugin.waybill(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{said}");
    };
    fails(
        &["credential", "cache", "--", "plugin"],
        "this command stands in a kubeconfig, and is run by kubectl and other clients: \
         KUBERNETES_EXEC_INFO env var is unset or empty",
    );
    fails(&["credential", "cache", "plugin"], "-- <PLUGIN>...");
    // Hole: it ran a file of whatever directory somebody was in, where kubectl would look beside the kubeconfig.
    fails(&["credential", "cache", "--", "./plugin"], "write the whole path");
    fails(
        &["credential", "agent"],
        "the agent is started by `waybill credential cache`, never by hand",
    );
    fails(&["credential", "forget", "--all", "plugin"], "cannot be used with");
    let output = plugin.waybill(&["credential", "list"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "no agent runs, and nothing is held\n");
}
