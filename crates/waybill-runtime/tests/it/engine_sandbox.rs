//! Sandboxes and their namespaces.

use std::{collections::BTreeMap, fs, path::Path};

use oci_spec::runtime::{LinuxNamespaceBuilder, LinuxNamespaceType};
use tokio::io::AsyncReadExt;
use waybill_runtime::engine::{
    ContainerRequest, EngineError, NamespaceMode, Namespaces, SandboxRequest,
};

use crate::lab::{Lab, eventually, exec, unified};

fn request(lab: &Lab) -> SandboxRequest {
    SandboxRequest {
        hostname: Some("pod-1".to_owned()),
        network: NamespaceMode::Pod,
        pid: NamespaceMode::Container,
        ipc: NamespaceMode::Pod,
        user: None,
        sysctls: BTreeMap::from([
            ("net.ipv4.ip_unprivileged_port_start".to_owned(), "0".to_owned()),
            ("kernel.shm_rmid_forced".to_owned(), "1".to_owned()),
        ]),
        cgroup_parent: lab.cgroup.join("pod"),
    }
}

/// A container of the sandbox.
fn container(lab: &Lab, id: &str, namespaces: &Namespaces, arguments: &[&str]) -> ContainerRequest {
    let mut request = lab.container(id, arguments);
    let mut linux = request.spec.linux().clone().unwrap();
    let mut all = Vec::new();
    for kind in [LinuxNamespaceType::Mount, LinuxNamespaceType::Cgroup] {
        all.push(LinuxNamespaceBuilder::default().typ(kind).build().unwrap());
    }
    for (kind, path) in [
        (LinuxNamespaceType::Network, &namespaces.network),
        (LinuxNamespaceType::Ipc, &namespaces.ipc),
        (LinuxNamespaceType::Uts, &namespaces.uts),
    ] {
        let path = path.clone().unwrap();
        all.push(LinuxNamespaceBuilder::default().typ(kind).path(path).build().unwrap());
    }
    let mut pid = LinuxNamespaceBuilder::default().typ(LinuxNamespaceType::Pid);
    if let Some(path) = &namespaces.pid {
        pid = pid.path(path.clone());
    }
    all.push(pid.build().unwrap());
    linux.set_namespaces(Some(all));
    linux.set_cgroups_path(Some(lab.cgroup.join("pod").join(id)));
    request.spec.set_linux(Some(linux));
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_a_sandbox_share_its_namespaces() {
    let Some(lab) = Lab::open().await else { return };
    let engine = lab.engine();
    let namespaces = engine.create_sandbox("pod", &request(&lab)).await.unwrap();
    let again = engine.create_sandbox("pod", &request(&lab)).await;
    assert!(matches!(again, Err(EngineError::AlreadyExists { .. })));
    for id in ["a", "b"] {
        let sleep = container(&lab, id, &namespaces, &["/bin/sleep", "1000"]);
        engine.create(id, sleep).await.unwrap();
        engine.start(id).await.unwrap();
    }
    let look = "hostname; cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced; \
                for ns in net ipc uts; do readlink /proc/self/ns/$ns; done";
    let (a, b) = (lab.sh("a", look).await.0, lab.sh("b", look).await.0);
    assert_eq!(a, b);
    assert!(a.starts_with("pod-1\n0\n1\n"), "{a}");
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    assert!(!a.contains(own.to_str().unwrap()));
    let pids = "readlink /proc/self/ns/pid";
    assert_ne!(lab.sh("a", pids).await.0, lab.sh("b", pids).await.0);
    for id in ["a", "b"] {
        lab.kill_and_delete(id).await;
    }
    engine.remove_sandbox("pod").await.unwrap();
    engine.remove_sandbox("pod").await.unwrap();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_the_sandbox_is_reached_and_others_refuse() {
    let Some(lab) = Lab::open().await else { return };
    let engine = lab.engine();
    let namespaces = engine.create_sandbox("pod", &request(&lab)).await.unwrap();
    let serve = ["/bin/nc", "-ll", "-p", "8080", "-e", "/bin/echo", "hello"];
    engine.create("web", container(&lab, "web", &namespaces, &serve)).await.unwrap();
    engine.start("web").await.unwrap();
    let mut text = String::new();
    for _ in 0..200 {
        if let Ok(mut stream) = engine.dial("pod", 8080).await {
            stream.read_to_string(&mut text).await.unwrap();
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(text, "hello\n");
    assert!(matches!(engine.dial("pod", 9).await, Err(EngineError::Dial { .. })));
    assert!(matches!(engine.dial("none", 9).await, Err(EngineError::NotFound { .. })));
    lab.kill_and_delete("web").await;
    engine.remove_sandbox("pod").await.unwrap();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_pid_namespace_has_a_holder_that_is_no_way_out() {
    let Some(lab) = Lab::open().await else { return };
    let engine = lab.engine();
    let asked = SandboxRequest { pid: NamespaceMode::Pod, ..request(&lab) };
    let namespaces = engine.create_sandbox("pod", &asked).await.unwrap();
    for id in ["a", "b"] {
        let sleep = container(&lab, id, &namespaces, &["/bin/sleep", "1000"]);
        engine.create(id, sleep).await.unwrap();
        engine.start(id).await.unwrap();
    }
    let (processes, _) = lab.sh("a", "ps -o comm").await;
    assert!(processes.contains("waybill-holder"), "{processes}");
    assert_eq!(processes.matches("sleep").count(), 2, "{processes}");
    let (root, exit) = lab.sh("a", "ls /proc/1/root /proc/1/exe 2>&1").await;
    assert_ne!(exit.code, 0, "{root}");
    let (status, _) = lab.sh("a", "grep -E 'Uid|CapEff|NoNewPrivs' /proc/1/status").await;
    assert!(
        status.contains("Uid:\t65534") && status.contains("CapEff:\t0000000000000000"),
        "{status}"
    );
    // An orphan goes to the holder, which reaps it.
    lab.sh("a", "(sleep 0.01 &) ; exit 0").await;
    // A container that ends takes its own processes along, and only those.
    let script = "sleep 1000 & setsid sleep 1000 & exit 0";
    let leaves = container(&lab, "c", &namespaces, &["/bin/sh", "-c", script]);
    engine.create("c", leaves).await.unwrap();
    engine.start("c").await.unwrap();
    engine.wait("c").await.unwrap();
    assert_eq!(lab.sh("b", "ps -o comm").await.0.matches("sleep").count(), 2);
    engine.delete("c").await.unwrap();
    for id in ["a", "b"] {
        lab.kill_and_delete(id).await;
    }
    engine.remove_sandbox("pod").await.unwrap();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_cannot_be_made_leaves_nothing() {
    let Some(lab) = Lab::open().await else { return };
    let engine = lab.engine();
    let with = |name: &str, value: &str| SandboxRequest {
        sysctls: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        pid: NamespaceMode::Pod,
        ..request(&lab)
    };
    let refused = engine.create_sandbox("pod", &with("vm.swappiness", "1")).await;
    assert!(matches!(refused, Err(EngineError::Invalid { .. })));
    let shared = SandboxRequest { network: NamespaceMode::Node, ..request(&lab) };
    assert!(matches!(
        engine.create_sandbox("pod", &shared).await,
        Err(EngineError::Invalid { .. })
    ));
    let failed = engine.create_sandbox("pod", &with("net.no_such_thing", "1")).await;
    assert!(failed.is_err());
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_survives_the_runtime() {
    let Some(mut lab) = Lab::open().await else { return };
    let asked = SandboxRequest { pid: NamespaceMode::Pod, ..request(&lab) };
    let namespaces = lab.engine().create_sandbox("pod", &asked).await.unwrap();
    lab.stop_runtime();
    lab.start_runtime().await;
    let sleep = container(&lab, "a", &namespaces, &["/bin/sleep", "1000"]);
    lab.engine().create("a", sleep).await.unwrap();
    lab.engine().start("a").await.unwrap();
    assert_eq!(lab.exec("a", exec(&["hostname"])).await.0, "pod-1\n");
    lab.kill_and_delete("a").await;
    lab.engine().remove_sandbox("pod").await.unwrap();
    assert!(!Path::new(&namespaces.network.unwrap()).exists());
    lab.close().await;
}

/// A runtime that is killed in the middle of removing a container leaves its cgroups in some hierarchies. The sandbox above it was
/// then taken for removed as soon as it was gone from the first of them, and stayed in the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_above_a_container_that_is_half_removed_leaves_no_cgroup() {
    let Some(lab) = Lab::open().await else { return };
    let mut parent = request(&lab);
    parent.cgroup_parent = lab.cgroup.clone();
    lab.engine().create_sandbox("pod", &parent).await.unwrap();
    lab.engine().create("box", lab.container("box", &["/bin/true"])).await.unwrap();
    lab.engine().start("box").await.unwrap();
    lab.engine().wait("box").await.unwrap();
    let first = unified().join(lab.cgroup.strip_prefix("/").unwrap()).join("box");
    for below in ["processes", "sessions", ""] {
        let removed = || fs::remove_dir(first.join(below)).is_ok();
        eventually("the kernel lets go of it", removed).await;
    }
    lab.engine().remove_sandbox("pod").await.unwrap();
    lab.engine().delete("box").await.unwrap();
    lab.engine().remove_sandbox("pod").await.unwrap();
    lab.close().await;
}
