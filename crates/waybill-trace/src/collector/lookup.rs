//! What `/proc` tells of a process that runs, as the event that its start would have been. For sources that only name processes.

use std::fs;

use crate::{
    kernel::{ExecEvent, ParentProcess},
    process::{CgroupIds, TICKS_PER_SECOND, parse_namespace, parse_stat, read_lossy, unified_path},
};

/// So much of a command line is read.
const COMMAND_LINE: usize = 4096;

/// How many processes above the parent are told.
const ANCESTORS: usize = 6;

/// One process; nothing if it is gone, or in no cgroup that is called as one of a container or session.
pub(crate) enum LookedUp {
    Found(Box<ExecEvent>),
    /// It runs, and is nothing of ours.
    Elsewhere,
    Gone,
}

/// Looks a process up; `time` is when it was told of, in nanoseconds after boot.
pub(crate) fn look_up(pid: u32, time: u64, cgroups: &mut CgroupIds) -> LookedUp {
    let Ok(cgroup) = read_lossy(&format!("/proc/{pid}/cgroup")) else { return LookedUp::Gone };
    let Some(path) = unified_path(&cgroup) else { return LookedUp::Gone };
    if !is_of_container(path) {
        return LookedUp::Elsewhere;
    }
    let path = path.to_owned();
    read(pid, time, &path, cgroups).map_or(LookedUp::Gone, |it| LookedUp::Found(Box::new(it)))
}

/// As our program in the kernel judges names.
fn is_of_container(path: &str) -> bool {
    let mut names = path.split('/');
    names.any(|name| ["sessions", "processes"].contains(&name) || name.starts_with("waybill-"))
}

fn read(pid: u32, time: u64, path: &str, cgroups: &mut CgroupIds) -> Option<ExecEvent> {
    let (parent, began) = parse_stat(&read_lossy(&format!("/proc/{pid}/stat")).ok()?)?;
    let status = read_lossy(&format!("/proc/{pid}/status")).ok()?;
    let mut arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let is_cut = arguments.len() > COMMAND_LINE;
    arguments.truncate(COMMAND_LINE);
    let file = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let mut above = Vec::new();
    let mut next = parent;
    while above.len() < ANCESTORS && next > 1 {
        next = read_lossy(&format!("/proc/{next}/stat"))
            .ok()
            .and_then(|it| parse_stat(&it))
            .map_or(0, |it| it.0);
        above.push(next);
    }
    above.retain(|pid| *pid > 1);
    Some(ExecEvent {
        time,
        pid,
        began: nanoseconds(began),
        uid: number_after(&status, "Uid:").and_then(|text| text.parse().ok())?,
        cgroups: cgroups.above(path),
        pid_namespace: namespace(pid),
        inner_pid: inner_pid(&status),
        parent: read_parent(parent, cgroups),
        above,
        program: file.into_os_string().into_encoded_bytes(),
        arguments,
        is_cut,
    })
}

fn read_parent(pid: u32, cgroups: &mut CgroupIds) -> ParentProcess {
    let read = |name: &str| read_lossy(&format!("/proc/{pid}/{name}")).unwrap_or_default();
    let began = parse_stat(&read("stat")).map_or(0, |(_, began)| nanoseconds(began));
    let path = read("cgroup");
    let cgroup = unified_path(&path).and_then(|path| cgroups.above(path).first().copied());
    ParentProcess {
        pid,
        began,
        cgroup: cgroup.unwrap_or(0),
        pid_namespace: namespace(pid),
        inner_pid: inner_pid(&read("status")),
    }
}

/// `/proc` counts in ticks, and rounds down: the end of the tick, so that nothing looks older than it is.
fn nanoseconds(ticks: u64) -> u64 {
    ticks.saturating_add(1).saturating_mul(1_000_000_000 / TICKS_PER_SECOND)
}

fn namespace(pid: u32) -> u32 {
    let link = fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let number = link.and_then(|link| parse_namespace(link.to_str()?));
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

/// The PID namespace of the machine.
pub(crate) fn machine_namespace() -> u32 {
    namespace(1)
}

/// The PID namespace of a container's first process.
pub(crate) fn namespace_of(pid: i32) -> u32 {
    u32::try_from(pid).map_or(0, namespace)
}

fn inner_pid(status: &str) -> u32 {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let last = numbers.and_then(|numbers| numbers.split_whitespace().next_back());
    last.and_then(|last| last.parse().ok()).unwrap_or(0)
}

fn number_after<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()
}
