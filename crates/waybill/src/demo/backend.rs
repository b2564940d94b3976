//! Where the demo keeps a secret: in OpenBao if this machine has it, or else in a script for the driver
//! `mock` that is in memory only.

use std::{
    env,
    fs::{self, File, Permissions},
    io::{Read, Write},
    net::TcpListener,
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::{Value, json};

use crate::{driver::Kind, up::DriverChoice};

/// Longer than OpenBao needs to be ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// Something that has a secret, made anew for each demo.
pub(super) struct Backend {
    kind: BackendKind,
    value: String,
}

enum BackendKind {
    OpenBao(OpenBao),
    /// The driver reads it by our number and its own.
    Script(File),
}

impl Backend {
    /// Starts what there is; `directory` is for files of OpenBao, none of which holds the secret.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let value = random()?;
        let kind = match find_openbao() {
            Some(program) => BackendKind::OpenBao(OpenBao::start(program, directory)?),
            None => BackendKind::Script(script(&value)?),
        };
        Ok(Self { kind, value })
    }

    /// The driver that asks it.
    pub(super) fn driver(&self) -> DriverChoice {
        match &self.kind {
            // It is on this machine, where classes alone cannot send a driver.
            BackendKind::OpenBao(server) => {
                let flag = format!("--allow-address={}", server.address);
                DriverChoice::new(Kind::Vault, vec![flag])
            }
            BackendKind::Script(file) => {
                let path = format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd());
                DriverChoice::new(Kind::Mock, vec!["--script".to_owned(), path])
            }
        }
    }

    pub(super) fn driver_name(&self) -> &'static str {
        match &self.kind {
            BackendKind::OpenBao(_) => Kind::Vault.driver_name(),
            BackendKind::Script(_) => Kind::Mock.driver_name(),
        }
    }

    /// As people read it.
    pub(super) fn title(&self) -> &'static str {
        match &self.kind {
            BackendKind::OpenBao(_) => "OpenBao, where the pod logged in with its own token",
            BackendKind::Script(_) => {
                "the driver mock; with `bao` in the PATH the demo takes it from OpenBao"
            }
        }
    }

    pub(super) fn openbao(&self) -> Option<&OpenBao> {
        match &self.kind {
            BackendKind::OpenBao(server) => Some(server),
            BackendKind::Script(_) => None,
        }
    }

    pub(super) fn value(&self) -> &str {
        &self.value
    }

    /// What a class says to the driver.
    pub(super) fn class_parameters(&self) -> Value {
        let mut parameters = json!({"allowedNamespaces": "default", "allowedFields": self.key()});
        if let BackendKind::OpenBao(server) = &self.kind
            && let Value::Object(parameters) = &mut parameters
        {
            parameters.insert("vaultAddr".to_owned(), json!(server.address));
            parameters.insert("vaultRole".to_owned(), json!("demo"));
        }
        parameters
    }

    pub(super) fn key(&self) -> &'static str {
        match &self.kind {
            BackendKind::OpenBao(_) => "secret/data/demo",
            BackendKind::Script(_) => "demo/password",
        }
    }
}

/// A server in memory that ends with the demo.
pub(super) struct OpenBao {
    child: Child,
    program: PathBuf,
    home: PathBuf,
    address: String,
    root: String,
}

impl OpenBao {
    fn start(program: PathBuf, directory: &Path) -> Result<Self> {
        let home = directory.join("openbao");
        fs::create_dir(&home).context("cannot make a directory for OpenBao")?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let root = random()?;
        let child = Command::new(&program)
            .args(["server", "-dev", "-dev-no-store-token"])
            .arg(format!("-dev-listen-address=127.0.0.1:{port}"))
            .env_clear()
            .env("HOME", &home)
            .env("BAO_DEV_ROOT_TOKEN_ID", &root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let address = format!("http://127.0.0.1:{port}");
        let server = Self { child, program, home, address, root };
        let start = Instant::now();
        while server.run(&["token", "lookup"], None).is_err() {
            if start.elapsed() > PATIENCE {
                bail!("OpenBao does not answer");
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Trusts the API server's word about tokens, and gives the secret to pods of one account.
    pub(super) fn prepare(&self, kubernetes: &Value, value: &str) -> Result<()> {
        self.run(&["auth", "enable", "kubernetes"], None)?;
        self.write("auth/kubernetes/config", kubernetes)?;
        let role = json!({
            "bound_service_account_names": ["default"],
            "bound_service_account_namespaces": ["default"],
            "audience": "vault",
            "token_policies": ["demo"],
        });
        self.write("auth/kubernetes/role/demo", &role)?;
        let policy = json!({"policy": r#"path "secret/data/demo" { capabilities = ["read"] }"#});
        self.write("sys/policies/acl/demo", &policy)?;
        self.write("secret/data/demo", &json!({"data": {"password": value}}))
    }

    fn write(&self, path: &str, content: &Value) -> Result<()> {
        self.run(&["write", path, "-"], Some(content))
    }

    /// What is secret goes by a pipe, not by an argument.
    fn run(&self, arguments: &[&str], input: Option<&Value>) -> Result<()> {
        let mut child = Command::new(&self.program)
            .args(arguments)
            .env_clear()
            .env("HOME", &self.home)
            .env("BAO_ADDR", &self.address)
            .env("BAO_TOKEN", &self.root)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            stdin.write_all(input.to_string().as_bytes())?;
        }
        match child.wait()?.success() {
            true => Ok(()),
            false => bail!("bao {} failed", arguments.join(" ")),
        }
    }
}

impl Drop for OpenBao {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the PATH, or where `cargo xtask` puts it for tests.
#[expect(clippy::disallowed_methods, reason = "programs are where the user's shell looks for them")]
fn find_openbao() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let own = env::var_os("HOME").map(|home| Path::new(&home).join(".cache/waybill/openbao/bin"));
    let mut candidates = env::split_paths(&path).chain(own).map(|folder| folder.join("bao"));
    candidates.find(|program| program.is_file())
}

/// A file without a place on any disk.
fn script(value: &str) -> Result<File> {
    let doing = "cannot make a file in memory";
    let mut file = File::from(memfd_create("script", MemfdFlags::CLOEXEC).context(doing)?);
    file.set_permissions(Permissions::from_mode(0o600)).context(doing)?;
    let script = json!({"values": {"demo/password": value}});
    file.write_all(script.to_string().as_bytes()).context(doing)?;
    Ok(file)
}

fn random() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
