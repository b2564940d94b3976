//! A specification as a whole.

use oci_spec::{image::ConfigBuilder, runtime::LinuxNamespaceType};
use waybill_proto::cri::{
    ContainerMetadata, IdMapping, ImageSpec, KeyValue, LinuxContainerConfig,
    LinuxContainerResources, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceOption,
    PodSandboxConfig, UserNamespace,
};

use super::*;
use crate::cri::record::NamespacePaths;

struct Case {
    config: ContainerConfig,
    sandbox: SandboxRecord,
    image: ImageConfig,
    user: User,
    shared: Shared,
    machine: Machine,
    target_pid: Option<i32>,
}

impl Case {
    fn new() -> Self {
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: "c".into(), attempt: 0 }),
            image: Some(ImageSpec { image: "busybox".into(), ..ImageSpec::default() }),
            command: vec!["sleep".into()],
            ..ContainerConfig::default()
        };
        Self {
            config,
            sandbox: sandbox(),
            image: ConfigBuilder::default().env(vec!["A=image".to_owned()]).build().unwrap(),
            user: User { uid: 5, gid: 6, groups: vec![6, 7], home: "/h".into() },
            shared: Shared {
                shm: "/s/shm".into(),
                hostname: "/s/hostname".into(),
                hosts: "/s/hosts".into(),
                resolv_conf: "/s/resolv.conf".into(),
            },
            machine: Machine::plain(),
            target_pid: None,
        }
    }

    fn context(mut self, context: LinuxContainerSecurityContext) -> Self {
        let linux = self.config.linux.get_or_insert_with(LinuxContainerConfig::default);
        linux.security_context = Some(context);
        self
    }

    fn pid(self, mode: NamespaceMode) -> Self {
        let options = NamespaceOption { pid: mode.into(), ..NamespaceOption::default() };
        self.context(LinuxContainerSecurityContext {
            namespace_options: Some(options),
            ..LinuxContainerSecurityContext::default()
        })
    }

    fn plan(&self) -> Plan<'_> {
        Plan {
            id: "id",
            config: &self.config,
            sources: &[],
            sandbox: &self.sandbox,
            shared: &self.shared,
            image: &self.image,
            user: &self.user,
            rootfs: Path::new("/r"),
            target_pid: self.target_pid,
            machine: &self.machine,
        }
    }

    fn spec(&self) -> Spec {
        self.plan().spec().unwrap()
    }

    #[track_caller]
    fn refused(&self, expected: &str) {
        let error = self.plan().spec().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

fn sandbox() -> SandboxRecord {
    SandboxRecord {
        id: "pod".into(),
        created_at: 1,
        config: PodSandboxConfig { hostname: "pod-0".into(), ..PodSandboxConfig::default() },
        runtime_handler: String::new(),
        namespaces: NamespacePaths {
            network: Some("/ns/net".into()),
            ipc: Some("/ns/ipc".into()),
            uts: Some("/ns/uts".into()),
            pid: Some("/ns/pid".into()),
            user: None,
        },
        cgroup_parent: "/parent".into(),
        stopped: false,
    }
}

fn namespace(spec: &Spec, typ: LinuxNamespaceType) -> Option<Option<PathBuf>> {
    let namespaces = spec.linux().as_ref().unwrap().namespaces().clone().unwrap();
    namespaces.iter().find(|it| it.typ() == typ).map(|it| it.path().clone())
}

#[test]
fn the_process_is_what_request_and_image_say() {
    let mut case = Case::new();
    let resources = LinuxContainerResources { oom_score_adj: 7, ..Default::default() };
    case.config.linux =
        Some(LinuxContainerConfig { resources: Some(resources), security_context: None });
    let spec = case.spec();
    let process = spec.process().clone().unwrap();
    assert_eq!(process.args().as_ref().unwrap(), &["sleep"]);
    assert_eq!(process.cwd(), Path::new("/"));
    assert_eq!((process.user().uid(), process.user().gid()), (5, 6));
    assert_eq!(process.user().additional_gids().as_ref().unwrap(), &[6, 7]);
    assert_eq!(process.oom_score_adj(), Some(7));
    assert_eq!(process.no_new_privileges(), Some(false));
    let linux = spec.linux().clone().unwrap();
    assert_eq!(linux.cgroups_path().as_deref(), Some(Path::new("/parent/id")));
}

#[test]
fn the_environment_is_no_part_of_the_specification() {
    let case = Case::new();
    let value = KeyValue { key: "B".into(), value: b"hunter2".to_vec() };
    let environment = case.plan().environment(vec![value]).unwrap();
    let names: Vec<_> = environment.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["PATH", "HOSTNAME", "HOME", "A", "B"]);
    let spec = case.spec();
    assert_eq!(spec.process().as_ref().unwrap().env().as_ref().unwrap(), &Vec::<String>::new());
    assert!(!serde_json::to_string(&spec).unwrap().contains("hunter2"));
}

#[test]
fn namespaces_are_the_sandboxes_and_mounts_its_own() {
    let spec = Case::new().spec();
    assert_eq!(namespace(&spec, LinuxNamespaceType::Mount), Some(None));
    let path = |typ| namespace(&spec, typ).unwrap().unwrap();
    assert_eq!(path(LinuxNamespaceType::Network), Path::new("/ns/net"));
    assert_eq!(path(LinuxNamespaceType::Ipc), Path::new("/ns/ipc"));
    assert_eq!(path(LinuxNamespaceType::Uts), Path::new("/ns/uts"));
    assert_eq!(path(LinuxNamespaceType::Pid), Path::new("/ns/pid"));
    assert_eq!(namespace(&spec, LinuxNamespaceType::User), None);
    assert_eq!(spec.hostname(), &None);
}

#[test]
fn the_process_namespace_is_each_containers_choice() {
    let pid = |case: &Case| namespace(&case.spec(), LinuxNamespaceType::Pid);
    assert_eq!(pid(&Case::new().pid(NamespaceMode::Container)), Some(None));
    assert_eq!(pid(&Case::new().pid(NamespaceMode::Node)), None);
    let mut target = Case::new().pid(NamespaceMode::Target);
    target.refused("target container");
    target.target_pid = Some(42);
    assert_eq!(pid(&target), Some(Some("/proc/42/ns/pid".into())));
    let mut lonely = Case::new().pid(NamespaceMode::Pod);
    lonely.sandbox.namespaces.pid = None;
    lonely.refused("without a process namespace");
}

#[test]
fn the_machines_network_is_the_sandboxes_to_give() {
    let options =
        NamespaceOption { network: NamespaceMode::Node.into(), ..NamespaceOption::default() };
    let context = LinuxContainerSecurityContext {
        namespace_options: Some(options),
        ..LinuxContainerSecurityContext::default()
    };
    Case::new().context(context).refused("its sandbox has one of its own");
}

#[test]
fn users_of_its_own_are_refused_where_the_sandbox_has_none() {
    let mapping = IdMapping { host_id: 65536, container_id: 0, length: 65536 };
    let user = UserNamespace { mode: 0, uids: vec![mapping], gids: vec![mapping] };
    let options = NamespaceOption { userns_options: Some(user), ..NamespaceOption::default() };
    let context = LinuxContainerSecurityContext {
        namespace_options: Some(options),
        ..LinuxContainerSecurityContext::default()
    };
    Case::new().context(context).refused("are not those of its sandbox");
}

#[test]
fn privileged_lifts_masks_if_the_sandbox_allows_it() {
    let context = LinuxContainerSecurityContext {
        privileged: true,
        masked_paths: vec!["/proc/kcore".into()],
        readonly_paths: vec!["/proc/sys".into()],
        ..LinuxContainerSecurityContext::default()
    };
    let mut case = Case::new().context(context.clone());
    case.refused("a privileged container needs");
    case.sandbox.config.linux = Some(LinuxPodSandboxConfig {
        security_context: Some(LinuxSandboxSecurityContext {
            privileged: true,
            ..Default::default()
        }),
        ..LinuxPodSandboxConfig::default()
    });
    let linux = case.spec().linux().clone().unwrap();
    assert_eq!(linux.masked_paths().as_deref(), Some(&[][..]));

    let plain = LinuxContainerSecurityContext { privileged: false, ..context };
    let linux = Case::new().context(plain).spec().linux().clone().unwrap();
    assert_eq!(linux.masked_paths().as_deref(), Some(&["/proc/kcore".to_owned()][..]));
    assert_eq!(linux.readonly_paths().as_deref(), Some(&["/proc/sys".to_owned()][..]));
}

#[test]
fn a_config_needs_a_name_and_an_image() {
    assert!(check_config(&Case::new().config).is_ok());
    let nameless = ContainerConfig { metadata: None, ..Case::new().config };
    assert!(check_config(&nameless).is_err());
    let imageless = ContainerConfig { image: None, ..Case::new().config };
    assert!(check_config(&imageless).is_err());
    let windows = ContainerConfig { windows: Some(Default::default()), ..Case::new().config };
    assert!(check_config(&windows).is_err());
}
