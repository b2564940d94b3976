//! A container of a real runtime behind the wrapper, on a tmpfs, with keys and an agent of the test's own.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use hpke::{
    Deserializable, Kem, OpModeS, Serializable, aead::ChaCha20Poly1305, kdf::HkdfSha256,
    kem::X25519HkdfSha256,
};
use p256::ecdsa::{Signature, SigningKey, signature::Signer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use waybill_api::stock::{
    Answer, KeySet, Layout, Mode, PublicKey, SEALED_INFO, SealedVariables, SessionId,
    SessionRecord, StockClaims, StockKind, WrapperConfig, encode_base64url, framed, stamped,
};
use waybill_testkit::{
    oci::wrapper,
    program::{CRUN, Program, RUNC},
    skip::skip,
};

pub(crate) const UID: &str = "6f2ac1f0-0000-4000-8000-000000000001";
const PATIENCE: Duration = Duration::from_secs(60);

/// A runtime, and the kind of cgroups that it is to find.
#[derive(Clone)]
pub(crate) struct Setting {
    runtime: PathBuf,
    /// Whether cgroup v2 alone is mounted for it, on a machine that has v1, too.
    unified: bool,
}

impl Setting {
    /// Whether it is runc on the machine as it is.
    pub(crate) fn is_plain_runc(&self) -> bool {
        !self.unified && self.runtime.ends_with("runc")
    }
}

/// One container, and what a node has around it.
pub(crate) struct Lab {
    setting: Setting,
    pub(crate) id: String,
    pub(crate) layout: Layout,
    directory: TempDir,
}

/// Both runtimes that the wrapper knows, where this machine has them, with each kind of cgroups.
pub(crate) fn settings() -> Vec<Setting> {
    // Containers need root, and an image of something.
    if !rustix::process::geteuid().is_root() {
        skip("root", "run the tests as root");
        return Vec::new();
    }
    if !Path::new("/bin/busybox").exists() {
        skip("busybox", "install the Debian package busybox-static");
        return Vec::new();
    }
    let has_v1 = !Path::new("/sys/fs/cgroup/cgroup.procs").exists();
    let setting = |program: Program, unified| Some(Setting { runtime: program.find()?, unified });
    // crun does not want to know of v1 and v2 side by side.
    let mut settings: Vec<_> =
        setting(CRUN, has_v1).into_iter().chain(setting(RUNC, false)).collect();
    if has_v1 {
        settings.extend(setting(RUNC, true));
    }
    settings
}

/// Runs `test` with a running container of each runtime.
pub(crate) fn with_each(mode: Mode, test: impl Fn(&Lab)) {
    for setting in settings() {
        let lab = Lab::new(&setting, mode);
        lab.create(&[]);
        test(&lab);
    }
}

impl Lab {
    /// A node and a bundle, and no container yet.
    pub(crate) fn new(setting: &Setting, mode: Mode) -> Self {
        Self::below(Path::new("/dev/shm"), setting, mode)
    }

    /// As [`Self::new`], somewhere else.
    pub(crate) fn below(place: &Path, setting: &Setting, mode: Mode) -> Self {
        let directory = tempfile::tempdir_in(place).unwrap();
        let path = directory.path();
        for part in [
            "opt/bin",
            "run/used",
            "run/sessions",
            "run/pods",
            "run/seal",
            "root",
            "bundle/rootfs/bin",
            "bundle/rootfs/proc",
            "bundle/rootfs/dev",
        ] {
            fs::create_dir_all(path.join(part)).unwrap();
        }
        fs::copy(wrapper(), path.join("opt/bin/waybill-oci")).unwrap();
        let config = WrapperConfig {
            version: 1,
            runtime: setting.runtime.clone(),
            run: path.join("run"),
            mode,
            engine: None,
        };
        fs::write(path.join("opt/oci.json"), serde_json::to_vec(&config).unwrap()).unwrap();
        for file in
            ["busybox", "sh", "sleep", "true"].map(|name| format!("bundle/rootfs/bin/{name}"))
        {
            fs::copy("/bin/busybox", path.join(file)).unwrap();
        }
        let layout = Layout::new(path.join("run"));
        fs::write(layout.keys(), serde_json::to_vec(&keys()).unwrap()).unwrap();
        fs::write(layout.seal("n1").unwrap(), sealing_pair().0).unwrap();
        let id = path.file_name().unwrap().to_str().unwrap().replace('.', "t");
        Self { setting: setting.clone(), id, layout, directory }
    }

    pub(crate) fn path(&self, part: &str) -> PathBuf {
        self.directory.path().join(part)
    }

    /// Writes the bundle's description with more variables than `PATH`.
    pub(crate) fn describe(&self, env: &[&str]) {
        let env: Vec<_> = std::iter::once("PATH=/bin").chain(env.iter().copied()).collect();
        let namespaces: Vec<_> = ["pid", "mount", "ipc", "uts", "network"]
            .iter()
            .map(|kind| json!({"type": kind}))
            .collect();
        let spec = json!({
            "ociVersion": "1.0.2",
            "process": {"terminal": false, "user": {"uid": 0, "gid": 0}, "cwd": "/", "env": env,
                "args": ["/bin/busybox", "sleep", "1000"]},
            "root": {"path": "rootfs"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
                {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
                    "options": ["newinstance", "ptmxmode=0666", "mode=0620"]}],
            "annotations": {
                "io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.container-name": "main",
                "io.kubernetes.cri.sandbox-uid": UID, "io.kubernetes.cri.sandbox-name": "web",
                "io.kubernetes.cri.sandbox-namespace": "ns"},
            "linux": {"namespaces": namespaces, "cgroupsPath": format!("/waybill-test/{}", self.id)},
        });
        fs::write(self.path("bundle/config.json"), spec.to_string()).unwrap();
    }

    /// Makes and starts the container.
    pub(crate) fn create(&self, env: &[&str]) {
        self.describe(env);
        let made = self.try_create();
        assert!(made.status.success(), "{}", text(&made));
        let started = self.wrapped(&["start", &self.id]).output().unwrap();
        assert!(started.status.success(), "{}", text(&started));
    }

    /// Asks for the container as containerd does. Its streams are its own, so that nobody waits for them.
    pub(crate) fn try_create(&self) -> Output {
        let bundle = self.path("bundle");
        let errors = fs::File::create(self.path("create.err")).unwrap();
        let mut command = self.wrapped(&["create", "--bundle", bundle.to_str().unwrap(), &self.id]);
        let status =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).status().unwrap();
        Output { status, stdout: Vec::new(), stderr: fs::read(self.path("create.err")).unwrap() }
    }

    /// The wrapper, called as the runtime.
    pub(crate) fn wrapped(&self, words: &[&str]) -> Command {
        let wrapper = self.path("opt/bin/waybill-oci");
        let mut command = if self.setting.unified {
            let script = "mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\"";
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", script, "sh"]).arg(wrapper);
            command
        } else {
            Command::new(wrapper)
        };
        command.arg("--root").arg(self.path("root")).arg("--log").arg(self.path("log.json"));
        command.args(["--log-format", "json"]).args(words);
        command
    }

    /// The process file of an exec with these words.
    pub(crate) fn process(&self, args: &[String], tty: bool, env: &[&str]) -> PathBuf {
        let env: Vec<_> = std::iter::once("PATH=/bin").chain(env.iter().copied()).collect();
        let process = json!({"terminal": tty, "user": {"uid": 0, "gid": 0}, "cwd": "/", "args": args, "env": env});
        let file = self.path(&format!("process-{}", random()));
        fs::write(&file, process.to_string()).unwrap();
        file
    }

    /// An exec in the foreground, not started yet.
    pub(crate) fn exec_command(&self, args: &[String], env: &[&str]) -> Command {
        let file = self.process(args, false, env);
        let mut command = self.wrapped(&["exec", "--process", file.to_str().unwrap(), &self.id]);
        command.stdin(Stdio::null());
        command
    }

    /// An exec in the foreground.
    pub(crate) fn exec(&self, args: &[String]) -> Output {
        self.exec_command(args, &[]).output().unwrap()
    }

    /// A session that gate signed.
    pub(crate) fn session(&self, command: &[&str]) -> (SessionId, Output) {
        let claims = self.claims(None, command);
        (claims.session.clone(), self.exec(&signed(&claims, None, command)))
    }

    /// Claims as gate would make them now.
    pub(crate) fn claims(&self, sealed: Option<&str>, command: &[&str]) -> StockClaims {
        StockClaims { words: digest(&stamped(sealed, &owned(command))), ..claims() }
    }

    pub(crate) fn record(&self, session: &SessionId) -> SessionRecord {
        serde_json::from_slice(&fs::read(self.layout.session(session)).unwrap()).unwrap()
    }

    /// Where the cgroup of a record is for the test itself.
    pub(crate) fn cgroup(&self, record: &SessionRecord) -> PathBuf {
        match record.cgroup.strip_prefix("/sys/fs/cgroup/") {
            Some(rest) if self.setting.unified => Path::new("/sys/fs/cgroup/unified").join(rest),
            _ => PathBuf::from(&record.cgroup),
        }
    }

    /// Records of what was nobody's.
    pub(crate) fn strangers(&self) -> Vec<SessionRecord> {
        let files = fs::read_dir(self.layout.sessions()).unwrap().map(|entry| entry.unwrap());
        let files =
            files.filter(|file| file.file_name().to_str().unwrap().starts_with("unattributed-"));
        files.map(|file| serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap()).collect()
    }

    /// What the agent would have written about the pod.
    pub(crate) fn facts(&self, mode: &str, container: &Value) {
        let facts = json!({"version": 1, "namespace": "ns", "name": "web", "mode": mode, "containers": {"main": container}});
        fs::write(self.path(&format!("run/pods/{UID}.json")), facts.to_string()).unwrap();
    }

    /// An agent that gives this answer to the next question, and hands it to the test.
    pub(crate) fn agent(&self, answer: Answer) -> thread::JoinHandle<Value> {
        let _ = fs::remove_file(self.layout.socket());
        let listener = UnixListener::bind(self.layout.socket()).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            stream.write_all(answer.to_line().expose()).unwrap();
            serde_json::from_str(&line).unwrap()
        })
    }

    /// The last line of the runtime's log.
    pub(crate) fn logged(&self) -> Value {
        let log = fs::read_to_string(self.path("log.json")).unwrap_or_default();
        log.lines().last().map_or(Value::Null, |line| serde_json::from_str(line).unwrap())
    }

    /// Checks that a call was refused in these words, everywhere.
    #[track_caller]
    pub(crate) fn check_refused(&self, output: &Output, expected: &str) {
        assert_eq!(output.status.code(), Some(1), "{}", text(output));
        assert_eq!(String::from_utf8_lossy(&output.stderr).trim_end(), expected);
        assert_eq!(self.logged()["msg"], expected);
        assert_eq!(self.logged()["level"], "error");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    }

    /// Files below the lab that hold `value`, by their paths in it.
    pub(crate) fn files_with(&self, value: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.directory.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() && has(&fs::read(entry.path()).unwrap(), value) {
                    found.push(
                        entry
                            .path()
                            .strip_prefix(self.directory.path())
                            .unwrap()
                            .display()
                            .to_string(),
                    );
                }
            }
        }
        found.sort();
        found
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.wrapped(&["delete", "--force", &self.id]).stderr(Stdio::null()).status();
    }
}

/// Claims for the container of a lab, and no words.
pub(crate) fn claims() -> StockClaims {
    let now = seconds();
    StockClaims {
        session: random(),
        issued_at: now,
        expires_at: now + 120,
        kind: StockKind::Exec,
        namespace: "ns".to_owned(),
        pod: "web".to_owned(),
        uid: UID.to_owned(),
        container: "main".to_owned(),
        tty: false,
        words: String::new(),
    }
}

/// The words of a command that gate signed.
pub(crate) fn signed(claims: &StockClaims, sealed: Option<&str>, command: &[&str]) -> Vec<String> {
    let mut words = vec![format!("waybill-exec:{}", token(claims, &signing_key(1)))];
    words.extend(stamped(sealed, &owned(command)));
    words
}

/// A token that `key` signed.
pub(crate) fn token(claims: &StockClaims, key: &SigningKey) -> String {
    let header = encode_base64url(br#"{"alg":"ES256","kid":"g1"}"#);
    let signed = format!("{header}.{}", encode_base64url(&serde_json::to_vec(claims).unwrap()));
    let signature: Signature = key.sign(signed.as_bytes());
    format!("{signed}.{}", encode_base64url(&signature.to_bytes()))
}

/// Variables as a client seals them.
pub(crate) fn sealed(variables: &[(&str, &str)], change: impl Fn(&mut SealedVariables)) -> String {
    let mut sealed = SealedVariables {
        kid: "n1".to_owned(),
        uid: UID.to_owned(),
        container: "main".to_owned(),
        names: variables.iter().map(|(name, _)| (*name).to_owned()).collect(),
        expires_at: seconds() + 300,
        encapsulated: Vec::new(),
        ciphertext: Vec::new(),
    };
    change(&mut sealed);
    let key = <X25519HkdfSha256 as Kem>::PublicKey::from_bytes(&sealing_pair().1).unwrap();
    let values = framed(variables.iter().map(|(_, value)| value.as_bytes()));
    let (encapsulated, ciphertext) =
        hpke::single_shot_seal::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeS::Base,
            &key,
            SEALED_INFO,
            &values,
            &sealed.additional_data(),
        )
        .unwrap();
    sealed.encapsulated = encapsulated.to_bytes().to_vec();
    sealed.ciphertext = ciphertext;
    sealed.to_word()
}

pub(crate) fn digest(words: &[String]) -> String {
    encode_base64url(&Sha256::digest(framed(words.iter().map(String::as_bytes))))
}

pub(crate) fn signing_key(seed: u8) -> SigningKey {
    SigningKey::from_slice(&[seed; 32]).unwrap()
}

fn keys() -> KeySet {
    let point = signing_key(1).verifying_key().to_sec1_point(false);
    let half = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).unwrap();
    let (x, y) = (half(point.x().unwrap()), half(point.y().unwrap()));
    KeySet { keys: vec![PublicKey::es256("g1", &x, &y)] }
}

/// The node's private and public key, always the same.
fn sealing_pair() -> (Vec<u8>, Vec<u8>) {
    let (private, public) = X25519HkdfSha256::derive_keypair(&[7; 32]);
    (private.to_bytes().to_vec(), public.to_bytes().to_vec())
}

pub(crate) fn random() -> SessionId {
    let mut bytes = [0; 16];
    std::io::Read::read_exact(&mut fs::File::open("/dev/urandom").unwrap(), &mut bytes).unwrap();
    SessionId::from_random(bytes)
}

pub(crate) fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[expect(clippy::disallowed_methods, reason = "tokens of a test are good now")]
pub(crate) fn seconds() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

pub(crate) fn text(output: &Output) -> String {
    format!(
        "{:?}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

pub(crate) fn has(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Waits until `done` says so.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for a child, and kills it if that takes too long.
pub(crate) fn finish(mut child: Child) -> std::process::ExitStatus {
    let mut status = None;
    wait_for("the end of a process", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}
