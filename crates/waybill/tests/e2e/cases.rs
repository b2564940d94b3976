//! The cases of the suite. Each uses objects of its own, named after itself.

mod environment;
mod files;
mod lives;
mod managers;
mod names;
mod sessions;
mod shapes;
mod sysctls;
mod verbs;
mod volume_files;
mod volumes;

use waybill_testkit::stack::{IMAGE, Stack};

/// What a case is called, and what it checks.
pub(crate) type Case = (&'static str, fn(&Stack));

/// The slow ones first.
pub(crate) const ALL: &[Case] = &[
    ("restart policies", lives::restart_policies),
    ("crash loops back off", lives::crash_loops_back_off),
    ("probes", lives::probes),
    ("probes of ports", lives::probes_of_ports),
    ("hooks", lives::hooks),
    ("deletion", lives::deletion),
    ("init containers and sidecars", shapes::init_containers_and_sidecars),
    ("images that are not there", shapes::images_that_are_not_there),
    ("ephemeral containers", shapes::ephemeral_containers),
    ("users and groups", shapes::users_and_groups),
    ("sysctls", sysctls::sysctls),
    ("every volume", volumes::every_volume),
    ("sub-paths", volumes::sub_paths),
    ("a sub-path that leads nowhere", volume_files::a_sub_path_that_leads_nowhere),
    ("scripts in volumes", volume_files::scripts_in_volumes),
    ("every source of variables", environment::every_source),
    ("env files", environment::env_files),
    ("consumers of env files", files::consumers),
    ("an ephemeral consumer of env files", files::ephemeral_consumer),
    ("env files of bytes", files::bytes_that_are_no_text),
    ("each start reads env files anew", files::each_start_reads_anew),
    ("references to env files that the server refuses", files::refused_by_the_server),
    ("env files that fail", files::failures),
    ("hostile env files", files::hostile_files),
    ("every name of a variable", names::every_name),
    ("hostile names", names::hostile_names),
    ("strict names", names::strict_names),
    ("a missing source", environment::a_missing_source),
    ("apply, get, describe", sessions::apply_get_describe),
    ("server-side apply", managers::server_side_apply),
    ("logs", sessions::logs),
    ("exec", sessions::exec),
    ("exec on a terminal", sessions::exec_on_a_terminal),
    ("attach", sessions::attach),
    ("cp", sessions::cp),
    ("port-forward", sessions::port_forward),
    ("our own verbs", verbs::our_own_verbs),
    ("a plugin of kubectl", verbs::a_plugin_of_kubectl),
    ("where variables came from", verbs::where_variables_came_from),
];

/// A pod that a second is enough for to end. `spec` is YAML, two blanks deep.
fn pod(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{case: {name}}}}}
spec:
  terminationGracePeriodSeconds: 1
{spec}"
    )
}

/// One container that runs a line of shell.
fn shell(name: &str, script: &str) -> String {
    let container = format!(
        "  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, {script:?}]
"
    );
    pod(name, &container)
}

/// Applies a pod and waits until it is ready.
#[track_caller]
fn start(stack: &Stack, name: &str, manifest: &str) {
    stack.kubectl().apply(manifest).succeeds();
    ready(stack, name);
}

#[track_caller]
fn ready(stack: &Stack, name: &str) {
    stack.kubectl().wait_until_ready(name);
}

/// Waits until a pod has ended in `phase`.
#[track_caller]
fn ended(stack: &Stack, name: &str, phase: &str) {
    stack.kubectl().eventually(&format!("get pod {name} -o jsonpath={{.status.phase}}"), phase);
}

/// Deletes a pod, and waits until it is gone.
#[track_caller]
fn gone(stack: &Stack, name: &str) {
    stack.kubectl().line(&format!("delete pod {name}")).succeeds();
}
