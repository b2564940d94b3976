//! The bindings of one scope, found by who they name.
//!
//! A scope is the cluster or one namespace. Service accounts are users whose name says so, so two
//! maps suffice, and a request looks up its user and its groups instead of reading every binding.

use std::{collections::HashMap, fmt, sync::Arc};

use super::objects::{Binding, Subject};
use crate::request::User;

/// The bindings of the cluster, or of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bindings {
    by_name: HashMap<String, Arc<Binding>>,
    users: HashMap<String, Vec<Grant>>,
    groups: HashMap<String, Vec<Grant>>,
}

impl Bindings {
    /// Adds `binding`, or puts it in the place of the one of its name.
    pub(super) fn put(&mut self, binding: Binding) {
        self.remove(&binding.metadata.name);
        let binding = Arc::new(binding);
        for (position, subject) in binding.subjects.iter().enumerate() {
            if let Some(who) = Who::of(subject, &binding.metadata.namespace) {
                let grant = Grant { binding: Arc::clone(&binding), subject: position };
                insert_sorted(self.grants_mut(who), grant);
            }
        }
        self.by_name.insert(binding.metadata.name.clone(), binding);
    }

    /// Removes the binding `name`, if there is one.
    pub(super) fn remove(&mut self, name: &str) {
        let Some(binding) = self.by_name.remove(name) else { return };
        for subject in &binding.subjects {
            match Who::of(subject, &binding.metadata.namespace) {
                Some(Who::User(user)) => forget(&mut self.users, &user, name),
                Some(Who::Group(group)) => forget(&mut self.groups, &group, name),
                None => {}
            }
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Everything that `user` is granted here: by name first, then by each group.
    pub(super) fn grants(&self, user: &User) -> impl Iterator<Item = &Grant> {
        let by_group = user.groups.iter().filter_map(|group| self.groups.get(group)).flatten();
        self.users.get(&user.name).into_iter().flatten().chain(by_group)
    }

    fn grants_mut(&mut self, who: Who) -> &mut Vec<Grant> {
        match who {
            Who::User(user) => self.users.entry(user).or_default(),
            Who::Group(group) => self.groups.entry(group).or_default(),
        }
    }
}

/// A binding, and the subject of it that names the one who asks.
///
/// Its text is the one that Kubernetes gives as the reason of a permission, including its order of
/// name and namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(super) binding: Arc<Binding>,
    subject: usize,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { metadata, role_ref, subjects } = &*self.binding;
        match metadata.namespace.as_str() {
            "" => write!(f, "ClusterRoleBinding {:?}", metadata.name)?,
            namespace => write!(f, "RoleBinding \"{}/{namespace}\"", metadata.name)?,
        }
        write!(f, " of {} {:?} to ", role_ref.kind, role_ref.name)?;
        let Some(subject) = subjects.get(self.subject) else { return Ok(()) };
        if subject.kind != SERVICE_ACCOUNT {
            return write!(f, "{} {:?}", subject.kind, subject.name);
        }
        let namespace = account_namespace(subject, &metadata.namespace);
        write!(f, "{} \"{}/{namespace}\"", subject.kind, subject.name)
    }
}

const SERVICE_ACCOUNT: &str = "ServiceAccount";

/// Who a subject is, as requests name them.
enum Who {
    Group(String),
    User(String),
}

impl Who {
    /// Nobody, if the kind is unknown, or if a service account lacks a namespace.
    fn of(subject: &Subject, namespace: &str) -> Option<Self> {
        match subject.kind.as_str() {
            "User" => Some(Self::User(subject.name.clone())),
            "Group" => Some(Self::Group(subject.name.clone())),
            SERVICE_ACCOUNT => match account_namespace(subject, namespace) {
                "" => None,
                namespace => {
                    Some(Self::User(format!("system:serviceaccount:{namespace}:{}", subject.name)))
                }
            },
            _ => None,
        }
    }
}

/// A service account without namespace is one of the binding's namespace.
fn account_namespace<'a>(subject: &'a Subject, namespace: &'a str) -> &'a str {
    if subject.namespace.is_empty() { namespace } else { &subject.namespace }
}

/// Keeps grants ordered by binding, so that the order of changes leaves no trace. A subject that
/// stands twice in a binding counts once.
fn insert_sorted(grants: &mut Vec<Grant>, grant: Grant) {
    let name = &grant.binding.metadata.name;
    if let Err(at) = grants.binary_search_by(|other| other.binding.metadata.name.cmp(name)) {
        grants.insert(at, grant);
    }
}

fn forget(grants: &mut HashMap<String, Vec<Grant>>, who: &str, binding: &str) {
    if let Some(list) = grants.get_mut(who) {
        list.retain(|grant| grant.binding.metadata.name != binding);
        if list.is_empty() {
            grants.remove(who);
        }
    }
}
