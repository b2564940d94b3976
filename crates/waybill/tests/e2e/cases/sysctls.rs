//! Kernel settings that pods ask for and do not get.

use waybill_testkit::stack::{IMAGE, Stack};

use super::{ended, gone, pod};

fn with_sysctl(name: &str, sysctl: &str, value: &str) -> String {
    pod(
        name,
        &format!(
            "  securityContext: {{sysctls: [{{name: {sysctl}, value: {value:?}}}]}}
  containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600']}}]
"
        ),
    )
}

/// Events say which setting it was.
pub(super) fn sysctls(stack: &Stack) {
    let kubectl = stack.kubectl();
    kubectl.apply(&with_sysctl("sysctl-unsafe", "net.core.somaxconn", "1024")).succeeds();
    ended(stack, "sysctl-unsafe", "Failed");
    let status = "get pod sysctl-unsafe -o jsonpath={.status.reason}:{.status.message}";
    let told = "forbidden sysctl: \"net.core.somaxconn\" not allowlisted";
    kubectl.line(status).prints(&format!("SysctlForbidden:Pod was rejected: {told}"));
    let events = |pod: &str| {
        format!(
            "get events --no-headers --field-selector=involvedObject.name={pod} \
             -o custom-columns=:.type,:.reason,:.message"
        )
    };
    kubectl.eventually_shows(&events("sysctl-unsafe"), &format!("Warning SysctlForbidden {told}"));
    gone(stack, "sysctl-unsafe");

    // runc names the file.
    let setting = "tcp_keepalive_time";
    kubectl.apply(&with_sysctl("sysctl-wrong", &format!("net.ipv4.{setting}"), "many")).succeeds();
    kubectl.eventually_shows(&events("sysctl-wrong"), "FailedCreatePodSandBox");
    kubectl.eventually_shows(&events("sysctl-wrong"), setting);
    gone(stack, "sysctl-wrong");
}
