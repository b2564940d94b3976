//! `exec`: whose it is, on record, in a cgroup of its own, and only then the runtime's.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use waybill_api::stock::{
    ContainerFacts, Engine, ExecWords, Mode, Refusal, SessionId, StockClaims, StockKind, Verdict,
    encode_base64url,
};
use waybill_core::env::merge::EnvVar;

use crate::{
    bundle::{Bundle, Identity, Owner, texts},
    cgroup::SessionCgroup,
    command_line::Exec,
    container::Container,
    environment::{merged, resolved},
    fault::Fault,
    memory::MemoryFile,
    node::{Node, random_id},
    privileged, record, sealed, token,
};

/// The words that the real runtime gets. Until they are its own, nothing has started.
pub(crate) fn exec(
    node: &Node,
    exec: &Exec,
    words: &[OsString],
    root: Option<&Path>,
) -> Result<Vec<OsString>, Fault> {
    let default_root = node.default_root();
    let found = Container::find(root.unwrap_or(&default_root), &exec.id);
    // A container that is not there has nothing to run in: the runtime says so. One that is not understood
    // may not be entered.
    let Some(container) = found else {
        let there = root.unwrap_or(&default_root).join(&exec.id).exists();
        return if there { Err(Refusal::NotRecorded.into()) } else { Ok(words.to_vec()) };
    };
    let bundle = Bundle::read(&container.bundle).map_err(|_| Refusal::NotRecorded)?;
    let mut process = Process::read(exec).map_err(|_| Refusal::NotRecorded)?;
    let owner = bundle.owner(node.engine());
    let target = Target {
        node,
        exec,
        in_doubt: owner == Owner::InDoubt,
        identity: owner.pod().unwrap_or_default(),
        container: &container,
        bundle: &bundle,
    };
    let stamped = ExecWords::parse(&process.args).map_err(|_| Refusal::NotSigned);
    let cgroup = match stamped {
        Ok(Some(stamped)) => {
            let (session, caller, command) = match target.judge(&stamped, process.tty) {
                Ok(begun) => begun,
                Err(refusal) => return Err(target.refuse(refusal, stamped.command, process.tty)),
            };
            Some(target.begin(&session, caller, command, &mut process)?)
        }
        Ok(None) => {
            let argv = process.args.clone();
            process.env = target.resolved(std::mem::take(&mut process.env));
            target.unsigned(&argv, process.tty)?
        }
        Err(refusal) => return Err(target.refuse(refusal, &[], process.tty)),
    };
    let file = process.into_memory(exec.preserve).map_err(|_| Refusal::NotRecorded)?;
    let argument = cgroup.as_ref().map(|cgroup| cgroup.argument.as_str());
    let words = exec.rewritten(words, file.as_ref().map(|file| file.path.as_path()), argument);
    // It must be open when the runtime looks for it.
    std::mem::forget(file);
    Ok(words)
}

/// SHA-256 as tokens hold it.
pub(crate) fn digest(bytes: &[u8]) -> String {
    encode_base64url(&Sha256::digest(bytes))
}

/// Uses up what is good once.
pub(crate) fn mark_used(node: &Node, marker: &Path) -> Result<(), Refusal> {
    node.mark(marker).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Refusal::Used,
        _ => Refusal::NotRecorded,
    })
}

impl Identity {
    /// Whether a token is for this container.
    pub(crate) fn is_of(&self, claims: &StockClaims) -> bool {
        let Self { namespace, pod, uid, container } = self;
        !uid.is_empty()
            && !container.is_empty()
            && (namespace, pod, uid, container)
                == (&claims.namespace, &claims.pod, &claims.uid, &claims.container)
    }
}

/// Where an exec is to happen.
struct Target<'a> {
    node: &'a Node,
    exec: &'a Exec,
    /// Empty for a container that is no pod's, or in doubt.
    identity: Identity,
    /// Whether nobody can tell whose container it is, so that nobody can tell what its namespace asks for.
    in_doubt: bool,
    container: &'a Container,
    bundle: &'a Bundle,
}

impl Target<'_> {
    /// Judges a stamped command, and uses up its token when everything else is as it should be.
    fn judge(
        &self,
        stamped: &ExecWords<'_>,
        tty: bool,
    ) -> Result<(SessionId, Vec<EnvVar>, Vec<String>), Refusal> {
        let claims = token::signed_claims(stamped.token, &self.node.keys())?;
        token::check_time(&claims, self.node.seconds())?;
        if !self.identity.is_of(&claims) {
            return Err(Refusal::OtherContainer);
        }
        let same = claims.kind == StockKind::Exec
            && claims.tty == tty
            && claims.words == digest(&stamped.bound_bytes());
        if !same {
            return Err(Refusal::Changed);
        }
        let opened =
            stamped.sealed.map(|word| sealed::open(self.node, word, &self.identity)).transpose()?;
        mark_used(self.node, &self.node.layout().used_session(&claims.session))?;
        let variables = match opened {
            Some(opened) => {
                mark_used(self.node, &self.node.layout().used_sealed(&opened.digest))?;
                opened.variables
            }
            None => Vec::new(),
        };
        Ok((claims.session, variables, stamped.command.to_vec()))
    }

    /// Puts the session on record and its environment into the process.
    fn begin(
        &self,
        session: &SessionId,
        caller: Vec<EnvVar>,
        command: Vec<String>,
        process: &mut Process,
    ) -> Result<SessionCgroup, Fault> {
        let env = self.resolved(std::mem::take(&mut process.env));
        process.env = merged(env, caller, session).ok_or(Refusal::Variables)?;
        process.args = command;
        let cgroup = SessionCgroup::make(self.node, &self.container.cgroups, session)
            .map_err(|_| Refusal::NotRecorded)?;
        let mut record = self.record(&process.args, process.tty, Verdict::Attributed);
        record.session = Some(session.clone());
        record::place(&mut record, &cgroup);
        if record::write(&self.node.layout().session(session), &record).is_err() {
            cgroup.remove();
            return Err(Refusal::NotRecorded.into());
        }
        Ok(cgroup)
    }

    /// What no gate has seen: a probe, a hook, or nobody's.
    fn unsigned(&self, argv: &[String], tty: bool) -> Result<Option<SessionCgroup>, Fault> {
        let facts = self.node.facts(&self.identity.uid);
        let container =
            facts.as_ref().and_then(|facts| facts.containers.get(&self.identity.container));
        let declared = container.is_some_and(|container| is_declared(container, argv));
        if declared && (!tty || self.probes_have_terminals()) && has_no_input() {
            return Ok(None);
        }
        let mode = facts.map_or(self.node.default_mode(), |facts| facts.mode);
        match if self.in_doubt { Mode::Enforce } else { mode } {
            Mode::Enforce => Err(self.refuse(Refusal::NoSession, argv, tty)),
            Mode::Record => self.nobodys(argv, tty).map(Some),
        }
    }

    /// CRI-O gives probes and hooks a terminal if the container has one, with nobody at the other end; a person's
    /// terminal is the standard input of its call. containerd gives them none.
    fn probes_have_terminals(&self) -> bool {
        let terminal = self.bundle.spec().pointer("/process/terminal").and_then(Value::as_bool);
        self.node.engine() == Some(Engine::Crio) && terminal == Some(true)
    }

    /// Lets it through, on record as nobody's.
    fn nobodys(&self, argv: &[String], tty: bool) -> Result<SessionCgroup, Fault> {
        let id = random_id().map_err(|_| Refusal::NotRecorded)?;
        mark_used(self.node, &self.node.layout().used_session(&id))?;
        let cgroup = SessionCgroup::make(self.node, &self.container.cgroups, &id)
            .map_err(|_| Refusal::NotRecorded)?;
        let mut record = self.record(argv, tty, Verdict::Unattributed);
        record::place(&mut record, &cgroup);
        if record::write_of_stranger(&self.node.layout().unattributed(&id), &record).is_err() {
            cgroup.remove();
            return Err(Refusal::NotRecorded.into());
        }
        Ok(cgroup)
    }

    /// Leaves a record of what did not happen, if there is room for it.
    fn refuse(&self, refusal: Refusal, argv: &[String], tty: bool) -> Fault {
        let record = self.record(argv, tty, Verdict::Refused);
        if let Ok(id) = random_id() {
            let _ = record::write_of_stranger(&self.node.layout().unattributed(&id), &record);
        }
        refusal.into()
    }

    fn record(
        &self,
        argv: &[String],
        tty: bool,
        verdict: Verdict,
    ) -> waybill_api::stock::SessionRecord {
        let mut record = record::record(self.node, &self.identity, &self.exec.id, argv, verdict);
        record.tty = tty;
        record.privileged = privileged::is_privileged(self.bundle.spec());
        record
    }

    fn resolved(&self, env: Vec<String>) -> Vec<String> {
        resolved(env, &self.bundle.references(), &self.bundle.env())
    }
}

/// Probes and hooks are exactly what the pod declares.
fn is_declared(container: &ContainerFacts, argv: &[String]) -> bool {
    container.probes.iter().chain(&container.hooks).any(|declared| declared == argv)
}

/// Probes and hooks read nothing: their standard input is the null device.
fn has_no_input() -> bool {
    let null = rustix::fs::makedev(1, 3);
    fs::metadata("/proc/self/fd/0")
        .is_ok_and(|input| input.file_type().is_char_device() && input.rdev() == null)
}

/// The process that is to run.
struct Process {
    /// The rest of its file; `None` when the call itself describes it.
    document: Option<Map<String, Value>>,
    args: Vec<String>,
    env: Vec<String>,
    tty: bool,
}

impl Process {
    fn read(exec: &Exec) -> io::Result<Self> {
        let Some((file, _)) = &exec.process else {
            return Ok(Self {
                document: None,
                args: exec.command.clone(),
                env: Vec::new(),
                tty: exec.tty,
            });
        };
        let document: Map<String, Value> = serde_json::from_slice(&fs::read(file)?)?;
        let tty = document.get("terminal").and_then(Value::as_bool).unwrap_or_default();
        let (args, env) = (texts(document.get("args")), texts(document.get("env")));
        Ok(Self { document: Some(document), args, env, tty })
    }

    fn into_memory(self, preserved: u32) -> io::Result<Option<MemoryFile>> {
        let Some(mut document) = self.document else { return Ok(None) };
        document.insert("args".to_owned(), self.args.into());
        document.insert("env".to_owned(), self.env.into());
        MemoryFile::new(&serde_json::to_vec(&document)?, preserved).map(Some)
    }
}
