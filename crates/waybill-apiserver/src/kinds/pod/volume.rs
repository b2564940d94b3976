//! The volumes of a pod.

mod remote;
mod source;

use std::collections::BTreeSet;

use waybill_api::{field::ErrorList, names::label_faults};

use crate::kinds::document::Field;

/// Every volume has a name of its own and exactly one source.
pub(super) fn check_volumes(volumes: Field<'_, '_>, errors: &mut ErrorList) {
    let mut names = BTreeSet::new();
    for volume in volumes.items() {
        check_source(volume, errors);
        let name = volume.get("name");
        if name.is_empty() {
            errors.push(name.required(""));
            continue;
        }
        errors.extend(name.all_invalid(label_faults(name.text())));
        if !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
    }
}

/// A token speaks for a service account, so there must be one.
pub(super) fn check_no_tokens(volumes: Field<'_, '_>, errors: &mut ErrorList) {
    for volume in volumes.items() {
        for source in volume.get("projected").get("sources").items() {
            let token = source.get("serviceAccountToken");
            if token.is_set() {
                let detail = "must not be specified when serviceAccountName is not set";
                errors.push(token.forbidden(detail));
            }
        }
    }
}

/// Why `path` could lead out of the folder it starts from.
pub(super) fn descending_path_fault(path: &str) -> Option<&'static str> {
    if path.starts_with('/') {
        return Some("must be a relative path");
    }
    path.split('/').any(|part| part == "..").then_some("must not contain '..'")
}

/// All that a volume can come from, in the order in which upstream looks for it.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

fn check_source(volume: Field<'_, '_>, errors: &mut ErrorList) {
    let mut found = false;
    for kind in SOURCES {
        let source = volume.get(kind);
        if !source.is_set() {
            continue;
        }
        if found {
            errors.push(source.forbidden("may not specify more than 1 volume type"));
            continue;
        }
        found = true;
        source::check(kind, source, errors);
    }
    if !found {
        errors.push(volume.required("must specify a volume type"));
    }
}

#[cfg(test)]
mod tests;
