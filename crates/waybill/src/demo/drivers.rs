//! A scene: variables from two drivers, of which the store and the disk know nothing (the CSI proposal).

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use waybill_client::Resource;

use super::{
    Report,
    backend::{Backend, OpenBao},
    env_files::process,
    scenes::{Image, NAMESPACE, SECRET, SETTING, Scenes, text},
};
use crate::{columns::align, driver::Kind, env, target::pods};

const POD: &str = "demo-drivers";

/// Not every file is worth a look: images hold no variable.
const LARGEST: u64 = 64 << 20;

impl Scenes {
    pub(super) async fn drivers(
        &self,
        report: &mut Report,
        image: &Image,
        backend: &Backend,
    ) -> Result<()> {
        if let Some(server) = backend.openbao() {
            self.introduce(server, backend.value()).await?;
        }
        for (group, plural, object) in objects(backend) {
            // A CSIDriver is there already if the driver was quick.
            let resource = resource(group, plural);
            let name = text(&object, "/metadata/name");
            self.requests.apply(&resource, &self.place, name, &object).await?;
        }
        let pod = self.requests.create(&pods().path(&self.place), &pod(image, backend)).await?;
        let phase = self.wait_until_it_runs(POD).await?;
        let Some((environment, _)) = process(text(&pod, "/metadata/uid"), "PASSWORD=")? else {
            bail!("the app of pod/{POD} is not found: {phase}")
        };
        let find = |name: &str| environment.iter().find_map(|it| it.strip_prefix(name));
        let (kernel, password) = (find("KERNEL=").unwrap_or_default(), find("PASSWORD="));
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        report.check(
            "a driver gives a container facts of its host",
            kernel == release.trim(),
            &format!("KERNEL={kernel}, from the driver os"),
        )?;
        report.check(
            "another one gives it a secret",
            password == Some(backend.value()),
            &format!("PASSWORD has the right 32 characters, from {}", backend.title()),
        )?;
        self.show_provenance(report, backend).await?;
        self.search(report, backend.value())?;
        self.delete(POD).await
    }

    async fn show_provenance(&self, report: &mut Report, backend: &Backend) -> Result<()> {
        let mut found = env::variables(&self.requests, NAMESPACE, POD, None).await?;
        found.retain(|it| text(it, "/from").contains("CSI"));
        let knows = |word: &str| found.iter().any(|it| text(it, "/from").contains(word));
        let holds = knows(Kind::Os.driver_name()) && knows(backend.key());
        let table = align(&env::rows(&found));
        report.check("whose driver, class and key are known, and not its value", holds, &table)?;
        Ok(())
    }

    /// The ConfigMap of an earlier scene shows that a search would find; Secrets are encrypted in the store.
    fn search(&self, report: &mut Report, value: &str) -> Result<()> {
        let mut seen = Seen::default();
        seen.search(&self.state_dir, value);
        let Seen { files, with_setting, with_secret, with_value } = seen;
        report.check(
            "and no file of the cluster holds it: not the store, not a log, not the audit log",
            with_value == 0 && with_secret == 0 && with_setting > 0,
            &format!(
                "{files} files searched: the value of a ConfigMap is in {with_setting} of them, that of a \
                 Secret in {with_secret}, this one in {with_value}"
            ),
        )?;
        Ok(())
    }

    /// Lets OpenBao ask the API server about tokens.
    async fn introduce(&self, server: &OpenBao, value: &str) -> Result<()> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "openbao"}});
        let accounts = Resource { plural: "serviceaccounts".to_owned(), ..pods() };
        self.requests.create(&accounts.path(&self.place), &account).await?;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "openbao"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "system:auth-delegator"},
            "subjects": [{"kind": "ServiceAccount", "name": "openbao", "namespace": NAMESPACE}],
        });
        let bindings = resource("rbac.authorization.k8s.io", "clusterrolebindings");
        self.requests.create(&bindings.path(&self.place), &binding).await?;
        let path = format!("{}/token", accounts.object_path(&self.place, "openbao"));
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600}});
        let token = self.requests.create(&path, &request).await?;
        let (address, ca) = self.api_server()?;
        server.prepare(
            &json!({
                "kubernetes_host": address,
                "kubernetes_ca_cert": ca,
                "token_reviewer_jwt": text(&token, "/status/token"),
                "disable_local_ca_jwt": true,
            }),
            value,
        )
    }

    /// Its address, and who vouches for it, as the kubeconfig says.
    fn api_server(&self) -> Result<(String, String)> {
        let config = fs::read_to_string(&self.options.kubeconfig)?;
        let config: Value =
            serde_saphyr::from_str(&config).context("the kubeconfig is not YAML")?;
        let ca = fs::read_to_string(self.state_dir.join("pki/ca.crt"))?;
        Ok((text(&config, "/clusters/0/cluster/server").to_owned(), ca))
    }
}

/// What was seen in files.
#[derive(Default)]
struct Seen {
    files: u32,
    with_setting: u32,
    with_secret: u32,
    with_value: u32,
}

impl Seen {
    fn search(&mut self, directory: &Path, value: &str) {
        let Ok(entries) = fs::read_dir(directory) else { return };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                self.search(&entry.path(), value);
            } else if kind.is_file() && entry.metadata().is_ok_and(|it| it.len() <= LARGEST) {
                let Ok(content) = fs::read(entry.path()) else { continue };
                let has = |text: &str| content.windows(text.len()).any(|it| it == text.as_bytes());
                let holds = |text: &str| has(text) || has(&BASE64_STANDARD.encode(text));
                self.files += 1;
                self.with_setting += u32::from(holds(SETTING));
                self.with_secret += u32::from(holds(SECRET));
                self.with_value += u32::from(holds(value));
            }
        }
    }
}

fn resource(group: &str, plural: &str) -> Resource {
    let version = "v1".to_owned();
    let namespaced = plural == "rolebindings";
    let (group, plural) = (group.to_owned(), plural.to_owned());
    Resource { group, version, plural, namespaced, ..Resource::default() }
}

/// The classes, the tokens for OpenBao, and who may use the classes.
fn objects(backend: &Backend) -> Vec<(&'static str, &'static str, Value)> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    const STORAGE: &str = "storage.k8s.io";
    let class = |name: &str, driver: &str, parameters: &Value| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "ProviderClass",
            "metadata": {"name": name}, "spec": {"driver": driver, "parameters": parameters}})
    };
    let facts = json!({"allowedNamespaces": "default", "allowedFields": "os/kernel/*"});
    let name = "use-demo-classes";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [STORAGE], "resources": ["providerclasses"],
            "resourceNames": ["host", "secrets"], "verbs": ["use"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}],
    });
    let secrets = class("secrets", backend.driver_name(), &backend.class_parameters());
    let mut objects = vec![
        (STORAGE, "providerclasses", class("host", Kind::Os.driver_name(), &facts)),
        (STORAGE, "providerclasses", secrets),
        (RBAC, "clusterroles", role),
        (RBAC, "rolebindings", binding),
    ];
    if backend.openbao().is_some() {
        let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
            "metadata": {"name": backend.driver_name()},
            "spec": {"attachRequired": false, "tokenRequests": [{"audience": "vault"}]}});
        objects.push((STORAGE, "csidrivers", driver));
    }
    objects
}

fn pod(image: &Image, backend: &Backend) -> Value {
    let from = |driver: &str, class: &str, key: &str| json!({"csiSecretRef": {"driver": driver, "providerClassName": class, "key": key}});
    let kernel = from(Kind::Os.driver_name(), "host", "os/kernel/release");
    let password = from(backend.driver_name(), "secrets", backend.key());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{
            "name": "app", "image": image.name, "command": image.command,
            "env": [
                {"name": "KERNEL", "valueFrom": kernel},
                {"name": "PASSWORD", "valueFrom": password},
                {"name": "DEMO_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            ],
        }],
    }})
}
