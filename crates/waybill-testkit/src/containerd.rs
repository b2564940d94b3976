//! Stock containerd: found, started in a directory of its own, and stopped.

use std::{
    env, fs, io,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    child::Killed,
    program::{CONTAINERD, RUNC},
};

/// Longer than containerd needs to open its socket, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A containerd with its CRI plugin, and a network of loopback alone. Stopped on drop.
#[derive(Debug)]
pub struct Containerd {
    // Before the directory, which it uses.
    _child: Killed,
    ctr: PathBuf,
    directory: TempDir,
}

impl Containerd {
    /// Starts it and waits until it takes connections; `None` if this machine has none. Sandboxes are
    /// held by a process from the image `pause`.
    pub fn start(pause: &str) -> Option<Self> {
        Self::start_configured(pause, |_, _, configuration| configuration)
    }

    /// As [`Self::start`], with a handler `waybill` whose runtime is `wrapper`.
    pub fn start_behind(pause: &str, wrapper: &Path) -> Option<Self> {
        let runtimes = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes";
        let kind = "runtime_type = \"io.containerd.runc.v2\"";
        let wrapper = wrapper.display();
        let more = format!(
            "{runtimes}.runc]\n{kind}\n{runtimes}.waybill]\n{kind}\n{runtimes}.waybill.options]\n\
             BinaryName = \"{wrapper}\"\n"
        );
        Self::start_configured(pause, |_, _, configuration| configuration + &more)
    }

    /// The same with another configuration: `change` gets its directory, the path of runc, and what it would be.
    pub fn start_configured(
        pause: &str,
        change: impl FnOnce(&Path, &Path, String) -> String,
    ) -> Option<Self> {
        let containerd = CONTAINERD.find()?;
        let runc = RUNC.find()?;
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        let config = directory.path().join("config.toml");
        let text = change(directory.path(), &runc, configuration(directory.path(), pause));
        fs::write(&config, text).expect("the directory is ours");
        write_network(directory.path()).expect("the directory is ours");
        let folders =
            [&containerd, &runc].map(|program| program.parent().unwrap_or(Path::new("/")));
        let path = env::var_os("PATH").unwrap_or_default();
        let inherited = env::split_paths(&path).collect::<Vec<_>>();
        let path = folders.into_iter().map(Path::to_path_buf).chain(inherited);
        let child = Killed::spawn(
            Command::new(&containerd)
                .arg("--config")
                .arg(&config)
                .env("PATH", env::join_paths(path).expect("no folder holds a colon"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        );
        let ctr = containerd.with_file_name("ctr");
        let containerd = Self { _child: child, ctr, directory };
        containerd.wait();
        Some(containerd)
    }

    /// Where CRI is served.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("containerd.sock")
    }

    /// Where all its files are.
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// Gives it the images of an archive.
    pub fn import(&self, archive: &[u8]) {
        let file = self.directory.path().join("images.tar");
        fs::write(&file, archive).expect("the directory is ours");
        let output = Command::new(&self.ctr)
            .arg("--address")
            .arg(self.socket())
            .args(["--namespace", "k8s.io", "images", "import"])
            .arg(&file)
            .output()
            .expect("ctr comes with containerd");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn wait(&self) {
        let start = Instant::now();
        while UnixStream::connect(self.socket()).is_err() {
            assert!(start.elapsed() < PATIENCE, "containerd does not open its socket");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Machines of tests may not let anybody lower an OOM score, and containerd's default does so.
fn configuration(directory: &Path, pause: &str) -> String {
    let directory = directory.display();
    format!(
        "version = 2
root = \"{directory}/root\"
state = \"{directory}/state\"
[grpc]
address = \"{directory}/containerd.sock\"
[plugins.\"io.containerd.grpc.v1.cri\"]
sandbox_image = \"{pause}\"
restrict_oom_score_adj = true
stream_server_address = \"127.0.0.1\"
[plugins.\"io.containerd.grpc.v1.cri\".cni]
bin_dir = \"{directory}/cni\"
conf_dir = \"{directory}/cni\"
"
    )
}

/// A network of nothing but loopback, as pods of our own runtime have it. containerd wants an address in
/// the answer, and does not use it.
fn write_network(directory: &Path) -> io::Result<()> {
    let cni = directory.join("cni");
    fs::create_dir(&cni)?;
    let list = r#"{"cniVersion": "0.3.1", "name": "quiet", "plugins": [{"type": "quiet"}]}"#;
    fs::write(cni.join("10-quiet.conflist"), list)?;
    for (plugin, interface, address) in
        [("loopback", "lo", "127.0.0.1/8"), ("quiet", "eth0", "127.0.0.1/8")]
    {
        let script = format!(
            r#"#!/bin/sh
set -e
case $CNI_COMMAND in
ADD)
    nsenter --net="$CNI_NETNS" ip link set lo up
    echo '{{"cniVersion": "0.3.1", "interfaces": [{{"name": "{interface}", "sandbox": "'"$CNI_NETNS"'"}}],
        "ips": [{{"version": "4", "interface": 0, "address": "{address}"}}]}}' ;;
VERSION)
    echo '{{"cniVersion": "0.4.0", "supportedVersions": ["0.3.1", "0.4.0"]}}' ;;
esac
"#
        );
        let path = cni.join(plugin);
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}
