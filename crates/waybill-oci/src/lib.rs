//! The wrapper around the OCI runtime of a node that is not ours.
//!
//! containerd or CRI-O call `waybill-oci` where they would call runc or crun. It acts on `create`, `exec` and
//! `checkpoint`, and becomes the real runtime by `execve` in any case, so that nothing of it stays: no
//! daemon, no thread, no network. What it has to know lies in the agent's directory of memory; nothing but
//! a new container with references needs the agent itself.
//!
//! It fails closed: what is not understood, not signed or not on record does not happen. Killed at any step
//! it leaves nothing that runs.

mod agent;
mod bundle;
mod cgroup;
mod checkpoint;
mod command_line;
mod container;
mod create;
mod debug;
mod environment;
mod exec;
mod fault;
mod memory;
mod node;
mod privileged;
mod record;
mod sealed;
mod token;

use std::{
    env, ffi::OsString, os::unix::process::CommandExt, path::Path, process::Command,
    time::SystemTime,
};

use self::{
    command_line::{Action, CommandLine, Log},
    fault::{Fault, report},
    node::Node,
};

/// One call.
#[derive(Debug)]
pub struct Wrapper;

impl Wrapper {
    /// Becomes the real runtime. It returns only if that did not happen, and has told why.
    pub fn run(words: Vec<OsString>, now: SystemTime) {
        // Values pass through this memory; what follows by `execve` is as it was.
        let _ =
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
        let mut log = Log::default();
        let fault = call(words, now, &mut log);
        report(&fault, &log, now);
    }
}

fn call(words: Vec<OsString>, now: SystemTime, log: &mut Log) -> Fault {
    let line = match CommandLine::parse(words) {
        Ok(line) => line,
        Err(_) => return Fault::CommandLine,
    };
    *log = line.log.clone();
    let program = env::current_exe().ok();
    let Some(node) = program.and_then(|program| Node::beside(&program, now)) else {
        return Fault::Configuration;
    };
    let words = match &line.action {
        Action::Other => Ok(line.words),
        Action::Create { id, bundle } => {
            create::create(&node, id, bundle.as_deref(), line.root.as_deref()).map(|()| line.words)
        }
        Action::Exec(exec) => exec::exec(&node, exec, &line.words, line.root.as_deref()),
        Action::Checkpoint { id } => {
            checkpoint::checkpoint(&node, id, line.root.as_deref()).map(|()| line.words)
        }
    };
    match words {
        Ok(words) => become_runtime(node.runtime(), &words),
        Err(fault) => fault,
    }
}

fn become_runtime(runtime: &Path, words: &[OsString]) -> Fault {
    Fault::Runtime(Command::new(runtime).args(words).exec().kind())
}
