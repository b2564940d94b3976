//! Lives of containers, and the processes that are a container's own and of no exec session.

use std::{collections::HashMap, fs, io};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tonic::Code;
use waybill_proto::cri::{ContainerStatusRequest, ListContainersRequest};

use crate::{
    process::{LiveProcess, command, session_of},
    runtime::{Container, Runtime, RuntimeError, time},
};

/// How finely the kernel counts the start of a process for user space: `USER_HZ`, on every machine that we run on. In
/// milliseconds.
const TICK: i64 = 10;

/// One container, from its making to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerLife {
    /// The runtime's name for it.
    pub id: String,
    /// Which container of which pod it is.
    pub place: Container,
    /// Which life of the pod.
    pub pod_uid: String,
    /// When it was made.
    pub created: Timestamp,
    /// When its first process was started, if it was.
    pub started: Option<Timestamp>,
    /// When it ended, and how.
    pub ended: Option<(Timestamp, i32)>,
    /// Its first process while it runs, as the machine counts.
    pub first_pid: Option<u32>,
}

impl Runtime {
    /// The lives of the containers that are `wanted`.
    pub async fn lives(
        &self,
        wanted: impl Fn(&Container) -> bool,
    ) -> Result<Vec<ContainerLife>, RuntimeError> {
        let mut client = self.client();
        let listed = client.list_containers(ListContainersRequest::default()).await;
        let listed = listed.map_err(|source| self.asked(source))?.into_inner().containers;
        let mut lives = Vec::new();
        for container in listed {
            let place = Container::of(&container.labels);
            if !wanted(&place) {
                continue;
            }
            let request =
                ContainerStatusRequest { container_id: container.id.clone(), verbose: true };
            let answer = match client.container_status(request).await {
                Ok(answer) => answer.into_inner(),
                // It was removed meanwhile.
                Err(status) if status.code() == Code::NotFound => continue,
                Err(source) => return Err(self.asked(source)),
            };
            let status = answer.status.unwrap_or_default();
            let pod_uid = container.labels.get("io.kubernetes.pod.uid").cloned();
            lives.push(ContainerLife {
                id: container.id,
                place,
                pod_uid: pod_uid.unwrap_or_default(),
                created: time(container.created_at),
                started: (status.started_at != 0).then(|| time(status.started_at)),
                ended: (status.finished_at != 0)
                    .then(|| (time(status.finished_at), status.exit_code)),
                first_pid: answer.info.get("info").and_then(|info| first_pid(info)),
            });
        }
        Ok(lives)
    }
}

/// The first process, in what a runtime tells beside the status.
fn first_pid(info: &str) -> Option<u32> {
    #[derive(Deserialize)]
    struct Info {
        pid: Option<u32>,
    }
    serde_json::from_str::<Info>(info).ok()?.pid.filter(|pid| *pid != 0)
}

/// Every process of the machine that is in no exec session, with its cgroup.
#[derive(Clone, Debug, Default)]
pub struct OwnProcesses {
    cgroups: HashMap<u32, String>,
}

impl OwnProcesses {
    /// Asks the kernel. Needs to see `/proc` of the machine.
    pub fn read() -> io::Result<Self> {
        let mut found = Self::default();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A process may end while it is looked at.
            let Ok(None) = session_of(pid) else { continue };
            let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { continue };
            if let Some(cgroup) = cgroup_in(&text) {
                found.cgroups.insert(pid, cgroup.to_owned());
            }
        }
        Ok(found)
    }

    /// Those of a container, which are in the cgroup of its first process or below it.
    pub fn of(&self, life: &ContainerLife) -> Vec<LiveProcess> {
        let mut pids = self.pids_of(life);
        pids.sort_unstable();
        pids.into_iter().map(|pid| LiveProcess { pid, command: command(pid) }).collect()
    }

    /// The container among `lives` that a process belongs to.
    pub fn container_of<'l>(
        &self,
        pid: u32,
        lives: &'l [ContainerLife],
    ) -> Option<&'l ContainerLife> {
        lives.iter().find(|life| self.pids_of(life).contains(&pid))
    }

    fn pids_of(&self, life: &ContainerLife) -> Vec<u32> {
        let first = life.first_pid.and_then(|pid| self.cgroups.get(&pid));
        // Nobody's container is the whole machine.
        let Some(own) = first.filter(|cgroup| cgroup.as_str() != "/") else { return Vec::new() };
        let is_below = |cgroup: &str| {
            cgroup.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.cgroups.iter().filter(|(_, cgroup)| is_below(cgroup)).map(|(pid, _)| *pid).collect()
    }
}

/// The unified hierarchy is the line with number 0.
fn cgroup_in(cgroups: &str) -> Option<&str> {
    cgroups.lines().find_map(|line| line.strip_prefix("0::"))
}

/// When a process was started, to a hundredth of a second, by a clock that shows `now`.
pub fn process_started(pid: u32, now: Timestamp) -> io::Result<Timestamp> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let uptime = fs::read_to_string("/proc/uptime")?;
    started_in(&stat, &uptime, now).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the kernel tells no start of the process")
    })
}

/// `starttime` is field 22, counted since the machine was started. The name in field 2 may hold anything.
fn started_in(stat: &str, uptime: &str, now: Timestamp) -> Option<Timestamp> {
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: i64 = rest.split_whitespace().nth(19)?.parse().ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let uptime = SignedDuration::try_from_secs_f64(uptime).ok()?;
    let since_start = SignedDuration::from_millis(ticks.checked_mul(TICK)?);
    now.checked_sub(uptime).ok()?.checked_add(since_start).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(first_pid: Option<u32>) -> ContainerLife {
        ContainerLife {
            id: "c1".to_owned(),
            place: Container::default(),
            pod_uid: String::new(),
            created: Timestamp::UNIX_EPOCH,
            started: None,
            ended: None,
            first_pid,
        }
    }

    fn own(cgroups: &[(u32, &str)]) -> OwnProcesses {
        let cgroups = cgroups.iter().map(|(pid, cgroup)| (*pid, (*cgroup).to_owned()));
        OwnProcesses { cgroups: cgroups.collect() }
    }

    #[test]
    fn a_containers_own_processes_are_in_the_cgroup_of_its_first_and_below() {
        let own = own(&[
            (1, "/"),
            (10, "/pods/a/c1"),
            (11, "/pods/a/c1"),
            (12, "/pods/a/c1/below"),
            (20, "/pods/a/c11"),
            (30, "/pods/a"),
        ]);
        let lives = [life(Some(10))];
        let pids: Vec<_> = own.of(&lives[0]).iter().map(|process| process.pid).collect();
        assert_eq!(pids, [10, 11, 12]);
        assert!(own.container_of(12, &lives).is_some());
        assert!(own.container_of(20, &lives).is_none());
        assert!(own.container_of(30, &lives).is_none());
        for first in [None, Some(1), Some(99)] {
            assert!(own.of(&life(first)).is_empty(), "{first:?}");
        }
    }

    #[test]
    fn a_process_starts_when_the_kernel_says_whatever_it_calls_itself() {
        let fields = "S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 25050 0 0";
        let now = Timestamp::from_second(1_000_000).unwrap();
        for name in ["sh", "a) S 1 (b", "x y"] {
            let stat = format!("7 ({name}) {fields}");
            let found = started_in(&stat, "300.00 100.00\n", now).unwrap();
            assert_eq!(found, "1970-01-12T13:45:50.5Z".parse().unwrap(), "{name}");
        }
        assert_eq!(started_in("", "1 1", now), None);
        assert_eq!(started_in("7 (sh) S", "1 1", now), None);
    }

    #[test]
    fn this_process_started_in_the_past() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        assert!(process_started(std::process::id(), now).unwrap() < now);
        assert!(!OwnProcesses::read().unwrap().cgroups.is_empty());
    }
}
