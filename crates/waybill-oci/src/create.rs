//! `create`: references in the environment of a new container become values, in memory only.

use std::path::Path;

use waybill_api::stock::{
    AskedReference, AskedValues, DEBUG_VARIABLE, PodFacts, Reference, literal,
};
use waybill_core::env::{
    limits::check_kernel_string,
    name::{EnvName, NameRules},
    value::EnvValue,
};

use crate::{
    agent,
    bundle::{Bundle, Identity},
    debug,
    fault::{CreateFault, Fault},
    memory::is_memory,
    node::Node,
};

/// Prepares the bundle. One in which nothing is ours stays as it is, and costs one look at its file.
pub(crate) fn create(
    node: &Node,
    id: &str,
    bundle: Option<&Path>,
    root: Option<&Path>,
) -> Result<(), Fault> {
    let directory = bundle.unwrap_or(Path::new("."));
    // A bundle that cannot be read is the runtime's to complain about: it makes no container of it.
    let Ok(found) = Bundle::read_if_it_has(directory, &["waybill{", DEBUG_VARIABLE]) else {
        return Ok(());
    };
    let Some(mut bundle) = found else { return Ok(()) };
    let changed = debug::begin(node, id, &mut bundle)?;
    if resolve(node, &mut bundle, directory, root)? || changed {
        bundle.write().map_err(|_| CreateFault::Bundle)?;
    }
    Ok(())
}

/// Whether the bundle is another now.
fn resolve(
    node: &Node,
    bundle: &mut Bundle,
    directory: &Path,
    root: Option<&Path>,
) -> Result<bool, CreateFault> {
    let mut env = bundle.env();
    let mut asked = Vec::new();
    let mut places = Vec::new();
    let mut changed = false;
    for (place, entry) in env.iter_mut().enumerate() {
        let Some((name, value)) = entry.split_once('=') else { continue };
        match Reference::parse(value).map_err(|_| CreateFault::BrokenReference)? {
            Some(reference) => {
                asked.push(AskedReference::new(name, &reference));
                places.push(place);
            }
            None => {
                if let Some(meant) = literal(value) {
                    *entry = format!("{name}={meant}");
                    changed = true;
                }
            }
        }
    }
    if !asked.is_empty() {
        let identity = bundle.owner(node.engine()).pod().ok_or(CreateFault::UnknownReference)?;
        let facts = node.facts(&identity.uid).ok_or(CreateFault::UnknownPod)?;
        check_known(&facts, &identity, &asked)?;
        let default_root = node.default_root();
        // runc keeps no environment in its state, but crun does.
        if ![directory, root.unwrap_or(&default_root)].into_iter().all(is_memory_or_becomes) {
            return Err(CreateFault::OnDisk);
        }
        let names: Vec<_> = asked.iter().map(|reference| reference.name.clone()).collect();
        let question = AskedValues {
            version: AskedValues::VERSION,
            uid: identity.uid,
            container: identity.container,
            attempt: None,
            references: asked,
        };
        for (answered, place) in agent::ask(node, &question)?.into_iter().zip(places) {
            let entry = env.get_mut(place).ok_or(CreateFault::Agent)?;
            *entry = variable(&answered.name, answered.value.expose()).ok_or(CreateFault::Value)?;
        }
        changed = bundle.set_references(&names);
    }
    if changed && !bundle.set_env(env) {
        return Err(CreateFault::Bundle);
    }
    Ok(changed)
}

/// Only what stands in the API's pod is asked for: an image cannot smuggle in a reference.
fn check_known(
    facts: &PodFacts,
    identity: &Identity,
    asked: &[AskedReference],
) -> Result<(), CreateFault> {
    let container =
        facts.containers.get(&identity.container).ok_or(CreateFault::UnknownReference)?;
    let is_known = |reference: &AskedReference| container.references.contains(&reference.name);
    if asked.iter().all(is_known) { Ok(()) } else { Err(CreateFault::UnknownReference) }
}

/// A state directory that does not exist yet is made where its parent is.
fn is_memory_or_becomes(directory: &Path) -> bool {
    let existing = directory.ancestors().find(|ancestor| ancestor.exists());
    existing.is_some_and(is_memory)
}

/// `NAME=value` as the runtime's format and the kernel take it.
fn variable(name: &str, value: &[u8]) -> Option<String> {
    let text = str::from_utf8(value).ok()?;
    let value = EnvValue::secret(value.to_vec()).ok()?;
    check_kernel_string(&EnvName::parse(name, NameRules::Kernel).ok()?, &value).ok()?;
    Some(format!("{name}={text}"))
}
