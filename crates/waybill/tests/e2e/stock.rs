//! Stock containerd of Debian with the runtime handler that the agent's planner writes.

use std::{fs, path::Path};

use waybill_stock::agent::setup::{Host, NodeRuntime, WRAPPER, Wanted, plan};
use waybill_testkit::{containerd::Containerd, stack::IMAGE};

use crate::{image, roles::Roles};

const POD: &str = "handled";

/// containerd 1.6 reads what the planner wrote, keeps its own runtime beside it, and starts pods of the class through the
/// program that the handler names. A program that notes its calls stands for the wrapper.
#[test]
fn pods_of_the_runtime_class_are_made_by_the_wrapper_and_others_are_not() {
    let Some(roles) = Roles::start_on_other_containerd(start) else { return };
    let kubectl = roles.kubectl();
    kubectl
        .apply("{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: waybill}, handler: waybill}")
        .succeeds();
    for (name, class) in [(POD, "runtimeClassName: waybill, "), ("plain", "")] {
        let pod = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{class}containers: [{{name: main, image: \
             {IMAGE}, imagePullPolicy: Never, command: [sleep, '3600']}}]}}}}"
        );
        kubectl.apply(&pod).succeeds();
        kubectl.wait_until_ready(name);
    }
    let said = kubectl.line(&format!("exec {POD} -- echo hello"));
    assert_eq!(said.succeeds().stdout.trim(), "hello");
    kubectl.line("exec plain -- echo hello").succeeds();
    let calls = fs::read_to_string(roles.runtime_dir().join("host/calls")).unwrap();
    let of = |verb: &str| calls.lines().filter(|line| line.split(' ').any(|it| it == verb)).count();
    // The sandbox and the container; one session.
    assert_eq!((of("create"), of("exec")), (2, 1), "{calls}");
    roles.stop();
}

/// A containerd whose configuration went through the planner, on a folder that is the node's root.
fn start(pause: &str) -> Option<Containerd> {
    let containerd = Containerd::start_configured(pause, |directory, runc, configuration| {
        let host = Host::new(directory.join("host"));
        let runc = runc.display().to_string();
        let options = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]";
        let configuration = format!(
            "{configuration}{}\nruntime_type = \"io.containerd.runc.v2\"\n{options}\nBinaryName = \"{runc}\"\n",
            options.replace(".options", "")
        );
        let main = "/etc/containerd/config.toml";
        host.replace(main, configuration.as_bytes(), 0o644).unwrap();
        host.replace(&runc, b"", 0o755).unwrap();
        let runtime = NodeRuntime::parse("containerd://1.6.20", "v1.34.0").unwrap();
        let planned = plan(&runtime, Wanted::Installed, &host).unwrap();
        assert_eq!(planned.real_runtime, runc);
        let calls = host.path("/calls");
        let wrapper =
            format!("#!/bin/sh\necho \"$*\" >> {}\nexec {runc} \"$@\"\n", calls.display());
        host.install(&planned, wrapper.as_bytes(), "{}").unwrap();
        in_place(&fs::read_to_string(host.path(main)).unwrap(), &host.path(WRAPPER))
    })?;
    containerd.import(&image(fs::read("/bin/busybox").ok()?));
    Some(containerd)
}

/// The node's root is a folder here, and containerd's is not.
fn in_place(configuration: &str, wrapper: &Path) -> String {
    configuration.replace(WRAPPER, &wrapper.display().to_string())
}
