//! What a container shall be, in CRI's terms.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use waybill_core::env::{merge::Environment, name_list};
use waybill_proto::cri::{
    ContainerConfig, ContainerMetadata, Image, ImageSpec, KeyValue, LinuxContainerConfig, Mount,
    PodSandboxConfig, Signal, UserNamespace,
};

use super::{
    labels, resources,
    sandbox::{self, ConfigError, Machine},
    security,
    words::Words,
};
use crate::{
    directories::Directories,
    pod::{ContainerRef, Pod},
};

/// What specs mean that do not say where containers leave their last words, and what if they do not.
const MESSAGE_PATH: &str = "/dev/termination-log";
const MESSAGE_POLICY: &str = "File";

/// All that decides about a container beside its spec.
pub(crate) struct Request<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) container: ContainerRef<'a>,
    pub(crate) attempt: u32,
    /// As the runtime knows it.
    pub(crate) image: &'a Image,
    pub(crate) environment: &'a Environment,
    /// All mounts.
    pub(crate) mounts: Vec<Mount>,
    /// What the container's sandbox was made of.
    pub(crate) sandbox: &'a PodSandboxConfig,
    /// The id of the container whose processes this one wants to see.
    pub(crate) target: Option<&'a str>,
}

/// The container that `request` describes.
pub(crate) fn config(
    request: Request<'_>,
    machine: &Machine,
) -> Result<ContainerConfig, ConfigError> {
    let Request { pod, container, attempt, image, environment, mut mounts, sandbox, target } =
        request;
    let spec = container.to_container();
    let linux = LinuxContainerConfig {
        resources: Some(resources::resources(pod, &spec, machine.memory)),
        security_context: Some(security::context(pod, &spec, image, target, machine)?),
    };
    let linux = of_users(linux, &mut mounts, sandbox::users(sandbox));
    let words = Words::expand(
        container.name(),
        spec.command.as_deref().unwrap_or_default(),
        spec.args.as_deref().unwrap_or_default(),
        environment,
    )?;
    let mut annotations = annotations(pod, container, &spec, attempt, environment);
    if !words.sensitive.is_empty() {
        annotations.insert(labels::SENSITIVE_ARGS.to_owned(), words.sensitive);
    }
    Ok(ContainerConfig {
        metadata: Some(ContainerMetadata { name: spec.name.clone(), attempt }),
        image: Some(ImageSpec {
            image: image.id.clone(),
            user_specified_image: container.image().to_owned(),
            ..ImageSpec::default()
        }),
        command: words.command,
        args: words.args,
        working_dir: spec.working_dir.clone().unwrap_or_default(),
        envs: variables(environment),
        mounts,
        labels: container_labels(pod, &spec.name),
        annotations,
        log_path: Directories::container_log(&spec.name, attempt).display().to_string(),
        stdin: spec.stdin == Some(true),
        stdin_once: spec.stdin_once == Some(true),
        tty: spec.tty == Some(true),
        linux: Some(linux),
        stop_signal: stop_signal(&spec)?.into(),
        ..ContainerConfig::default()
    })
}

/// Gives a container the users of its pod, and shows it the files of its volumes under their ids, as kubelets do.
fn of_users(
    mut linux: LinuxContainerConfig,
    mounts: &mut [Mount],
    users: Option<&UserNamespace>,
) -> LinuxContainerConfig {
    let Some(users) = users else { return linux };
    let context = linux.security_context.get_or_insert_default();
    context.namespace_options.get_or_insert_default().userns_options = Some(users.clone());
    for mount in mounts {
        mount.uid_mappings.clone_from(&users.uids);
        mount.gid_mappings.clone_from(&users.gids);
    }
    linux
}

fn variables(environment: &Environment) -> Vec<KeyValue> {
    let pair = |name: &[u8], value: &[u8]| KeyValue {
        key: String::from_utf8_lossy(name).into_owned(),
        value: value.to_vec(),
    };
    environment.iter().map(|entry| pair(entry.name().as_bytes(), entry.value().expose())).collect()
}

fn container_labels(pod: &Pod, name: &str) -> BTreeMap<String, String> {
    let mut all = sandbox::pod_labels(pod);
    let ours = [labels::POD_NAME, labels::POD_NAMESPACE, labels::POD_UID];
    all.retain(|name, _| ours.contains(&name.as_str()));
    all.insert(labels::CONTAINER_NAME.to_owned(), name.to_owned());
    all
}

fn annotations(
    pod: &Pod,
    container: ContainerRef<'_>,
    spec: &Container,
    attempt: u32,
    environment: &Environment,
) -> BTreeMap<String, String> {
    let secret = environment.iter().filter(|entry| entry.value().is_secret());
    let sensitive = name_list::join(secret.map(|entry| entry.name()));
    let mut all = BTreeMap::from([
        (labels::CONTAINER_HASH.to_owned(), container.spec_hash()),
        (labels::RESTART_COUNT.to_owned(), attempt.to_string()),
        (labels::MESSAGE_PATH.to_owned(), message_path(container)),
        (
            labels::MESSAGE_POLICY.to_owned(),
            spec.termination_message_policy.clone().unwrap_or_else(|| MESSAGE_POLICY.to_owned()),
        ),
        (labels::GRACE.to_owned(), pod.grace().to_string()),
    ]);
    if !sensitive.is_empty() {
        all.insert(labels::SENSITIVE.to_owned(), sensitive);
    }
    all
}

/// Where the container leaves its last words.
pub(crate) fn message_path(container: ContainerRef<'_>) -> String {
    let asked = container.to_container().termination_message_path;
    asked.filter(|path| !path.is_empty()).unwrap_or_else(|| MESSAGE_PATH.to_owned())
}

fn stop_signal(spec: &Container) -> Result<Signal, ConfigError> {
    let asked = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_deref());
    match asked {
        None | Some("") => Ok(Signal::RuntimeDefault),
        Some(name) => Signal::from_str_name(&name.replace('+', "PLUS").replace('-', "MINUS"))
            .ok_or_else(|| ConfigError(format!("lifecycle.stopSignal: {name} is no signal"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use waybill_core::env::{
        merge::{EnvVar, Tier},
        name::{EnvName, NameRules},
        origin::Origin,
        value::EnvValue,
    };

    use super::*;
    use crate::pod::testing::pod;

    fn environment() -> Environment {
        let mut all = Environment::new();
        for (name, value) in [
            ("PLAIN", EnvValue::plain(*b"plain").unwrap()),
            ("SECRET", EnvValue::secret(b"hunter2".to_vec()).unwrap()),
            ("BYTES", EnvValue::plain(*b"\xff").unwrap()),
        ] {
            let name = EnvName::parse(name, NameRules::Strict).unwrap();
            all.set(Tier::Baseline, EnvVar { name, value, origin: Origin::Literal });
        }
        all
    }

    fn of(fields: &Value) -> Result<ContainerConfig, ConfigError> {
        let mut container = json!({ "name": "a", "image": "i:1" });
        for (field, value) in fields.as_object().into_iter().flatten() {
            container[field] = value.clone();
        }
        let pod = pod(json!({ "containers": [container] }));
        let request = Request {
            pod: &pod,
            container: pod.container("a").unwrap(),
            attempt: 3,
            image: &Image { id: "sha256:1".to_owned(), ..Image::default() },
            environment: &environment(),
            mounts: Vec::new(),
            sandbox: &PodSandboxConfig::default(),
            target: None,
        };
        let machine = Machine {
            node: "n".to_owned(),
            directories: Directories { state: "/s".into(), logs: "/l".into() },
            cgroup_root: String::new(),
            memory: 1 << 30,
        };
        config(request, &machine)
    }

    #[test]
    fn variables_go_as_they_are_and_secret_ones_are_named() {
        let config = of(&json!({})).unwrap();
        let envs: Vec<_> = config.envs.iter().map(|it| (it.key.as_str(), &it.value[..])).collect();
        let expected: [(&str, &[u8]); 3] =
            [("PLAIN", b"plain"), ("SECRET", b"hunter2"), ("BYTES", b"\xff")];
        assert_eq!(envs, expected);
        assert_eq!(config.annotations[labels::SENSITIVE], "SECRET");
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn references_in_commands_are_replaced() {
        let config = of(&json!({ "command": ["$(PLAIN)"], "args": ["$(SECRET)!", "$$(PLAIN)"] }));
        let config = config.unwrap();
        assert_eq!(config.command, ["plain"]);
        assert_eq!(config.args, ["hunter2!", "$(PLAIN)"]);
        assert_eq!(config.annotations[labels::SENSITIVE_ARGS], "args[0]");
        assert!(!of(&json!({})).unwrap().annotations.contains_key(labels::SENSITIVE_ARGS));
        let fault = of(&json!({ "args": ["$(BYTES)"] })).unwrap_err();
        assert!(fault.to_string().starts_with("container \"a\": args[0]: "), "{fault}");
    }

    #[test]
    fn a_container_is_found_by_its_name_and_number() {
        let config = of(&json!({})).unwrap();
        assert_eq!(config.log_path, "a/3.log");
        assert_eq!(config.annotations[labels::RESTART_COUNT], "3");
        assert_eq!(config.annotations[labels::MESSAGE_PATH], "/dev/termination-log");
        assert_eq!(config.labels[labels::CONTAINER_NAME], "a");
        let image = config.image.unwrap();
        assert_eq!(
            (image.image.as_str(), image.user_specified_image.as_str()),
            ("sha256:1", "i:1")
        );
    }

    #[test]
    fn a_container_has_the_users_of_its_pod_and_so_have_its_volumes() {
        let ids =
            vec![waybill_proto::cri::IdMapping { host_id: 65536, container_id: 0, length: 65536 }];
        let users = UserNamespace { mode: 0, uids: ids.clone(), gids: ids.clone() };
        let mut mounts = [Mount::default(), Mount::default()];
        let linux = of_users(LinuxContainerConfig::default(), &mut mounts, Some(&users));
        let context = linux.security_context.unwrap();
        assert_eq!(context.namespace_options.unwrap().userns_options, Some(users));
        assert!(mounts.iter().all(|it| it.uid_mappings == ids && it.gid_mappings == ids));
        let mut mounts = [Mount::default()];
        of_users(LinuxContainerConfig::default(), &mut mounts, None);
        assert!(mounts[0].uid_mappings.is_empty());
    }

    #[test]
    fn a_stop_signal_is_one_that_there_is() {
        let signal = |name: &str| of(&json!({ "lifecycle": { "stopSignal": name } }));
        assert_eq!(of(&json!({})).unwrap().stop_signal(), Signal::RuntimeDefault);
        assert_eq!(signal("SIGUSR1").unwrap().stop_signal(), Signal::Sigusr1);
        assert_eq!(signal("SIGRTMIN+3").unwrap().stop_signal(), Signal::Sigrtminplus3);
        assert!(signal("SIGNOTHING").is_err());
    }
}
