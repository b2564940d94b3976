//! Which of a container's lives the log is wanted of, and why there may be none yet. The texts are a
//! kubelet's, which users know and search for.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus};
use waybill_proto::cri;

use crate::{pod::Pod, server::answer::Refusal};

/// The id of the container to read, of `all` that there are of the name, newest first.
pub(super) fn choose<'a>(
    all: &'a [cri::Container],
    pod: &Pod,
    name: &str,
    previous: bool,
) -> Result<&'a str, Refusal> {
    let waiting = waiting_reason(pod, name);
    let found = if previous {
        previous_of(all, waiting.is_some())
    } else {
        all.iter().find(|container| has_started(container))
    };
    match found {
        Some(container) => Ok(&container.id),
        None => Err(Refusal::BadRequest(why_none(pod.name(), name, previous, waiting))),
    }
}

/// One that waits to be started again has its last end as its previous one, as its status says.
fn previous_of(all: &[cri::Container], waiting: bool) -> Option<&cri::Container> {
    let newest = all.first()?;
    let skipped = usize::from(!(waiting && is_exited(newest)));
    all.iter().skip(skipped).find(|container| is_exited(container))
}

fn why_none(pod: &str, name: &str, previous: bool, waiting: Option<&str>) -> String {
    if previous {
        return format!("previous terminated container {name:?} in pod {pod:?} not found");
    }
    let what = match waiting {
        Some("ErrImagePull") => "image can't be pulled",
        Some("ImagePullBackOff") => "trying and failing to pull image",
        Some(reason) => reason,
        None => "ContainerCreating",
    };
    format!("container {name:?} in pod {pod:?} is waiting to start: {what}")
}

fn waiting_reason<'p>(pod: &'p Pod, name: &str) -> Option<&'p str> {
    let status = pod.object().status.as_ref()?;
    let all = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let own = |status: &&ContainerStatus| status.name == name;
    let status = all.into_iter().flatten().flatten().find(own)?;
    match &status.state {
        Some(ContainerState { waiting: Some(waiting), .. }) => waiting.reason.as_deref(),
        _ => None,
    }
}

fn has_started(container: &cri::Container) -> bool {
    container.state != i32::from(cri::ContainerState::ContainerCreated)
}

fn is_exited(container: &cri::Container) -> bool {
    container.state == i32::from(cri::ContainerState::ContainerExited)
}

#[cfg(test)]
mod tests {
    use cri::ContainerState::{ContainerCreated, ContainerExited, ContainerRunning};
    use serde_json::json;

    use super::*;
    use crate::pod::PodOrigin;

    fn pod(waiting: Option<&str>) -> Pod {
        let state = match waiting {
            Some(reason) => json!({ "waiting": { "reason": reason } }),
            None => json!({}),
        };
        let object = json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "u-1" },
            "spec": { "containers": [{ "name": "main", "image": "i" }] },
            "status": { "containerStatuses": [{
                "name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": state,
            }] },
        });
        Pod::from_value(object, PodOrigin::ApiServer).unwrap()
    }

    fn containers(states: &[cri::ContainerState]) -> Vec<cri::Container> {
        let container = |(index, state): (usize, &cri::ContainerState)| cri::Container {
            id: index.to_string(),
            state: i32::from(*state),
            ..cri::Container::default()
        };
        states.iter().enumerate().map(container).collect()
    }

    #[track_caller]
    fn check(
        states: &[cri::ContainerState],
        previous: bool,
        waiting: Option<&str>,
        expected: Result<&str, &str>,
    ) {
        let all = containers(states);
        let found = choose(&all, &pod(waiting), "main", previous);
        let found = found.map_err(|refusal| refusal.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{states:?}");
    }

    #[test]
    fn the_newest_that_has_started_is_read() {
        check(&[ContainerRunning, ContainerExited], false, None, Ok("0"));
        check(&[ContainerExited], false, Some("CrashLoopBackOff"), Ok("0"));
        check(&[ContainerCreated, ContainerExited], false, None, Ok("1"));
    }

    #[test]
    fn the_previous_one_is_the_last_that_ended() {
        check(&[ContainerRunning, ContainerExited], true, None, Ok("1"));
        check(&[ContainerExited, ContainerExited], true, None, Ok("1"));
        check(&[ContainerExited, ContainerExited], true, Some("CrashLoopBackOff"), Ok("0"));
        let none = "previous terminated container \"main\" in pod \"web\" not found";
        check(&[ContainerRunning], true, None, Err(none));
        check(&[ContainerExited], true, None, Err(none));
        check(&[], true, None, Err(none));
    }

    #[test]
    fn one_that_waits_says_for_what() {
        #[track_caller]
        fn waits(waiting: Option<&str>, what: &str) {
            let text = format!("container \"main\" in pod \"web\" is waiting to start: {what}");
            check(&[ContainerCreated], false, waiting, Err(&text));
        }
        waits(None, "ContainerCreating");
        waits(Some("PodInitializing"), "PodInitializing");
        waits(Some("ErrImagePull"), "image can't be pulled");
        waits(Some("ImagePullBackOff"), "trying and failing to pull image");
    }
}
