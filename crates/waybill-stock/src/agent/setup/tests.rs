//! What is written for which configuration. The files are short forms of what people have.

use std::{cell::RefCell, collections::BTreeMap, fs};

use super::*;

/// A node in memory.
#[derive(Default)]
struct Memory {
    files: RefCell<BTreeMap<String, String>>,
}

impl Memory {
    fn with(files: &[(&str, &str)]) -> Self {
        let memory = Self::default();
        let all = [("/usr/sbin/runc", ""), ("/usr/bin/crun", "")].iter().chain(files);
        for (path, text) in all {
            memory.files.borrow_mut().insert((*path).to_owned(), (*text).to_owned());
        }
        memory
    }

    /// Carries out a plan; says whether anything changed.
    fn apply(&self, plan: &SetupPlan) -> bool {
        let before = self.files.borrow().clone();
        for (path, text) in &plan.files {
            match text {
                Some(text) => self.files.borrow_mut().insert(path.clone(), text.clone()),
                None => self.files.borrow_mut().remove(path),
            };
        }
        *self.files.borrow() != before
    }

    fn text(&self, path: &str) -> String {
        self.files.borrow().get(path).cloned().unwrap_or_default()
    }
}

impl HostFiles for Memory {
    fn read(&self, path: &str) -> Result<Option<String>, SetupError> {
        Ok(self.files.borrow().get(path).cloned())
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let prefix = format!("{folder}/");
        let files = self.files.borrow();
        let names = files.keys().filter_map(|path| path.strip_prefix(&prefix));
        names.filter(|name| !name.contains('/')).map(str::to_owned).collect()
    }

    fn is_program(&self, path: &str) -> bool {
        self.files.borrow().contains_key(path)
    }
}

/// Installs, installs again without a change, removes, and finds what was there before. Returns what was installed.
#[track_caller]
fn round(runtime: &str, kubelet: &str, files: &[(&str, &str)]) -> (Memory, SetupPlan) {
    let runtime = NodeRuntime::parse(runtime, kubelet).unwrap();
    let memory = Memory::with(files);
    let before = memory.files.borrow().clone();
    let planned = plan(&runtime, Wanted::Installed, &memory).unwrap();
    assert!(memory.apply(&planned), "nothing was installed");
    let again = plan(&runtime, Wanted::Installed, &memory).unwrap();
    assert!(!memory.apply(&again), "the second time changed something: {again:#?}");
    assert_eq!(again.real_runtime, planned.real_runtime);
    let installed = memory.files.borrow().clone();
    let removal = plan(&runtime, Wanted::Removed, &memory).unwrap();
    assert!(memory.apply(&removal));
    assert_eq!(*memory.files.borrow(), before, "something is left");
    assert!(!memory.apply(&plan(&runtime, Wanted::Removed, &memory).unwrap()));
    *memory.files.borrow_mut() = installed;
    (memory, planned)
}

const MAIN: &str = "/etc/containerd/config.toml";

/// As kubeadm's guides have it.
const SYSTEMD_CGROUPS: &str = r#"version = 2
root = "/var/lib/containerd"

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "pause:3.9"
    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "runc"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
        base_runtime_spec = "/etc/containerd/base.json" # ours
        runtime_type = "io.containerd.runc.v2"
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
          BinaryName = "/usr/sbin/runc"
          SystemdCgroup = true
"#;

#[test]
fn containerd_1_gets_the_handler_in_its_main_file_with_the_options_of_runc() {
    for version in ["containerd://1.6.20~ds1", "containerd://1.7.27"] {
        let (memory, planned) = round(version, "v1.30.2", &[(MAIN, SYSTEMD_CGROUPS)]);
        let text = memory.text(MAIN);
        assert!(text.starts_with(SYSTEMD_CGROUPS));
        let ours = text.strip_prefix(SYSTEMD_CGROUPS).unwrap();
        let expected = r#"[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.waybill]
base_runtime_spec = "/etc/containerd/base.json"
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.waybill.options]
BinaryName = "/opt/waybill/bin/waybill-oci"
SystemdCgroup = true
"#;
        assert!(ours.contains(expected), "{ours}");
        assert_eq!(planned.real_runtime, "/usr/sbin/runc");
        assert_eq!(planned.restart, Restart::of("containerd"));
        text.parse::<toml_edit::DocumentMut>().unwrap();
    }
}

#[test]
fn containerd_1_without_a_file_gets_one_and_an_old_one_keeps_its_names() {
    let (memory, planned) = round("containerd://1.7.27", "v1.30.2", &[]);
    assert!(memory.text(MAIN).contains("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\""));
    assert_eq!(planned.real_runtime, "/usr/sbin/runc");
    let (memory, _) = round("containerd://1.6.8", "v1.30.2", &[(MAIN, "oom_score = -999\n")]);
    assert!(memory.text(MAIN).contains("[plugins.cri.containerd.runtimes.waybill]"));
}

/// An imported section replaces the whole section of the main file there.
#[test]
fn containerd_1_is_told_in_the_file_that_has_the_plugin_last() {
    let main = "version = 2\nimports = [\"/etc/containerd/extra/*.toml\"]\n";
    let nvidia = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n\
                  default_runtime_name = \"nvidia\"\n\
                  [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\n\
                  runtime_type = \"io.containerd.runc.v2\"\n\
                  [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.options]\n\
                  BinaryName = \"/usr/bin/nvidia-container-runtime\"";
    let extra = "/etc/containerd/extra/10-nvidia.toml";
    let files = [(MAIN, main), (extra, nvidia), ("/usr/bin/nvidia-container-runtime", "")];
    let runtime = NodeRuntime::parse("containerd://1.7.27", "v1.30.2").unwrap();
    let memory = Memory::with(&files);
    let planned = plan(&runtime, Wanted::Installed, &memory).unwrap();
    assert_eq!(planned.real_runtime, "/usr/bin/nvidia-container-runtime");
    let [(path, Some(text))] = planned.files.as_slice() else { panic!("{planned:?}") };
    assert_eq!(path, extra);
    assert!(text.contains("runtimes.waybill"));
}

#[test]
fn containerd_2_gets_a_file_of_ours_and_an_import_of_it() {
    let drop_in = "/etc/containerd/conf.d/99-waybill.toml";
    // None, none with an import, some, and those that cover ours already.
    let (memory, _) = round("containerd://2.1.4", "v1.34.0", &[]);
    assert!(memory.text(MAIN).contains("imports = [\"/etc/containerd/conf.d/99-waybill.toml\"]"));
    assert!(memory.text(drop_in).starts_with("version = 3\n"));

    let plain = "version = 3\n\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n\
                 runtime_type = 'io.containerd.runc.v2'\n\
                 [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n\
                 SystemdCgroup = true\n";
    let (memory, _) = round("containerd://2.3.0", "v1.37.0", &[(MAIN, plain)]);
    assert!(memory.text(MAIN).ends_with(plain));
    assert!(memory.text(MAIN).starts_with("imports = "));
    let ours = memory.text(drop_in);
    assert!(
        ours.contains(
            "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.waybill.options]\n"
        ),
        "{ours}"
    );
    assert!(ours.contains("SystemdCgroup = true\n"), "{ours}");

    let others = "version = 2\nimports = [ \"/etc/containerd/a.toml\" ] # theirs\n";
    let files = [(MAIN, others), ("/etc/containerd/a.toml", "version = 2\n")];
    let (memory, _) = round("containerd://2.0.0", "v1.33.0", &files);
    let main = memory.text(MAIN);
    assert!(main.contains("a.toml") && main.contains("99-waybill.toml"), "{main}");
    assert!(
        memory.text(drop_in).starts_with("version = 2\n\n[plugins.\"io.containerd.grpc.v1.cri\"")
    );

    let covered = "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n";
    let (memory, planned) = round("containerd://2.2.1", "v1.35.0", &[(MAIN, covered)]);
    assert_eq!(memory.text(MAIN), covered);
    assert_eq!(planned.files.len(), 1);
}

#[test]
fn k3s_gets_a_template_or_an_addition() {
    let folder = "/var/lib/rancher/k3s/agent/etc/containerd";
    let generated = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n\
                     runtime_type = \"io.containerd.runc.v2\"\n\
                     [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n\
                     SystemdCgroup = false\n";
    let config = format!("{folder}/config.toml");
    let runc = "/var/lib/rancher/k3s/data/current/bin/runc";
    let files =
        [(&*config, generated), (runc, ""), ("/etc/systemd/system/k3s.service", "[Unit]\n")];
    let (memory, planned) = round("containerd://2.1.5-k3s1", "v1.34.2+k3s1", &files);
    let template = memory.text(&format!("{folder}/config-v3.toml.tmpl"));
    assert!(template.starts_with("{{ template \"base\" . }}\n# >>> waybill"), "{template}");
    assert!(template.contains("SystemdCgroup = false\n"));
    assert_eq!(planned.real_runtime, runc);
    assert_eq!(planned.restart, Restart::of("k3s"));

    let (memory, _) = round("containerd://2.3.1-k3s1", "v1.36.0+k3s1", &files);
    assert!(memory.text(&format!("{folder}/config-v3.toml.d/99-waybill.toml")).contains("waybill"));

    let theirs = "{{ template \"base\" . }}\n[plugins.x]\n";
    let template = format!("{folder}/config.toml.tmpl");
    let files = [files[0], files[1], (&*template, theirs)];
    let (memory, planned) = round("containerd://1.7.23-k3s2", "v1.31.1+k3s1", &files);
    assert!(memory.text(&template).starts_with(theirs));
    assert_eq!(planned.restart, Restart::of("k3s-agent"));
}

#[test]
fn crio_gets_a_drop_in_like_its_default_runtime() {
    let main = "[crio.runtime]\ndefault_runtime = \"crun\"\n";
    let crun = "[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/libexec/crio/crun\"\n\
                runtime_root = \"/run/crun\"\nmonitor_path = \"/usr/libexec/crio/conmon\"\n\
                allowed_annotations = [\"io.containers.trace-syscall\"]\n";
    let files = [
        ("/etc/crio/crio.conf", main),
        ("/etc/crio/crio.conf.d/10-crio.conf", crun),
        ("/usr/libexec/crio/crun", ""),
    ];
    let (memory, planned) = round("cri-o://1.33.1", "v1.33.1", &files);
    assert_eq!(
        memory.text("/etc/crio/crio.conf.d/99-waybill.conf"),
        "[crio.runtime.runtimes.waybill]\nruntime_path = \"/opt/waybill/bin/waybill-oci\"\n\
         runtime_root = \"/run/crun\"\nmonitor_path = \"/usr/libexec/crio/conmon\"\n\
         allowed_annotations = [\"io.containers.trace-syscall\"]\nruntime_type = \"oci\"\n"
    );
    assert_eq!(planned.real_runtime, "/usr/libexec/crio/crun");
    assert_eq!(planned.restart, Restart::of("crio"));
    let (_, planned) = round("cri-o://1.30.0", "v1.30.0", &[]);
    assert_eq!(planned.real_runtime, "/usr/sbin/runc");
    let (_, planned) = round("cri-o://1.34.0", "v1.34.0", &[]);
    assert_eq!(planned.real_runtime, "/usr/bin/crun");
}

#[track_caller]
fn refused(runtime: &str, files: &[(&str, &str)]) -> String {
    let memory = Memory::with(files);
    let told = NodeRuntime::parse(runtime, "v1.34.0")
        .and_then(|runtime| plan(&runtime, Wanted::Installed, &memory));
    told.unwrap_err().to_string()
}

#[test]
fn what_cannot_be_configured_is_refused_with_the_reason() {
    assert!(refused("docker://24.0", &[]).contains("can have no handler"));
    assert!(refused("containerd://1.5.9", &[]).contains("can have no handler"));
    assert!(refused("containerd://what", &[]).contains("can have no handler"));
    assert!(refused("containerd://2.1.0", &[(MAIN, "version = \n")]).contains("not understood"));
    let inline = "version = 2\nplugins = { \"io.containerd.grpc.v1.cri\" = {} }\n";
    let told = refused("containerd://1.7.1", &[(MAIN, inline)]);
    assert!(told.contains("by hand") && told.contains("BinaryName"), "{told}");
    let disabled = "version = 2\ndisabled_plugins = [\"cri\"]\n";
    assert!(refused("containerd://1.7.1", &[(MAIN, disabled)]).contains("disables"));
    let taken =
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.waybill]\n";
    assert!(refused("containerd://1.7.1", &[(MAIN, taken)]).contains("not ours"));
    let gone = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n\
                BinaryName = \"/opt/gone/runc\"\n";
    assert!(refused("containerd://1.7.1", &[(MAIN, gone)]).contains("is not on this node"));
}

#[test]
fn a_folder_is_a_node_and_a_link_stays_while_containers_live() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::new(folder.path());
    host.replace("/usr/sbin/runc", b"#!", 0o755).unwrap();
    host.replace(MAIN, SYSTEMD_CGROUPS.as_bytes(), 0o640).unwrap();
    let runtime = NodeRuntime::parse("containerd://1.7.27", "v1.30.2").unwrap();
    let planned = plan(&runtime, Wanted::Installed, &host).unwrap();
    let both = Changed { configuration: true, wrapper: true };
    assert_eq!(host.install(&planned, b"wrapper", "{}").unwrap(), both);
    let mode = |path: &str| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(host.path(path)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode(MAIN), mode(WRAPPER)), (0o640, 0o755));
    let planned = plan(&runtime, Wanted::Installed, &host).unwrap();
    assert_eq!(host.install(&planned, b"wrapper", "{}").unwrap(), Changed::default());
    let upgrade = host.install(&planned, b"a newer wrapper", "{}").unwrap();
    assert_eq!(upgrade, Changed { configuration: false, wrapper: true });

    let removal = plan(&runtime, Wanted::Removed, &host).unwrap();
    assert!(host.apply(&removal).unwrap());
    host.remove_wrapper(&removal.real_runtime, true).unwrap();
    assert_eq!(fs::read_link(host.path(WRAPPER)).unwrap().to_str(), Some("/usr/sbin/runc"));
    // Installed again in place of the link, and then nothing lives any more.
    host.install(&planned, b"wrapper", "{}").unwrap();
    assert!(host.path(WRAPPER).symlink_metadata().unwrap().is_file());
    host.remove_wrapper("/usr/sbin/runc", false).unwrap();
    assert!(!host.path("/opt/waybill").exists());
    assert!(host.path("/usr/sbin/runc").exists());
}
