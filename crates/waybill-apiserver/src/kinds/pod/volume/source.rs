//! The sources of volumes, and what each of them needs.

use std::collections::BTreeSet;

use waybill_api::{
    field::{ErrorList, FieldError},
    names::subdomain_faults,
    quantity,
};
use waybill_core::quantity::Quantity;

use super::{descending_path_fault, remote};
use crate::kinds::{document::Field, selector::check_label_selector};

/// The source of the given `kind`.
pub(super) fn check(kind: &str, source: Field<'_, '_>, errors: &mut ErrorList) {
    match kind {
        "configMap" => {
            check_required(source.get("name"), errors);
            check_files(source, errors);
        }
        "csi" => check_csi(source, errors),
        "downwardAPI" => {
            check_mode(source.get("defaultMode"), errors);
            check_downward(source.get("items"), errors);
        }
        "emptyDir" => check_empty_dir(source, errors),
        "hostPath" => check_host_path(source, errors),
        "persistentVolumeClaim" => check_required(source.get("claimName"), errors),
        "projected" => check_projected(source, errors),
        "secret" => {
            check_required(source.get("secretName"), errors);
            check_files(source, errors);
        }
        _ => remote::check(kind, source, errors),
    }
}

/// `field` must not be empty.
pub(super) fn check_required(field: Field<'_, '_>, errors: &mut ErrorList) {
    if field.is_empty() {
        errors.push(field.required(""));
    }
}

const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const PROJECTIONS: [&str; 6] = [
    "clusterTrustBundle",
    "configMap",
    "downwardAPI",
    "podCertificate",
    "secret",
    "serviceAccountToken",
];
const DRIVER_BYTES: usize = 63;
const MODE_RULE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const TOKEN_SECONDS: std::ops::RangeInclusive<i64> = 600..=(1 << 32);
const KEY_TYPES: [&str; 6] =
    ["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096"];

fn check_mode(mode: Field<'_, '_>, errors: &mut ErrorList) {
    if mode.number().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        errors.push(mode.invalid(MODE_RULE));
    }
}

/// The keys of a ConfigMap or Secret, as files.
fn check_files(source: Field<'_, '_>, errors: &mut ErrorList) {
    check_mode(source.get("defaultMode"), errors);
    for item in source.get("items").items() {
        check_required(item.get("key"), errors);
        check_file_path(item.get("path"), errors);
        check_mode(item.get("mode"), errors);
    }
}

/// Names that start with two dots are the node's, which swaps contents by them.
fn check_file_path(path: Field<'_, '_>, errors: &mut ErrorList) {
    if path.is_empty() {
        errors.push(path.required(""));
        return;
    }
    if let Some(fault) = descending_path_fault(path.text()) {
        errors.push(path.invalid_text(fault));
    }
    if path.text().starts_with("..") && !path.text().starts_with("../") {
        errors.push(path.invalid_text("must not start with '..'"));
    }
}

fn check_downward(items: Field<'_, '_>, errors: &mut ErrorList) {
    for item in items.items() {
        check_file_path(item.get("path"), errors);
        check_mode(item.get("mode"), errors);
        let (field, resource) = (item.get("fieldRef"), item.get("resourceFieldRef"));
        match (field.is_set(), resource.is_set()) {
            (true, true) => errors.push(item.invalid_as(
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            )),
            (false, false) => {
                errors.push(item.required("one of fieldRef and resourceFieldRef is required"));
            }
            (true, false) => check_required(field.get("fieldPath"), errors),
            (false, true) => {
                check_required(resource.get("containerName"), errors);
                check_required(resource.get("resource"), errors);
            }
        }
    }
}

fn check_empty_dir(source: Field<'_, '_>, errors: &mut ErrorList) {
    let limit = source.get("sizeLimit");
    if limit.is_set() && quantity::read(limit.value()).map_or(true, Quantity::is_negative) {
        errors.push(limit.forbidden("SizeLimit field must be a valid resource quantity"));
    }
}

fn check_host_path(source: Field<'_, '_>, errors: &mut ErrorList) {
    let (path, kind) = (source.get("path"), source.get("type"));
    if path.is_empty() {
        errors.push(path.required(""));
        return;
    }
    if path.text().split('/').any(|part| part == "..") {
        errors.push(path.invalid_text("must not contain '..'"));
    }
    if !HOST_PATH_TYPES.contains(&kind.text()) {
        errors.push(kind.not_supported(&HOST_PATH_TYPES));
    }
}

fn check_csi(source: Field<'_, '_>, errors: &mut ErrorList) {
    let driver = source.get("driver");
    if driver.is_empty() {
        errors.push(driver.required(""));
    } else if driver.text().len() > DRIVER_BYTES {
        errors.push(FieldError::too_long(driver.path(), DRIVER_BYTES));
    } else {
        errors.extend(driver.all_invalid(subdomain_faults(&driver.text().to_lowercase())));
    }
    let secret = source.get("nodePublishSecretRef");
    if secret.is_set() && secret.get("name").is_empty() {
        errors.push(secret.get("name").required(""));
    }
}

fn check_projected(projected: Field<'_, '_>, errors: &mut ErrorList) {
    check_mode(projected.get("defaultMode"), errors);
    let mut paths = BTreeSet::new();
    for source in projected.get("sources").items() {
        let mut found = false;
        for kind in PROJECTIONS {
            let projection = source.get(kind);
            if !projection.is_set() {
                continue;
            }
            if found {
                errors.push(projection.forbidden("may not specify more than 1 volume type"));
                continue;
            }
            found = true;
            check_projection(kind, projection, errors);
            for path in projected_paths(projection) {
                if !paths.insert(path) {
                    errors.push(projected.invalid_as(path, "conflicting duplicate paths"));
                }
            }
        }
        if !found {
            errors.push(source.required("must specify a volume type"));
        }
    }
}

fn check_projection(kind: &str, projection: Field<'_, '_>, errors: &mut ErrorList) {
    match kind {
        "configMap" | "secret" => {
            check_required(projection.get("name"), errors);
            check_files(projection, errors);
        }
        "clusterTrustBundle" => check_trust_bundle(projection, errors),
        "downwardAPI" => check_downward(projection.get("items"), errors),
        "podCertificate" => {
            check_required(projection.get("signerName"), errors);
            let key = projection.get("keyType");
            if !KEY_TYPES.contains(&key.text()) {
                errors.push(key.not_supported(&KEY_TYPES));
            }
        }
        "serviceAccountToken" => {
            check_file_path(projection.get("path"), errors);
            let seconds = projection.get("expirationSeconds");
            match seconds.number() {
                Some(found) if found < *TOKEN_SECONDS.start() => {
                    errors.push(seconds.invalid("may not specify a duration less than 10 minutes"));
                }
                Some(found) if found > *TOKEN_SECONDS.end() => {
                    let detail = "may not specify a duration larger than 2^32 seconds";
                    errors.push(seconds.invalid(detail));
                }
                _ => {}
            }
        }
        _ => {}
    }
}

/// A bundle is named, or chosen among those of a signer.
fn check_trust_bundle(bundle: Field<'_, '_>, errors: &mut ErrorList) {
    let (name, signer) = (bundle.get("name"), bundle.get("signerName"));
    match (name.is_set(), signer.is_set()) {
        (true, true) => {
            errors.push(bundle.invalid("only one of name and signerName may be used"));
        }
        (true, false) if name.is_empty() => {
            errors.push(name.required("must be a valid object name"));
        }
        (true, false) if bundle.get("labelSelector").is_set() => {
            let detail = "labelSelector must be unset if name is specified";
            errors.push(bundle.get("labelSelector").invalid(detail));
        }
        (false, true) if signer.is_empty() => {
            errors.push(signer.required("must be a valid signer name"));
        }
        (true, false) | (false, true) => {
            check_label_selector(bundle.get("labelSelector"), errors);
        }
        (false, false) => {
            errors.push(bundle.required("either name or signerName must be specified"));
        }
    }
    check_file_path(bundle.get("path"), errors);
}

/// The files that a projection is known to make.
fn projected_paths<'v>(projection: Field<'v, '_>) -> Vec<&'v str> {
    let items = projection.get("items");
    let mut paths: Vec<_> = items.items().map(|item| item.get("path").text()).collect();
    paths.push(projection.get("path").text());
    paths.retain(|path| !path.is_empty());
    paths
}
