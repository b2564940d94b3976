//! Debug containers as sessions: who added one to a pod is behind its processes. Pure, as the other join.

use std::collections::BTreeMap;

use crate::{
    audit::{Asked, Request},
    container::ContainerLife,
    join::{End, Trace, TraceKind, who},
    process::LiveProcess,
    runtime::Container,
};

/// Whether `place` is a container that somebody added to a pod.
pub fn is_debug_container(requests: &BTreeMap<String, Request>, place: &Container) -> bool {
    added(requests).any(|(request, name)| {
        request.namespace == place.namespace && request.pod == place.pod && *name == place.name
    })
}

/// One trace for each container that was added, in no order. `processes` tells what runs in a container.
pub fn join_debug(
    requests: &BTreeMap<String, Request>,
    lives: &[ContainerLife],
    processes: impl Fn(&ContainerLife) -> Vec<LiveProcess>,
) -> Vec<Trace> {
    added(requests)
        .map(|(request, name)| {
            let life = lives.iter().find(|life| is_life_of(requests, life, request, name));
            traced(request, name, life, life.map(&processes).unwrap_or_default())
        })
        .collect()
}

/// Every name that was added, with the request that did.
fn added(requests: &BTreeMap<String, Request>) -> impl Iterator<Item = (&Request, &String)> {
    requests.values().filter(|request| request.began).flat_map(|request| {
        let names: &[String] = match &request.asked {
            Asked::Debug { containers } => containers,
            Asked::Exec | Asked::Attach { .. } => &[],
        };
        names.iter().map(move |name| (request, name))
    })
}

/// In one life of a pod a name is added once. Where the log does not say which life it was, the last
/// request before the container was made is the one.
fn is_life_of(
    requests: &BTreeMap<String, Request>,
    life: &ContainerLife,
    request: &Request,
    name: &str,
) -> bool {
    let fits = |request: &Request, name: &str| {
        let place = &life.place;
        let same = (&request.namespace, &request.pod) == (&place.namespace, &place.pod);
        same && place.name == name
            && (request.pod_uid.is_empty() || request.pod_uid == life.pod_uid)
    };
    if !fits(request, name) || request.received > life.created {
        return false;
    }
    let later = |(other, its_name): (&Request, &String)| {
        fits(other, its_name) && other.received > request.received && other.received <= life.created
    };
    !added(requests).any(later)
}

fn traced(
    request: &Request,
    name: &str,
    life: Option<&ContainerLife>,
    processes: Vec<LiveProcess>,
) -> Trace {
    let end = match life {
        Some(ContainerLife { ended: Some((at, code)), .. }) => End::Exited { at: *at, code: *code },
        Some(ContainerLife { started: Some(_), .. }) => End::Running,
        _ => End::Unknown,
    };
    let mut trace = Trace {
        kind: TraceKind::Debug,
        audit_id: Some(request.audit_id.clone()),
        session: life.map(|life| life.id.clone()),
        caller: None,
        namespace: String::new(),
        pod: String::new(),
        container: name.to_owned(),
        container_id: life.map(|life| life.id.clone()),
        stdin: None,
        command: Vec::new(),
        variables: Vec::new(),
        started: life.and_then(|life| life.started).unwrap_or(request.received),
        end,
        processes,
        privileged: false,
        process: None,
        moved: Vec::new(),
    };
    who(&mut trace, request);
    trace
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::audit::Caller;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn request(id: &str, user: &str, uid: &str, received: i64) -> (String, Request) {
        let request = Request {
            audit_id: id.to_owned(),
            asked: Asked::Debug { containers: vec!["dbg".to_owned()] },
            verb: "patch".to_owned(),
            user_agent: String::new(),
            caller: Caller {
                user: user.to_owned(),
                uid: String::new(),
                impersonator: None,
                groups: Vec::new(),
                source: Vec::new(),
            },
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            pod_uid: uid.to_owned(),
            container: String::new(),
            command: Vec::new(),
            variables: Vec::new(),
            received: time(received),
            began: true,
            ended: Some(time(received)),
            refusal: None,
            sessions: Vec::new(),
        };
        (id.to_owned(), request)
    }

    fn life(uid: &str, created: i64) -> ContainerLife {
        ContainerLife {
            id: format!("c-{uid}"),
            place: Container {
                namespace: "shop".to_owned(),
                pod: "web".to_owned(),
                name: "dbg".to_owned(),
            },
            pod_uid: uid.to_owned(),
            created: time(created),
            started: Some(time(created + 1)),
            ended: None,
        }
    }

    fn joined(requests: &BTreeMap<String, Request>, lives: &[ContainerLife]) -> Vec<Trace> {
        let run = |_: &ContainerLife| vec![LiveProcess { pid: 7, command: vec!["sh".to_owned()] }];
        join_debug(requests, lives, run)
    }

    fn user_of<'t>(traces: &'t [Trace], container: &str) -> Option<&'t str> {
        let found = traces.iter().find(|trace| trace.container_id.as_deref() == Some(container));
        found.and_then(Trace::user)
    }

    #[test]
    fn who_added_a_container_is_behind_its_processes() {
        let requests = BTreeMap::from([request("a", "anna", "u1", 1)]);
        let traces = joined(&requests, &[life("u1", 2)]);
        assert_eq!(traces.len(), 1);
        assert_eq!((traces[0].kind, traces[0].user()), (TraceKind::Debug, Some("anna")));
        assert_eq!((traces[0].end, traces[0].started), (End::Running, time(3)));
        assert_eq!(traces[0].processes[0].pid, 7);
        assert!(is_debug_container(&requests, &life("u1", 2).place));
    }

    /// A pod of the same name, with a container of the same name, of somebody else.
    #[test]
    fn lives_of_a_pod_are_told_apart() {
        let requests =
            BTreeMap::from([request("a", "anna", "u1", 1), request("b", "ben", "u2", 10)]);
        let traces = joined(&requests, &[life("u1", 2), life("u2", 11)]);
        assert_eq!(user_of(&traces, "c-u1"), Some("anna"));
        assert_eq!(user_of(&traces, "c-u2"), Some("ben"));
        // Without the life in the log, by time.
        let requests = BTreeMap::from([request("a", "anna", "", 1), request("b", "ben", "", 10)]);
        let traces = joined(&requests, &[life("u1", 2), life("u2", 11)]);
        assert_eq!(user_of(&traces, "c-u1"), Some("anna"));
        assert_eq!(user_of(&traces, "c-u2"), Some("ben"));
    }

    /// Whoever asked after the container was there did not make it, nor who was refused.
    #[test]
    fn nobody_is_named_who_did_not_add_it() {
        let (id, mut refused) = request("a", "anna", "u1", 1);
        refused.began = false;
        let requests = BTreeMap::from([(id, refused), request("b", "ben", "u1", 5)]);
        let traces = joined(&requests, &[life("u1", 2)]);
        assert_eq!(user_of(&traces, "c-u1"), None);
        assert_eq!(traces.len(), 1, "{traces:#?}");
        assert_eq!((traces[0].user(), traces[0].end), (Some("ben"), End::Unknown));
    }
}
