//! Takes the steps of a plan, in their order, with what was fetched for them.

use waybill_core::env::{
    limits::check_kernel_string,
    merge::{EnvVar, Environment, Tier},
    name::{EnvName, NameRules},
    origin::Origin,
    value::EnvValue,
};

use super::{
    Request, Resolved, Resolver, Warning, config_map, csi,
    error::{Located, Place, Reason, title},
    file,
    gather::Gathered,
    plan::{AllKeys, Plan, Source, Step, Variable},
    secret,
};
use crate::objects::{ObjectError, ObjectKind};

/// Each key of an object with its value.
pub(super) type Pairs = Vec<(String, EnvValue)>;

pub(super) fn merge(
    resolver: &Resolver,
    request: Request<'_>,
    plan: &Plan<'_>,
    gathered: &Gathered<'_>,
) -> Located<Resolved> {
    let mut merge = Merge {
        resolver,
        request,
        gathered,
        environment: Environment::new(),
        warnings: Vec::new(),
    };
    merge.environment.extend(Tier::Baseline, resolver.node.variables());
    for step in &plan.steps {
        match step {
            Step::All(all) => {
                merge.define_all(all).map_err(|reason| (Place::EnvFrom(all.position), reason))?
            }
            Step::One(variable) => merge
                .define_one(variable)
                .map_err(|reason| (Place::Variable(variable.name.to_string()), reason))?,
        }
    }
    let Merge { environment, warnings, .. } = merge;
    check_sizes(&environment)?;
    Ok(Resolved { environment, warnings })
}

struct Merge<'a> {
    resolver: &'a Resolver,
    request: Request<'a>,
    gathered: &'a Gathered<'a>,
    environment: Environment,
    warnings: Vec<Warning>,
}

impl Merge<'_> {
    /// Every key becomes a variable called prefix and key (NAME-12). One that no API server would let
    /// through is left out, and its owner told.
    fn define_all(&mut self, all: &AllKeys<'_>) -> Result<(), Reason> {
        let pairs = match all.kind {
            ObjectKind::Secret => secret::all(self.gathered, all.name),
            _ => config_map::all(self.gathered, all.name),
        };
        let pairs = match pairs {
            Err(Reason::Object(error)) if all.optional && error.is_not_found() => return Ok(()),
            pairs => pairs?,
        };
        let mut skipped = Vec::new();
        for (key, value) in pairs {
            match EnvName::parse(&format!("{}{key}", all.prefix), NameRules::Relaxed) {
                Ok(name) => {
                    let origin = origin_of_key(all.kind, all.name, &key);
                    self.environment.set(Tier::Baseline, EnvVar { name, value, origin });
                }
                Err(_) => skipped.push(format!("{:?}", format!("{}{key}", all.prefix))),
            }
        }
        if !skipped.is_empty() {
            self.warn_of_names(all, &skipped);
        }
        Ok(())
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

    fn define_one(&mut self, variable: &Variable<'_>) -> Result<(), Reason> {
        if let Source::Text(text) = &variable.source {
            let template = text.expose().as_bytes();
            let name = variable.name.clone();
            return Ok(self.environment.set_expanded(name, template, Origin::Literal)?);
        }
        if let Some((value, origin)) = self.look_up(&variable.source)? {
            let name = variable.name.clone();
            self.environment.set(Tier::Baseline, EnvVar { name, value, origin });
        }
        Ok(())
    }

    /// The value, and where it is from; none if it is missing and may be.
    fn look_up(&self, source: &Source<'_>) -> Result<Option<(EnvValue, Origin)>, Reason> {
        let node = &self.resolver.node;
        Ok(match source {
            // Defined above, where earlier variables are at hand.
            Source::Text(_) => None,
            Source::Csi(selector) => return Err(csi::look_up(selector).into()),
            Source::Field(path) => {
                let value = path.look_up(self.request.pod, node, self.request.pod_ips)?;
                let origin = Origin::Field { path: path.text().into() };
                Some((EnvValue::plain(value.into_bytes())?, origin))
            }
            Source::Resource(path) => {
                let value = path.look_up(self.request.pod, self.request.container, node)?;
                let origin = Origin::Resource { resource: path.text().into() };
                Some((EnvValue::plain(value.into_bytes())?, origin))
            }
            Source::File(selector) => {
                let origin = Origin::File {
                    volume: (*selector.volume_name).into(),
                    path: (*selector.path).into(),
                    key: (*selector.key).into(),
                };
                file::look_up(self.gathered, selector)?.map(|value| (value, origin))
            }
            Source::Key(kind, selector) => {
                let found = match kind {
                    ObjectKind::Secret => secret::one(self.gathered, selector),
                    _ => config_map::one(self.gathered, selector),
                };
                let found = match found {
                    Err(Reason::Object(error)) if error.is_not_found() => Err(error),
                    found => Ok(found?),
                };
                let origin = origin_of_key(*kind, &selector.name, &selector.key);
                match found {
                    Ok(Some(value)) => Some((value, origin)),
                    _ if selector.optional => None,
                    Err(error) => return Err(error.into()),
                    Ok(None) => {
                        return Err(Reason::Key {
                            kind: *kind,
                            namespace: self.request.pod.namespace().to_owned(),
                            name: selector.name.clone(),
                            key: selector.key.clone(),
                        });
                    }
                }
            }
        })
    }
}

/// What was gathered under a name. It always was; the type does not say so.
pub(super) fn gathered<T: Clone>(
    found: Option<&Result<T, ObjectError>>,
    kind: ObjectKind,
    name: &str,
) -> Result<T, Reason> {
    match found {
        Some(answer) => Ok(answer.clone()?),
        None => Err(ObjectError::NotFound { kind, name: name.to_owned() }.into()),
    }
}

fn origin_of_key(kind: ObjectKind, name: &str, key: &str) -> Origin {
    match kind {
        ObjectKind::Secret => Origin::Secret { name: name.into(), key: key.into() },
        _ => Origin::ConfigMap { name: name.into(), key: key.into() },
    }
}

/// OP-3: a clear error instead of a bare `E2BIG` at the start.
fn check_sizes(environment: &Environment) -> Located<()> {
    environment.iter().try_for_each(|entry| {
        check_kernel_string(entry.name(), entry.value())
            .map_err(|error| (Place::Variable(entry.name().to_string()), error.into()))
    })
}
