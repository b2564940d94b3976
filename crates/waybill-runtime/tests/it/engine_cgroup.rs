//! Attacks on cgroups from inside a container that nothing but their layout stops: no seccomp profile, and user
//! namespaces for everybody. Whoever has one may mount cgroup file systems.

use std::fs;

use oci_spec::runtime::{
    Capability, LinuxCpuBuilder, LinuxMemoryBuilder, LinuxPidsBuilder, LinuxResources,
    LinuxResourcesBuilder,
};
use waybill_runtime::engine::SeccompProfile;
use waybill_testkit::hostile::hostile;

use crate::lab::{Lab, eventually, exec};

/// The first process runs what it is told, as it would with code that somebody injected into it.
const PUPPET: &str = "while :; do if test -e /order; then \
    /bin/hostile $(cat /order) >/answer 2>&1; rm /order; fi; sleep 0.02; done";

/// A container whose first process carries out attacks, and the root of its files.
async fn puppet(resources: Option<LinuxResources>) -> Option<Lab> {
    let lab = Lab::open().await?;
    fs::copy(hostile(), lab.rootfs.join("bin/hostile")).unwrap();
    let mut request = lab.container("box", &["/bin/sh", "-c", PUPPET]);
    request.seccomp = SeccompProfile::Unconfined;
    let mut linux = request.spec.linux().clone().unwrap();
    linux.set_resources(resources);
    request.spec.set_linux(Some(linux));
    // As Kubernetes gives it by default; without it the kernel maps no root into a user namespace.
    let mut process = request.spec.process().clone().unwrap();
    let mut capabilities = process.capabilities().clone().unwrap();
    let mut more = capabilities.permitted().clone().unwrap();
    more.insert(Capability::Setfcap);
    capabilities
        .set_bounding(Some(more.clone()))
        .set_effective(Some(more.clone()))
        .set_permitted(Some(more));
    process.set_capabilities(Some(capabilities));
    request.spec.set_process(Some(process));
    lab.engine().create("box", request).await.unwrap();
    lab.engine().start("box").await.unwrap();
    Some(lab)
}

/// Has the first process attack; what it said.
async fn by_first_process(lab: &Lab, attack: &str) -> String {
    fs::write(lab.rootfs.join("order.new"), attack).unwrap();
    fs::rename(lab.rootfs.join("order.new"), lab.rootfs.join("order")).unwrap();
    eventually("the attack is over", || !lab.rootfs.join("order").exists()).await;
    fs::read_to_string(lab.rootfs.join("answer")).unwrap()
}

async fn close(lab: Lab) {
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// Attribution could be turned on somebody else: their session's cgroup lay below what the container can mount.
#[tokio::test(flavor = "multi_thread")]
async fn a_cgroup_file_system_mounted_again_shows_no_session() {
    let Some(lab) = puppet(None).await else { return };
    let victim = lab.engine().exec("box", exec(&["/bin/sleep", "1000"])).await.unwrap();
    let word = victim.process.id();
    let seen = by_first_process(&lab, "cgroups-see").await;
    assert_eq!(seen, "cgroups-see: no other cgroup is below\n");
    let entered = by_first_process(&lab, &format!("cgroups-enter {word}")).await;
    assert!(entered.contains("no cgroup is called"), "{entered}");
    let (seen, exit) = lab.exec("box", exec(&["/bin/hostile", "cgroups-see"])).await;
    assert_eq!((seen.as_str(), exit.code), ("cgroups-see: no other cgroup is below\n", 1));
    let (entered, exit) = lab.exec("box", exec(&["/bin/hostile", "cgroups-enter", word])).await;
    assert_eq!(exit.code, 1, "{entered}");
    victim.kill().await.unwrap();
    close(lab).await;
}

/// On cgroup v1 a container could lift its own limits, and on v2 too where that is mounted again.
#[tokio::test(flavor = "multi_thread")]
async fn limits_stand_above_what_a_container_can_mount() {
    let resources = LinuxResourcesBuilder::default()
        .memory(LinuxMemoryBuilder::default().limit(64 << 20).build().unwrap())
        .pids(LinuxPidsBuilder::default().limit(50).build().unwrap())
        .cpu(LinuxCpuBuilder::default().quota(50_000).period(100_000_u64).build().unwrap())
        .build()
        .unwrap();
    let Some(lab) = puppet(Some(resources)).await else { return };
    let limits = async || {
        let stats = lab.engine().stats("box").await.unwrap();
        (stats.memory.limit, stats.pids_limit)
    };
    let before = limits().await;
    assert_eq!(before, (Some(64 << 20), Some(50)));
    // What it reads of itself is true.
    let read = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max; \
                cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max; \
                cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us; cat /sys/fs/cgroup/cpu.max";
    let (told, _) = lab.sh("box", &format!("{{ {read}; }} 2>/dev/null")).await;
    let told: Vec<&str> = told.split_whitespace().collect();
    assert_eq!(told[..3], ["67108864", "50", "50000"]);

    let lifted = by_first_process(&lab, "cgroups-lift").await;
    assert!(lifted.contains("memory") && lifted.contains("pids"), "its own copies: {lifted}");
    lab.exec("box", exec(&["/bin/hostile", "cgroups-lift"])).await;
    assert_eq!(limits().await, before);
    let (text, _) = lab.sh("box", "for i in $(seq 70); do sleep 1 & done 2>&1; wait").await;
    assert!(text.contains("can't fork"), "{text}");
    close(lab).await;
}
