//! CVE-2020-15257: nothing of ours listens on an abstract socket, which containers on the machine's network could connect to. The
//! control is such a socket of the test's own.

use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixListener},
};

use waybill_proto::cri::{ContainerConfig, Mount, NamespaceMode};
use waybill_testkit::hostile::hostile;

use crate::cri_lab::{CriLab, container, sleeper};

fn with_attacks(config: ContainerConfig) -> ContainerConfig {
    let program = Mount {
        host_path: hostile().display().to_string(),
        container_path: "/bin/hostile".into(),
        readonly: true,
        ..Mount::default()
    };
    ContainerConfig { mounts: vec![program], ..config }
}

/// How the attack ends as a first process and as a session, in a pod with that network.
async fn attempt(lab: &CriLab, network: NamespaceMode, word: &str) -> [i32; 2] {
    let mut config = lab.sandbox_config("network");
    let linux = config.linux.as_mut().unwrap();
    let options = linux.security_context.as_mut().unwrap().namespace_options.as_mut().unwrap();
    options.network = network.into();
    let sandbox = lab.run_sandbox(config).await;
    let attack = ["/bin/hostile", "abstract-sockets", word];
    let first = lab.create(&sandbox, with_attacks(container("first", &attack))).await;
    lab.start_container(&first).await;
    let first = lab.ended(&first).await.exit_code;
    let id = lab.create(&sandbox, with_attacks(sleeper("box"))).await;
    lab.start_container(&id).await;
    let session = lab.exec(&id, &attack).await.exit_code;
    lab.remove(&sandbox).await;
    [first, session]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_socket_of_ours_is_open_to_the_machines_network() {
    let Some(lab) = CriLab::open().await else { return };
    // Sockets of runtime, spawner and monitors would have their directory in their names, or ours.
    let run = lab.path("run").display().to_string();
    for word in [run.as_str(), "waybill", "monitor", "spawner"] {
        assert_eq!(attempt(&lab, NamespaceMode::Node, word).await, [1, 1], "{word}");
    }
    let word = format!("shim-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(format!("{run}/{word}.sock")).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    assert_eq!(attempt(&lab, NamespaceMode::Node, &word).await, [0, 0]);
    assert_eq!(attempt(&lab, NamespaceMode::Pod, &word).await, [1, 1]);
    lab.close().await;
}
