//! Fetches what a plan needs, everything at once.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::join_all;
use waybill_core::{
    env::value::{EnvValue, EnvValueError},
    secret::SecretBytes,
};

use super::{
    Request, Resolver, config_map,
    file::{self, FileAnswer, FileError},
    plan::Plan,
    secret,
};
use crate::{
    csi::{Asker, Fetched},
    objects::{ConfigMap, ObjectError, ObjectKind, Secret, Wanted},
};

/// What was fetched, or why not. Whether a failure matters, the steps decide.
#[derive(Default)]
pub(super) struct Gathered<'p> {
    pub(super) config_maps: BTreeMap<&'p str, Result<Arc<ConfigMap>, ObjectError>>,
    pub(super) secrets: BTreeMap<&'p str, Result<Arc<Secret>, ObjectError>>,
    /// By volume and path.
    pub(super) files: BTreeMap<(&'p str, &'p str), Result<FileAnswer, FileError>>,
    pub(super) csi: Fetched,
}

/// The keys of an object, and how their content becomes a value.
pub(super) struct Content<'g> {
    pub(super) data: &'g BTreeMap<String, SecretBytes>,
    pub(super) to_value: fn(&SecretBytes) -> Result<EnvValue, EnvValueError>,
}

impl Gathered<'_> {
    /// What an object that the plan needs gives to environments.
    pub(super) fn content(&self, kind: ObjectKind, name: &str) -> Result<Content<'_>, ObjectError> {
        let missing = || ObjectError::NotFound { kind, name: name.to_owned() };
        match kind {
            ObjectKind::Secret => match self.secrets.get(name) {
                Some(found) => found.as_deref().map(secret::content).map_err(Clone::clone),
                None => Err(missing()),
            },
            ObjectKind::ConfigMap => match self.config_maps.get(name) {
                Some(found) => found.as_deref().map(config_map::content).map_err(Clone::clone),
                None => Err(missing()),
            },
            // No variable can ask for one.
            ObjectKind::ServiceAccountToken => Err(missing()),
        }
    }
}

pub(super) async fn gather<'p>(
    resolver: &Resolver,
    request: Request<'p>,
    plan: &Plan<'p>,
) -> Gathered<'p> {
    let needs = plan.needs();
    let of_kind = |wanted| {
        let objects = needs.objects.iter();
        objects.filter(move |(kind, _)| *kind == wanted).map(|(_, name)| *name)
    };
    let objects = &resolver.objects;
    let config_maps = join_all(
        of_kind(ObjectKind::ConfigMap)
            .map(async |name| (name, objects.config_map(Wanted::by(request.pod, name)).await)),
    );
    let secrets = join_all(
        of_kind(ObjectKind::Secret)
            .map(async |name| (name, objects.secret(Wanted::by(request.pod, name)).await)),
    );
    let files =
        join_all(needs.files.iter().map(async |(file, keys)| {
            (*file, file::read(resolver, request.pod, *file, keys).await)
        }));
    let csi = csi_values(resolver, request, plan);
    let (config_maps, secrets, files, csi) = tokio::join!(config_maps, secrets, files, csi);
    Gathered {
        config_maps: config_maps.into_iter().collect(),
        secrets: secrets.into_iter().collect(),
        files: files.into_iter().collect(),
        csi,
    }
}

async fn csi_values(resolver: &Resolver, request: Request<'_>, plan: &Plan<'_>) -> Fetched {
    let variables = plan.csi_variables();
    let Request { pod, container, .. } = request;
    match pod.environment_of(container.kind, container.name()) {
        Some(container) if !variables.is_empty() => {
            resolver.csi.fetch(Asker { pod, container }, &variables).await
        }
        _ => Fetched::default(),
    }
}
