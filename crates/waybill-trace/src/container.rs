//! Lives of containers, and the beginnings of processes.

use std::{fs, io};

use jiff::{SignedDuration, Timestamp};
use tonic::Code;
use waybill_proto::cri::{ContainerStatusRequest, ListContainersRequest};

use crate::{
    process::read_lossy,
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
                ContainerStatusRequest { container_id: container.id.clone(), verbose: false };
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
            });
        }
        Ok(lives)
    }
}

/// When a process was started, to a hundredth of a second, by a clock that shows `now`.
pub fn process_started(pid: u32, now: Timestamp) -> io::Result<Timestamp> {
    let stat = read_lossy(&format!("/proc/{pid}/stat"))?;
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
    fn this_process_did_not_start_in_the_future() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        // Both are told in hundredths of a second, and this process may be younger than that.
        assert!(process_started(std::process::id(), now).unwrap() <= now);
    }
}
