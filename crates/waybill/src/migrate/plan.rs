//! What becomes of every object: new classes, changed workloads, and what stays as it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use serde_json::{Value, json};
use waybill_api::node::AUTOMATIC_DRIVER;

use super::{
    class::{Origin, can_be_listed, provider_class, user_roles},
    document::{containers, items, pod_spec, set, text, title},
    mapping::{Mapping, Reference, csi_driver, map},
    synced::{DRIVER, SyncedClass},
};

/// The longest name of an object.
const NAME_BYTES: usize = 253;

/// How to migrate.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// For objects that name none.
    pub(super) namespace: String,
    pub(super) keep_provider: bool,
    /// Whether volumes of the Secrets Store driver go, where nothing needs their Secret any more.
    pub(super) drop_volumes: bool,
}

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Objects to make.
    pub(super) new: Vec<Value>,
    /// Changes by the position of the object among the inputs.
    pub(super) changes: BTreeMap<usize, Vec<Change>>,
    pub(super) report: Report,
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// Puts `value` where the pointer says.
    Replace { pointer: String, value: Value },
    /// Takes a list's item away.
    Remove { list: String, at: usize },
    /// Puts items in front of a list, which may not be there yet.
    Prepend { list: String, items: Vec<Value> },
}

impl Change {
    /// The same change of an object that stands at `pointer` in a document.
    pub(super) fn below(&self, pointer: &str) -> Self {
        match self.clone() {
            Self::Replace { pointer: at, value } => {
                Self::Replace { pointer: format!("{pointer}{at}"), value }
            }
            Self::Remove { list, at } => Self::Remove { list: format!("{pointer}{list}"), at },
            Self::Prepend { list, items } => {
                Self::Prepend { list: format!("{pointer}{list}"), items }
            }
        }
    }
}

/// What people should read.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Variables that changed.
    pub(super) mapped: Vec<String>,
    /// What could not be mapped and stays as it is.
    pub(super) left: Vec<String>,
    /// What to look at besides.
    pub(super) notes: Vec<String>,
}

impl Plan {
    /// From Secrets in step with a provider to variables from drivers.
    pub(super) fn forward(objects: &[Value], options: &Options) -> Self {
        let classes = objects.iter().filter_map(|it| SyncedClass::read(it, &options.namespace));
        let mut plan = Self::default();
        let classes = classes.map(|class| {
            let mapping = map(&class, options.keep_provider);
            if let Err(why) = &mapping {
                plan.report.left.push(format!("{}: {why}", class.title()));
            }
            Rc::new(Known { class, mapping: mapping.ok() })
        });
        let classes = classes.collect();
        let mut forward = Forward { options, classes, used: BTreeMap::new(), plan };
        for (at, object) in objects.iter().enumerate() {
            if let Some(pointer) = pod_spec(object) {
                forward.migrate(at, object, pointer);
            }
        }
        forward.finish(objects)
    }

    /// One that is there already may ask for more tokens, so it is left alone; one that the API server made
    /// asks for none, and takes ours.
    fn add_driver(&mut self, driver: Value, objects: &[Value]) {
        let same = |it: &Value| {
            ["/kind", "/metadata/name"].iter().all(|at| text(it, at) == text(&driver, at))
        };
        match objects.iter().find(|it| same(it)) {
            Some(found) if found.pointer("/spec/tokenRequests").is_some() => {}
            Some(found) if !is_automatic(found) => {
                let name = text(&driver, "/metadata/name").unwrap_or_default();
                let note = "asks for no token; add tokenRequests, as its guide says";
                self.report.notes.push(format!("CSIDriver {name}: {note}"));
            }
            _ if self.new.iter().any(same) => {}
            _ => self.new.push(driver),
        }
    }

    pub(super) fn change(&mut self, object: usize, change: Change) {
        self.changes.entry(object).or_default().push(change);
    }
}

struct Forward<'a> {
    options: &'a Options,
    classes: Vec<Rc<Known>>,
    /// By the name of the new class.
    used: BTreeMap<String, Use>,
    plan: Plan,
}

/// A class, and what it becomes; nothing if it cannot be mapped.
struct Known {
    class: SyncedClass,
    mapping: Option<Mapping>,
}

impl Known {
    fn makes(&self, namespace: &str, secret: &str) -> bool {
        self.class.namespace == namespace && self.class.secrets.iter().any(|it| it.name == secret)
    }

    /// Classes of ours stand beside all namespaces. No namespace has a dot in its name, so the first one ends it,
    /// and no two classes of two namespaces share a name.
    fn new_name(&self) -> Result<String, String> {
        let name = format!("{}.{}", self.class.namespace, self.class.name);
        if name.len() > NAME_BYTES {
            return Err(format!(
                "ProviderClass {name} would have a name of more than {NAME_BYTES} bytes; give the \
                 SecretProviderClass a shorter one"
            ));
        }
        Ok(name)
    }

    /// The keys of a Secret.
    fn keys_of(&self, secret: &str) -> Vec<&str> {
        let secrets = self.class.secrets.iter().filter(|it| it.name == secret);
        secrets.flat_map(|it| it.keys.iter().map(|(key, _)| key.as_str())).collect()
    }

    /// What stands for a key of a Secret.
    fn reference(&self, secret: &str, key: &str) -> Result<(&Mapping, Reference), String> {
        let title = self.class.title();
        let mapping = self.mapping.as_ref().ok_or_else(|| format!("{title} cannot be mapped"))?;
        let object = self.class.object_of(secret, key);
        let object =
            object.ok_or_else(|| format!("{title} puts no key {key:?} into Secret {secret}"))?;
        let reference = mapping.objects.get(object);
        let reference = reference.ok_or_else(|| format!("{title} has no object {object:?}"))?;
        let reference = reference.clone().map_err(|why| format!("object {object:?}: {why}"))?;
        if !can_be_listed(&reference.key) {
            return Err(format!("its key {:?} cannot stand in allowedFields", reference.key));
        }
        Ok((mapping, reference))
    }
}

/// How a class is used after the migration.
struct Use {
    known: Rc<Known>,
    accounts: BTreeSet<String>,
    keys: BTreeSet<String>,
    /// Where a reference came from, for the way back.
    origins: BTreeMap<Reference, Origin>,
}

/// A workload, and the place of its pod spec.
struct Workload<'a> {
    at: usize,
    title: String,
    namespace: &'a str,
    account: &'a str,
    spec: &'a str,
}

impl Forward<'_> {
    fn migrate(&mut self, at: usize, object: &Value, pointer: &str) {
        let Some(spec) = object.pointer(pointer) else { return };
        let workload = Workload {
            at,
            title: title(object, &self.options.namespace),
            namespace: text(object, "/metadata/namespace").unwrap_or(&self.options.namespace),
            account: text(spec, "/serviceAccountName").unwrap_or("default"),
            spec: pointer,
        };
        let before = self.plan.changes.len();
        for (place, container) in containers(spec) {
            self.migrate_container(&workload, &place, container);
        }
        if self.plan.changes.len() > before && text(object, "/kind") == Some("Pod") {
            let note = "variables of a pod that runs cannot change: delete and create it";
            self.plan.report.notes.push(format!("{}: {note}", workload.title));
        }
        self.note_other_uses(&workload, spec);
        if self.options.drop_volumes {
            self.drop_volumes(&workload, spec);
        }
    }

    fn migrate_container(&mut self, workload: &Workload<'_>, place: &str, container: &Value) {
        let name = text(container, "/name").unwrap_or_default();
        let mut unfolded = Vec::new();
        for (at, source) in items(container, "/envFrom").iter().enumerate().rev() {
            let Some(secret) = text(source, "/secretRef/name") else { continue };
            let prefix = text(source, "/prefix").unwrap_or_default();
            let optional = source.pointer("/secretRef/optional") == Some(&Value::Bool(true));
            let Some(found) = self.find(workload, secret) else { continue };
            let keys = found.keys_of(secret);
            let shown = format!("{}, container {name}, envFrom {secret}", workload.title);
            let selectors = keys.iter().map(|key| {
                let origin = Origin { secret: secret.to_owned(), key: (*key).to_owned() };
                self.selector(workload, &found, origin, optional)
            });
            let selectors: Result<Vec<_>, _> = selectors.collect();
            match selectors {
                Ok(selectors) => {
                    let variable = |(key, selector): (&&str, Value)| json!({"name": format!("{prefix}{key}"), "valueFrom": {"csiSecretRef": selector}});
                    let variables: Vec<_> = keys.iter().zip(selectors).map(variable).collect();
                    unfolded.splice(0..0, variables);
                    let list = format!("{}{place}/envFrom", workload.spec);
                    self.plan.change(workload.at, Change::Remove { list, at });
                    self.plan.report.mapped.push(format!("{shown}: {} variables", keys.len()));
                }
                Err(why) => self.plan.report.left.push(format!("{shown}: {why}")),
            }
        }
        for (at, variable) in items(container, "/env").iter().enumerate() {
            let Some(secret) = text(variable, "/valueFrom/secretKeyRef/name") else { continue };
            let Some(found) = self.find(workload, secret) else { continue };
            let key = text(variable, "/valueFrom/secretKeyRef/key").unwrap_or_default();
            let optional =
                variable.pointer("/valueFrom/secretKeyRef/optional") == Some(&Value::Bool(true));
            let shown = text(variable, "/name").unwrap_or_default();
            let shown = format!("{}, container {name}, variable {shown}", workload.title);
            let origin = Origin { secret: secret.to_owned(), key: key.to_owned() };
            match self.selector(workload, &found, origin, optional) {
                Ok(selector) => {
                    let pointer = format!("{}{place}/env/{at}/valueFrom", workload.spec);
                    let value = json!({"csiSecretRef": selector});
                    self.plan.change(workload.at, Change::Replace { pointer, value });
                    self.plan.report.mapped.push(shown);
                }
                Err(why) => self.plan.report.left.push(format!("{shown}: {why}")),
            }
        }
        if !unfolded.is_empty() {
            let list = format!("{}{place}/env", workload.spec);
            self.plan.change(workload.at, Change::Prepend { list, items: unfolded });
        }
    }

    /// The class that keeps `secret` in step; none if no class does, or more than one.
    fn find(&mut self, workload: &Workload<'_>, secret: &str) -> Option<Rc<Known>> {
        let mut found = self.classes.iter().filter(|it| it.makes(workload.namespace, secret));
        let known = Rc::clone(found.next()?);
        if found.next().is_some() {
            let note = format!("{}: more than one class makes Secret {secret}", workload.title);
            self.plan.report.left.push(note);
            return None;
        }
        Some(known)
    }

    /// What stands in `csiSecretRef` for a key of a Secret.
    fn selector(
        &mut self,
        workload: &Workload<'_>,
        known: &Rc<Known>,
        origin: Origin,
        optional: bool,
    ) -> Result<Value, String> {
        let (mapping, reference) = known.reference(&origin.secret, &origin.key)?;
        let name = known.new_name()?;
        let mut selector = json!({
            "driver": mapping.driver, "providerClassName": name, "key": reference.key,
        });
        if !reference.parameters.is_empty() {
            set(&mut selector, "parameters", json!(reference.parameters));
        }
        if optional {
            set(&mut selector, "optional", true);
        }
        // It would have the address of whichever came first.
        if self.used.get(&name).is_some_and(|used| !Rc::ptr_eq(&used.known, known)) {
            return Err(format!("{} is there twice; leave one of them out", known.class.title()));
        }
        let used = self.used.entry(name).or_insert_with(|| Use {
            known: Rc::clone(known),
            accounts: BTreeSet::new(),
            keys: BTreeSet::new(),
            origins: BTreeMap::new(),
        });
        used.accounts.insert(workload.account.to_owned());
        used.keys.insert(reference.key.clone());
        used.origins.entry(reference).or_insert(origin);
        Ok(selector)
    }

    /// A Secret may be needed for more than variables.
    fn note_other_uses(&mut self, workload: &Workload<'_>, spec: &Value) {
        let volumes =
            items(spec, "/volumes").iter().filter_map(|it| text(it, "/secret/secretName"));
        let pulls = items(spec, "/imagePullSecrets").iter().filter_map(|it| text(it, "/name"));
        for secret in volumes.chain(pulls) {
            if self.classes.iter().any(|it| it.makes(workload.namespace, secret)) {
                let note = "is used for more than variables, and still needs its class and volume";
                self.plan.report.notes.push(format!("{}: Secret {secret} {note}", workload.title));
            }
        }
    }

    fn drop_volumes(&mut self, workload: &Workload<'_>, spec: &Value) {
        for (at, volume) in items(spec, "/volumes").iter().enumerate().rev() {
            let class = text(volume, "/csi/volumeAttributes/secretProviderClass");
            let (Some(DRIVER), Some(class)) = (text(volume, "/csi/driver"), class) else {
                continue;
            };
            let mapped = self.used.values().any(|used| {
                let it = &used.known.class;
                it.namespace == workload.namespace && it.name == class
            });
            if !mapped {
                continue;
            }
            let name = text(volume, "/name").unwrap_or_default();
            for (place, container) in containers(spec) {
                let mounts = items(container, "/volumeMounts");
                for (mount, found) in mounts.iter().enumerate().rev() {
                    if text(found, "/name") == Some(name) {
                        let list = format!("{}{place}/volumeMounts", workload.spec);
                        self.plan.change(workload.at, Change::Remove { list, at: mount });
                    }
                }
            }
            let list = format!("{}/volumes", workload.spec);
            self.plan.change(workload.at, Change::Remove { list, at });
        }
    }

    fn finish(mut self, objects: &[Value]) -> Plan {
        for (name, used) in &self.used {
            let Known { class, mapping: Some(mapping) } = &*used.known else { continue };
            let mut mapping = mapping.clone();
            if let Some(role) = role_arn(objects, &class.namespace, &used.accounts)
                && mapping.wants_role()
            {
                mapping.set_role(role);
            }
            let notes = mapping.notes.iter().map(|note| format!("ProviderClass {name}: {note}"));
            self.plan.report.notes.extend(notes);
            let object = provider_class(name, class, &mapping, &used.keys, &used.origins);
            self.plan.new.push(object);
            if let Some(driver) = csi_driver(&mapping) {
                self.plan.add_driver(driver, objects);
            }
            self.plan.new.extend(user_roles(name, &class.namespace, &used.accounts));
        }
        if !self.used.is_empty() {
            let note = "keep every SecretProviderClass until you know that you will not go back";
            self.plan.report.notes.push(note.to_owned());
        }
        self.plan
    }
}

fn is_automatic(driver: &Value) -> bool {
    let annotations = driver.pointer("/metadata/annotations");
    annotations.and_then(|it| it.get(AUTOMATIC_DRIVER)).is_some()
}

/// The one role that all `accounts` have, if they have one and the objects tell.
fn role_arn(objects: &[Value], namespace: &str, accounts: &BTreeSet<String>) -> Option<String> {
    let role = |account: &String| {
        let object = objects.iter().find(|it| {
            text(it, "/kind") == Some("ServiceAccount")
                && text(it, "/metadata/name") == Some(account)
                && text(it, "/metadata/namespace").is_none_or(|it| it == namespace)
        })?;
        text(object, "/metadata/annotations/eks.amazonaws.com~1role-arn")
    };
    let roles: BTreeSet<_> = accounts.iter().map(role).collect();
    match roles.into_iter().collect::<Vec<_>>()[..] {
        [Some(role)] => Some(role.to_owned()),
        _ => None,
    }
}
