//! The way back: variables from drivers become keys of Secrets that a provider keeps in step.
//!
//! A class that came from `migrate` remembers the Secret of each variable, and its SecretProviderClass is
//! still there. For any other class one is made, with a Secret of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    class::{MIGRATED_FROM, MigratedFrom, Origin},
    document::{containers, items, pod_spec, set, text, text_map, title},
    mapping::{Reference, back, provider_of},
    plan::{Change, Options, Plan},
    synced::{DRIVER, GROUP},
};

impl Plan {
    /// From variables of drivers to Secrets in step with a provider.
    pub(super) fn reverse(objects: &[Value], options: &Options) -> Self {
        let classes = objects.iter().filter_map(Class::read);
        let classes = classes.map(|class| (class.name.clone(), class)).collect();
        let mut reverse =
            Reverse { options, classes, made: BTreeMap::new(), plan: Self::default() };
        for (at, object) in objects.iter().enumerate() {
            if let Some(pointer) = pod_spec(object) {
                reverse.workload(at, object, pointer);
            }
        }
        reverse.finish()
    }
}

/// A ProviderClass.
struct Class {
    name: String,
    driver: String,
    parameters: BTreeMap<String, String>,
    from: Option<MigratedFrom>,
}

impl Class {
    fn read(object: &Value) -> Option<Self> {
        if text(object, "/kind") != Some("ProviderClass") {
            return None;
        }
        let annotations = text_map(object, "/metadata/annotations");
        Some(Self {
            name: text(object, "/metadata/name")?.to_owned(),
            driver: text(object, "/spec/driver").unwrap_or_default().to_owned(),
            parameters: text_map(object, "/spec/parameters"),
            from: annotations.get(MIGRATED_FROM).and_then(|it| serde_json::from_str(it).ok()),
        })
    }
}

struct Reverse<'a> {
    options: &'a Options,
    classes: BTreeMap<String, Class>,
    /// References of classes that remember none, by namespace and class, each under its object's name.
    made: BTreeMap<(String, String), BTreeMap<String, Reference>>,
    plan: Plan,
}

impl Reverse<'_> {
    fn workload(&mut self, at: usize, object: &Value, pointer: &str) {
        let Some(spec) = object.pointer(pointer) else { return };
        let namespace = text(object, "/metadata/namespace").unwrap_or(&self.options.namespace);
        let title = title(object, &self.options.namespace);
        let mut mounted = BTreeSet::new();
        for (place, container) in containers(spec) {
            for (variable_at, variable) in items(container, "/env").iter().enumerate() {
                let Some(selector) = variable.pointer("/valueFrom/csiSecretRef") else { continue };
                let name = text(variable, "/name").unwrap_or_default();
                let shown = format!("{title}, variable {name}");
                match self.origin(namespace, selector) {
                    Ok((class, origin)) => {
                        mounted.insert(class);
                        let mut key = json!({"name": origin.secret, "key": origin.key});
                        if selector.get("optional") == Some(&Value::Bool(true)) {
                            set(&mut key, "optional", true);
                        }
                        let pointer = format!("{pointer}{place}/env/{variable_at}/valueFrom");
                        let value = json!({"secretKeyRef": key});
                        self.plan.change(at, Change::Replace { pointer, value });
                        self.plan.report.mapped.push(shown);
                    }
                    Err(why) => self.plan.report.left.push(format!("{shown}: {why}")),
                }
            }
        }
        for class in mounted {
            self.mount(at, spec, pointer, &class);
        }
    }

    /// The Secret that a reference stands for, and the SecretProviderClass that makes it.
    fn origin(&mut self, namespace: &str, selector: &Value) -> Result<(String, Origin), String> {
        let name = text(selector, "/providerClassName").unwrap_or_default();
        let class = self.classes.get(name);
        let class =
            class.ok_or_else(|| format!("ProviderClass {name} is not among the objects"))?;
        let key = text(selector, "/key").unwrap_or_default().to_owned();
        let reference = Reference { key, parameters: text_map(selector, "/parameters") };
        if let Some(from) = class.from.as_ref().filter(|it| it.namespace == namespace) {
            let variable = from
                .variables
                .iter()
                .find(|it| it.key == reference.key && it.parameters == reference.parameters);
            if let Some(variable) = variable {
                return Ok((from.name.clone(), variable.origin.clone()));
            }
        }
        if provider_of(&class.driver, &class.parameters).is_none() {
            return Err(format!("no provider does what driver {:?} does", class.driver));
        }
        let object = object_name(&class.driver, &reference);
        let origin = Origin { secret: format!("{name}-env"), key: object.clone() };
        let place = (namespace.to_owned(), name.to_owned());
        self.made.entry(place).or_default().insert(object, reference);
        Ok((name.to_owned(), origin))
    }

    /// Secrets are kept in step only while a pod mounts the class.
    fn mount(&mut self, at: usize, spec: &Value, pointer: &str, class: &str) {
        let is_mounted = items(spec, "/volumes").iter().any(|it| {
            text(it, "/csi/driver") == Some(DRIVER)
                && text(it, "/csi/volumeAttributes/secretProviderClass") == Some(class)
        });
        if is_mounted {
            return;
        }
        let name = format!("secrets-store-{}", class.replace('.', "-"));
        let volume = json!({"name": name, "csi": {
            "driver": DRIVER,
            "readOnly": true,
            "volumeAttributes": {"secretProviderClass": class},
        }});
        let list = format!("{pointer}/volumes");
        self.plan.change(at, Change::Prepend { list, items: vec![volume] });
        let mount = json!({
            "name": name, "mountPath": format!("/mnt/secrets-store/{class}"), "readOnly": true,
        });
        let list = format!("{pointer}/containers/0/volumeMounts");
        self.plan.change(at, Change::Prepend { list, items: vec![mount] });
    }

    fn finish(mut self) -> Plan {
        for ((namespace, name), references) in &self.made {
            let Some(class) = self.classes.get(name) else { continue };
            let provider = provider_of(&class.driver, &class.parameters);
            match back(&class.driver, &class.parameters, references) {
                Ok(parameters) => self.plan.new.push(json!({
                    "apiVersion": format!("{GROUP}/v1"),
                    "kind": "SecretProviderClass",
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": {
                        "provider": provider,
                        "parameters": parameters,
                        "secretObjects": [{
                            "secretName": format!("{name}-env"),
                            "type": "Opaque",
                            "data": references.keys().map(|it| json!({"key": it, "objectName": it}))
                                .collect::<Vec<_>>(),
                        }],
                    },
                })),
                Err(why) => self.plan.report.left.push(format!("ProviderClass {name}: {why}")),
            }
        }
        self.plan
    }
}

/// A name for a mounted object that is also a key of a Secret. Providers have names of their own.
fn object_name(driver: &str, reference: &Reference) -> String {
    if driver == super::mapping::PROVIDER_DRIVER {
        return reference.key.clone();
    }
    let parts = [Some(&reference.key), reference.parameters.get("field")];
    let name = parts.into_iter().flatten().cloned().collect::<Vec<_>>().join("-");
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let version = ["version", "versionStage"].iter().filter_map(|it| reference.parameters.get(*it));
    let name = version.fold(name, |name, version| format!("{name}-{version}"));
    name.chars().map(plain).collect()
}
