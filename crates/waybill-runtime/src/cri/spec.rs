//! The OCI specification of a container, from what the request, its sandbox and its image say.
//!
//! Everything that is asked for is carried out or refused. The environment is no part of the
//! specification: it goes to the engine beside it and never to a file.

mod args;
mod capabilities;
mod devices;
mod env;
mod mounts;
mod profiles;
mod resources;
mod rootfs;
mod sharing;
mod user;
pub(crate) mod user_namespace;

use std::path::{Path, PathBuf};

use oci_spec::{
    image::Config as ImageConfig,
    runtime::{
        Linux, LinuxBuilder, LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType,
        PosixRlimit, PosixRlimitBuilder, PosixRlimitType, Process, ProcessBuilder, RootBuilder,
        Spec, SpecBuilder, UserBuilder,
    },
};
use waybill_core::env::{name::EnvName, value::EnvValue};
use waybill_proto::{
    cri::{self, ContainerConfig, LinuxContainerSecurityContext, NamespaceMode},
    env::variables,
};

pub(crate) use self::{
    mounts::{Shared, check_destinations},
    profiles::{check_sandbox, seccomp_profile},
    resources::{merge, resources},
    rootfs::Rootfs,
    user::{User, resolve},
};
use super::{
    OpenFiles,
    error::{CriError, Result},
    machine::Machine,
    record::SandboxRecord,
};
use crate::IdMap;

/// The program that a container of `config` runs, as `config` names it.
pub(crate) fn program(config: &ContainerConfig, image: &ImageConfig) -> Option<String> {
    args::args(&config.command, &config.args, image).ok()?.into_iter().next()
}

/// Everything that a specification is made of.
pub(crate) struct Plan<'a> {
    pub(crate) id: &'a str,
    pub(crate) config: &'a ContainerConfig,
    /// Where the files of each mount are that has no host path.
    pub(crate) sources: &'a [Option<PathBuf>],
    pub(crate) sandbox: &'a SandboxRecord,
    pub(crate) shared: &'a Shared,
    pub(crate) image: &'a ImageConfig,
    pub(crate) user: &'a User,
    pub(crate) rootfs: &'a Path,
    /// The first process of the container whose process namespace is to be joined, if one is.
    pub(crate) target_pid: Option<i32>,
    pub(crate) machine: &'a Machine,
}

impl Plan<'_> {
    pub(crate) fn spec(&self) -> Result<Spec> {
        let context = security_context(self.config);
        if context.privileged && !self.sandbox.is_privileged() {
            let reason = "a privileged container needs a sandbox that was made for one";
            return Err(CriError::invalid(reason));
        }
        let users = user_namespace::requested(&self.sandbox.namespace_options())?;
        self.check_users(users)?;
        let apparmor = profiles::check_container(&context, self.machine)?;
        let root = RootBuilder::default().path(self.rootfs).readonly(context.readonly_rootfs);
        let mounts = mounts::mounts(
            &mounts::Request {
                mounts: &self.config.mounts,
                sources: self.sources,
                annotations: &self.config.annotations,
                shared: self.shared,
                privileged: context.privileged,
                read_only_root: context.readonly_rootfs,
                users,
            },
            self.machine,
        )?;
        let linux = self.linux(&context, mounts.propagation)?;
        let mut spec = SpecBuilder::default()
            .version("1.2.0")
            .root(root.build()?)
            .mounts(mounts.all)
            .process(self.process(&context, apparmor)?)
            .linux(linux)
            .build()?;
        // The sandbox's namespace has its name already.
        spec.set_hostname(None);
        Ok(spec)
    }

    /// What the first process and every exec session start with.
    pub(crate) fn environment(
        &self,
        request: Vec<cri::KeyValue>,
    ) -> Result<Vec<(EnvName, EnvValue)>> {
        let hostname = self.sandbox.hostname(self.machine);
        let defaults = env::Defaults { home: &self.user.home, hostname, tty: self.config.tty };
        let image = self.image.env().as_deref().unwrap_or_default();
        env::environment(defaults, image, variables(request)?)
    }

    pub(crate) fn working_dir(&self) -> Result<PathBuf> {
        args::working_dir(&self.config.working_dir, self.image)
    }

    fn process(
        &self,
        context: &LinuxContainerSecurityContext,
        apparmor: Option<String>,
    ) -> Result<Process> {
        let user = UserBuilder::default()
            .uid(self.user.uid)
            .gid(self.user.gid)
            .additional_gids(self.user.groups.clone());
        let wanted = context.capabilities.clone().unwrap_or_default();
        let capabilities = capabilities::capabilities(&wanted, context.privileged, self.machine)?;
        let mut process = ProcessBuilder::default()
            .terminal(self.config.tty)
            .user(user.build()?)
            .args(args::args(&self.config.command, &self.config.args, self.image)?)
            .env(Vec::new())
            .cwd(self.working_dir()?)
            .capabilities(capabilities)
            .no_new_privileges(context.no_new_privs)
            .build()?;
        process.set_apparmor_profile(apparmor);
        // A container has the limits that the runtime was started with, as its service sets them. Only that of open
        // files is another for the runtime by now.
        process.set_rlimits(self.machine.container_open_files.map(rlimits).transpose()?);
        if let Some(resources) = requested_resources(self.config) {
            process.set_oom_score_adj(Some(resources::oom_score_adj(resources)?));
        }
        Ok(process)
    }

    fn linux(
        &self,
        context: &LinuxContainerSecurityContext,
        propagation: Option<&str>,
    ) -> Result<Linux> {
        let devices = if context.privileged {
            devices::of_the_machine(self.sandbox.namespaces.user.is_some())?
        } else {
            self.check_devices(context)?;
            devices::requested(&self.config.devices)?
        };
        let requested = requested_resources(self.config).cloned().unwrap_or_default();
        let mut limits = resources(&requested, self.machine)?;
        limits.set_devices(Some(devices.rules));
        let (masked, read_only) = if context.privileged {
            (Vec::new(), Vec::new())
        } else {
            (context.masked_paths.clone(), context.readonly_paths.clone())
        };
        let mut linux = LinuxBuilder::default()
            .cgroups_path(self.sandbox.cgroup_parent.join(self.id))
            .resources(limits)
            .namespaces(self.namespaces(context)?)
            .devices(devices.nodes)
            .masked_paths(masked)
            .readonly_paths(read_only)
            .build()?;
        linux.set_rootfs_propagation(propagation.map(str::to_owned));
        let users = user_namespace::requested(&self.sandbox.namespace_options())?;
        let map = users.map(mounts::id_mappings).transpose()?;
        linux.set_uid_mappings(map.clone()).set_gid_mappings(map);
        Ok(linux)
    }

    fn namespaces(&self, context: &LinuxContainerSecurityContext) -> Result<Vec<LinuxNamespace>> {
        let own = |typ| LinuxNamespaceBuilder::default().typ(typ).build();
        let join = |typ, path: &Path| LinuxNamespaceBuilder::default().typ(typ).path(path).build();
        let mut namespaces = vec![own(LinuxNamespaceType::Mount)?];
        let shared = &self.sandbox.namespaces;
        let joined = [
            (LinuxNamespaceType::Network, &shared.network),
            (LinuxNamespaceType::Ipc, &shared.ipc),
            (LinuxNamespaceType::Uts, &shared.uts),
            (LinuxNamespaceType::User, &shared.user),
        ];
        for (typ, path) in joined {
            if let Some(path) = path {
                namespaces.push(join(typ, path)?);
            }
        }
        match self.pid_mode(context)? {
            NamespaceMode::Node => {}
            NamespaceMode::Container => namespaces.push(own(LinuxNamespaceType::Pid)?),
            NamespaceMode::Pod => {
                let path = shared.pid.as_deref().ok_or_else(|| {
                    CriError::invalid("the sandbox was made without a process namespace to share")
                })?;
                namespaces.push(join(LinuxNamespaceType::Pid, path)?);
            }
            NamespaceMode::Target => {
                let pid = self.target_pid.ok_or_else(|| {
                    CriError::state("the target container's process namespace is gone")
                })?;
                let path = PathBuf::from(format!("/proc/{pid}/ns/pid"));
                namespaces.push(join(LinuxNamespaceType::Pid, &path)?);
            }
        }
        // Only who owns a namespace of cgroups may mount them.
        if !context.privileged || shared.user.is_some() {
            namespaces.push(own(LinuxNamespaceType::Cgroup)?);
        }
        Ok(namespaces)
    }

    /// Refuses users that the pod does not have: the kernel would not say which.
    fn check_users(&self, users: Option<IdMap>) -> Result<()> {
        let Some(map) = users else { return Ok(()) };
        let ids =
            [self.user.uid, self.user.gid].into_iter().chain(self.user.groups.iter().copied());
        match ids.into_iter().find(|&id| map.on_the_machine(id).is_none()) {
            None => Ok(()),
            Some(id) => Err(CriError::invalid(format!(
                "user or group {id} is not among the {} ids of the pod's user namespace; use one below that",
                map.length()
            ))),
        }
    }

    /// In a user namespace nobody makes nodes; libcontainer binds those of the machine, which it finds by their names in the
    /// container.
    fn check_devices(&self, context: &LinuxContainerSecurityContext) -> Result<()> {
        let options = context.namespace_options.as_ref();
        let users = options.map(user_namespace::requested).transpose()?.flatten();
        let mut devices = self.config.devices.iter();
        match devices.find(|it| Path::new(&it.host_path) != Path::new("/").join(&it.container_path))
        {
            Some(device) if users.is_some() => Err(CriError::unsupported(
                "a device under another name in a user namespace",
                format!("name {:?} the same inside, or set hostUsers to true", device.host_path),
            )),
            _ => Ok(()),
        }
    }

    /// Network and IPC are the sandbox's; only the process namespace is each container's choice.
    fn pid_mode(&self, context: &LinuxContainerSecurityContext) -> Result<NamespaceMode> {
        let of_sandbox = self.sandbox.namespace_options();
        user_namespace::check_container(&of_sandbox, context.namespace_options.as_ref())?;
        let Some(options) = &context.namespace_options else { return Ok(of_sandbox.pid()) };
        let differs = |wanted: NamespaceMode, made: NamespaceMode| {
            wanted == NamespaceMode::Node && made != NamespaceMode::Node
        };
        if differs(options.network(), of_sandbox.network())
            || differs(options.ipc(), of_sandbox.ipc())
        {
            let reason = "the container asks for the machine's network or IPC namespace, its \
                          sandbox has one of its own";
            return Err(CriError::invalid(reason));
        }
        Ok(options.pid())
    }
}

/// What the request says before anything is made for it.
pub(crate) fn check_config(config: &ContainerConfig) -> Result<()> {
    let metadata = config.metadata.as_ref();
    if metadata.is_none_or(|metadata| metadata.name.is_empty()) {
        return Err(CriError::invalid("config.metadata.name is empty"));
    }
    if config.image.as_ref().is_none_or(|image| image.image.is_empty()) {
        return Err(CriError::invalid("config.image.image is empty"));
    }
    if config.windows.is_some() {
        return Err(CriError::unsupported("a container for Windows", "this runtime is for Linux"));
    }
    if !config.cdi_devices.is_empty() {
        return Err(CriError::unsupported("a CDI device", "name device files in `devices`"));
    }
    Ok(())
}

pub(crate) fn security_context(config: &ContainerConfig) -> LinuxContainerSecurityContext {
    config.linux.as_ref().and_then(|linux| linux.security_context.clone()).unwrap_or_default()
}

fn requested_resources(config: &ContainerConfig) -> Option<&cri::LinuxContainerResources> {
    config.linux.as_ref()?.resources.as_ref()
}

fn rlimits(OpenFiles { soft, hard }: OpenFiles) -> Result<Vec<PosixRlimit>> {
    let limit = PosixRlimitBuilder::default().typ(PosixRlimitType::RlimitNofile);
    Ok(vec![limit.soft(soft).hard(hard).build()?])
}

#[cfg(test)]
mod tests;
