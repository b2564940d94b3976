//! Takes the steps of a plan, in their order, with what was fetched for them.

use std::{collections::BTreeMap, mem};

use waybill_api::pod::CsiSecretSelector;
use waybill_core::env::{
    limits::{KERNEL_TOTAL_BYTES, check_kernel_string},
    merge::{Entry, EnvVar, Environment, Tier},
    name::{EnvName, NameRules},
    origin::Origin,
    value::EnvValue,
};

use super::{
    Request, Resolved, Resolver, Warning,
    csi::{self, CsiFault},
    error::{At, Fault, Place, Reason, title},
    file,
    gather::Gathered,
    plan::{AllKeys, Plan, Source, Step, Variable},
};
use crate::{
    csi::Fetched,
    objects::{ObjectError, ObjectKind},
};

pub(super) fn merge(
    resolver: &Resolver,
    request: Request<'_>,
    plan: &Plan<'_>,
    gathered: &mut Gathered<'_>,
) -> Result<Resolved, Fault> {
    let csi = mem::take(&mut gathered.csi);
    let missing = csi::missing(&csi);
    let Fetched { values, injected, failures } = csi;
    if !failures.is_empty() {
        return Err(CsiFault::Failed(failures)).at(|| Place::Variables(missing));
    }
    let (environment, warnings) = (Environment::new(), Vec::new());
    let mut merge = Merge { resolver, request, gathered, values, environment, warnings, bytes: 0 };
    merge.environment.extend(Tier::Baseline, resolver.node.variables());
    for (position, step) in plan.steps.iter().enumerate() {
        match step {
            Step::All(all) => merge.define_all(all)?,
            Step::One(variable) => {
                let defined = merge.define_one(position, variable);
                let defined = defined.and_then(|()| merge.count(variable.name.as_bytes()));
                defined.at(|| Place::Variable(variable.name.to_string()))?;
            }
        }
    }
    let Merge { environment, warnings, .. } = merge;
    check_sizes(&environment)?;
    Ok(Resolved { environment, warnings, injected })
}

struct Merge<'a> {
    resolver: &'a Resolver,
    request: Request<'a>,
    gathered: &'a Gathered<'a>,
    /// From drivers, by the position of the step.
    values: BTreeMap<usize, EnvValue>,
    environment: Environment,
    warnings: Vec<Warning>,
    /// What the kernel counts for all that was defined so far, at most.
    bytes: usize,
}

impl Merge<'_> {
    /// Every key becomes a variable called prefix and key (NAME-12). One that no API server would let
    /// through is left out, and its owner told.
    fn define_all(&mut self, all: &AllKeys<'_>) -> Result<(), Fault> {
        let content = match self.gathered.content(all.kind, all.name) {
            Err(error) if all.optional && error.is_not_found() => return Ok(()),
            content => content.at(|| Place::EnvFrom(all.position))?,
        };
        let mut skipped = Vec::new();
        for (key, bytes) in content.data {
            let name = format!("{}{key}", all.prefix);
            match EnvName::parse(&name, NameRules::Relaxed) {
                Ok(name) => {
                    let value = (content.to_value)(bytes);
                    let value = value.at(|| Place::Variable(name.to_string()))?;
                    let origin = origin_of_key(all.kind, all.name, key);
                    self.environment
                        .set(Tier::Baseline, EnvVar { name: name.clone(), value, origin });
                    let counted = self.count(name.as_bytes());
                    counted.at(|| Place::Variable(name.to_string()))?;
                }
                Err(_) => skipped.push(format!("{name:?}")),
            }
        }
        if !skipped.is_empty() {
            self.warn_of_names(all, &skipped);
        }
        Ok(())
    }

    /// Counts a variable that was just defined. Thousands of them that refer to a long one would need
    /// gigabytes, so what the kernel does not take is told before the next is built.
    fn count(&mut self, name: &[u8]) -> Result<(), Reason> {
        let added = self.environment.get(name).map_or(0, Entry::kernel_bytes);
        self.bytes = self.bytes.saturating_add(added);
        if self.bytes > KERNEL_TOTAL_BYTES {
            // Some may have been defined more than once.
            self.bytes = self.environment.kernel_bytes();
        }
        if self.bytes > KERNEL_TOTAL_BYTES { Err(Reason::TooMany) } else { Ok(()) }
    }

    fn warn_of_names(&mut self, all: &AllKeys<'_>, skipped: &[String]) {
        let message = format!(
            "Keys [{}] from the EnvFrom {} {}/{} were skipped since they are considered invalid \
             environment variable names.",
            skipped.join(", "),
            title(all.kind),
            self.request.pod.namespace(),
            all.name,
        );
        self.warnings.push(Warning { reason: "InvalidEnvironmentVariableNames", message });
    }

    fn define_one(&mut self, position: usize, variable: &Variable<'_>) -> Result<(), Reason> {
        let name = variable.name.clone();
        let (value, origin) = match &variable.source {
            Source::Text(text) => {
                let template = text.expose().as_bytes();
                return Ok(self.environment.set_expanded(name, template, Origin::Literal)?);
            }
            Source::Csi(selector) => match self.values.remove(&position) {
                Some(value) => (value, origin_of_csi(selector)),
                // It is optional, and the driver has none.
                None => return Ok(()),
            },
            Source::Field(path) => {
                let value =
                    path.look_up(self.request.pod, &self.resolver.node, self.request.pod_ips)?;
                (plain(value)?, Origin::Field { path: path.text().into() })
            }
            Source::Resource(path) => {
                let Request { pod, container, .. } = self.request;
                let value = path.look_up(pod, container, &self.resolver.node)?;
                (plain(value)?, Origin::Resource { resource: path.text().into() })
            }
            Source::File(selector) => match file::look_up(self.gathered, selector)? {
                Some(found) => found,
                None => return Ok(()),
            },
            Source::Key(kind, selector) => {
                match self.look_up_key(*kind, &selector.name, &selector.key) {
                    Err(error) if selector.optional && error.is_absence() => return Ok(()),
                    found => (found?, origin_of_key(*kind, &selector.name, &selector.key)),
                }
            }
        };
        self.environment.set(Tier::Baseline, EnvVar { name, value, origin });
        Ok(())
    }

    fn look_up_key(&self, kind: ObjectKind, name: &str, key: &str) -> Result<EnvValue, Reason> {
        let content = self.gathered.content(kind, name)?;
        let missing = || Reason::Key {
            kind,
            namespace: self.request.pod.namespace().to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
        };
        Ok((content.to_value)(content.data.get(key).ok_or_else(missing)?)?)
    }
}

impl Reason {
    /// Whether something is simply not there, which `optional` excuses.
    fn is_absence(&self) -> bool {
        matches!(self, Self::Key { .. } | Self::Object(ObjectError::NotFound { .. }))
    }
}

fn plain(value: String) -> Result<EnvValue, Reason> {
    Ok(EnvValue::plain(value.into_bytes())?)
}

fn origin_of_key(kind: ObjectKind, name: &str, key: &str) -> Origin {
    match kind {
        ObjectKind::Secret => Origin::Secret { name: name.into(), key: key.into() },
        ObjectKind::ConfigMap | ObjectKind::ServiceAccountToken => {
            Origin::ConfigMap { name: name.into(), key: key.into() }
        }
    }
}

fn origin_of_csi(selector: &CsiSecretSelector) -> Origin {
    Origin::Csi {
        driver: (&*selector.driver).into(),
        class: (&*selector.provider_class_name).into(),
        key: (&*selector.key).into(),
    }
}

/// OP-3: a clear error instead of a bare `E2BIG` at the start.
fn check_sizes(environment: &Environment) -> Result<(), Fault> {
    environment.iter().try_for_each(|entry| {
        let checked = check_kernel_string(entry.name(), entry.value());
        checked.at(|| Place::Variable(entry.name().to_string()))
    })
}
