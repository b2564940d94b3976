//! `waybill apiserver` as a process, to be asked, killed and started again.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use crate::{child::Killed, port};

/// The token of the one user of the token file, who may do everything.
pub const ADMIN_TOKEN: &str = "token";

/// A server that runs. Killed on drop.
#[derive(Debug)]
pub struct ApiServer {
    child: Killed,
    state: PathBuf,
    address: SocketAddr,
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// `waybill`.
    pub binary: PathBuf,
    /// For its state, its token file and its log.
    pub dir: PathBuf,
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    /// The token file.
    pub tokens: String,
    /// Further flags.
    pub flags: Vec<String>,
}

impl Setup {
    /// The server `binary` in `dir`, on a free port, with [`ADMIN_TOKEN`].
    pub fn new(binary: &str, dir: &Path) -> Self {
        Self {
            binary: binary.into(),
            dir: dir.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tokens: format!("{ADMIN_TOKEN},admin,1,\"system:masters\"\n"),
            flags: Vec::new(),
        }
    }

    /// The same with another flag.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// The same on a port that stays free while the server is down.
    #[must_use]
    pub fn on_a_lasting_port(mut self) -> Self {
        let [port] = port::lasting();
        self.listen.set_port(port);
        self
    }

    /// Starts a server on what is in the directory, and waits until it serves.
    pub fn start(&self) -> ApiServer {
        ApiServer::start(self)
    }

    /// The command that starts a server.
    pub fn command(&self) -> Command {
        let tokens = self.dir.join("tokens.csv");
        fs::write(&tokens, &self.tokens).expect("the directory is writable");
        let mut command = Command::new(&self.binary);
        command.args(["apiserver", "--listen", &self.listen.to_string(), "--state-dir"]);
        command.arg(self.dir.join("state")).arg("--token-auth-file").arg(tokens);
        command.args(&self.flags).env_clear().stdin(Stdio::null());
        command
    }

    /// What servers in this directory have logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }
}

impl ApiServer {
    fn start(setup: &Setup) -> Self {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(setup.dir.join("server.log"))
            .expect("the directory is writable");
        let mut child = Killed::spawn(setup.command().stdout(Stdio::piped()).stderr(log));
        let stdout = child.get_mut().stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        let address = first.strip_prefix("serving on https://").and_then(|it| it.parse().ok());
        let address =
            address.unwrap_or_else(|| panic!("no address in {first:?}; its log:\n{}", setup.log()));
        // What follows is read, so that the server never waits for room in the pipe.
        thread::spawn(move || lines.for_each(drop));
        Self { child, state: setup.dir.join("state"), address }
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it keeps what it keeps.
    pub fn state(&self) -> &Path {
        &self.state
    }
}
