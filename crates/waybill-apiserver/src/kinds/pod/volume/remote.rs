//! Volumes that come from elsewhere: claims made for the pod, images, and storage on the network.

use waybill_api::{
    field::{ErrorList, FieldError},
    names::label_faults,
};

use super::{descending_path_fault, source::check_required};
use crate::kinds::{
    document::Field,
    pod::spec::{check_choice, check_optional_choice},
};

/// The source of the given `kind`.
pub(super) fn check(kind: &str, source: Field<'_, '_>, errors: &mut ErrorList) {
    for (of, fields) in REQUIRED {
        if of == kind {
            fields.iter().for_each(|field| check_required(source.get(field), errors));
        }
    }
    match kind {
        "awsElasticBlockStore" | "gcePersistentDisk" => {
            check_range(source.get("partition"), errors);
        }
        "azureDisk" => check_azure_disk(source, errors),
        "cinder" => check_secret(source, errors),
        "ephemeral" => check_claim(source.get("volumeClaimTemplate"), errors),
        "fc" => check_fibre_channel(source, errors),
        "flexVolume" => check_flex(source, errors),
        "flocker" => check_flocker(source, errors),
        "gitRepo" => {
            let directory = source.get("directory");
            if let Some(fault) = descending_path_fault(directory.text()) {
                errors.push(directory.invalid_text(fault));
            }
        }
        "image" if source.get("pullPolicy").is_empty() => {}
        "image" => check_choice(source.get("pullPolicy"), &PULL_POLICIES, errors),
        "iscsi" => check_iscsi(source, errors),
        "nfs" => {
            let path = source.get("path");
            if !path.is_empty() && !path.text().starts_with('/') {
                errors.push(path.invalid_text("must be an absolute path"));
            }
        }
        "quobyte" => check_quobyte(source, errors),
        "storageos" => check_storage_os(source, errors),
        _ => {}
    }
}

/// Fields that must not be empty, whatever else.
const REQUIRED: [(&str, &[&str]); 18] = [
    ("awsElasticBlockStore", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("azureFile", &["secretName", "shareName"]),
    ("cephfs", &["monitors"]),
    ("cinder", &["volumeID"]),
    ("flexVolume", &["driver"]),
    ("gcePersistentDisk", &["pdName"]),
    ("gitRepo", &["repository"]),
    ("glusterfs", &["endpoints", "path"]),
    ("image", &["reference"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("nfs", &["server", "path"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("quobyte", &["volume"]),
    ("rbd", &["monitors", "image"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("vsphereVolume", &["volumePath"]),
];

const CACHING_MODES: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
const DISK_KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// Partitions and logical units.
fn check_range(number: Field<'_, '_>, errors: &mut ErrorList) {
    if number.number().is_some_and(|number| !(0..=255).contains(&number)) {
        errors.push(number.invalid("must be between 0 and 255, inclusive"));
    }
}

fn check_secret(source: Field<'_, '_>, errors: &mut ErrorList) {
    let secret = source.get("secretRef");
    if secret.is_set() {
        check_required(secret.get("name"), errors);
    }
}

fn check_azure_disk(source: Field<'_, '_>, errors: &mut ErrorList) {
    check_optional_choice(source.get("cachingMode"), &CACHING_MODES, errors);
    check_optional_choice(source.get("kind"), &DISK_KINDS, errors);
}

/// The claim that is made for the pod.
fn check_claim(template: Field<'_, '_>, errors: &mut ErrorList) {
    if !template.is_set() {
        errors.push(template.required(""));
        return;
    }
    let spec = template.get("spec");
    let (modes, resources) = (spec.get("accessModes"), spec.get("resources"));
    let requests = resources.get("requests");
    if modes.is_empty() {
        errors.push(modes.required("at least 1 access mode is required"));
    }
    for mode in modes.items() {
        if !ACCESS_MODES.contains(&mode.text()) {
            errors.push(modes.invalid_choice(mode.text(), &ACCESS_MODES));
        }
    }
    if !requests.get("storage").is_set() {
        // The place is upstream's.
        errors.push(FieldError::required(resources.path().key("storage"), ""));
    }
}

const ACCESS_MODES: [&str; 4] =
    ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn check_fibre_channel(source: Field<'_, '_>, errors: &mut ErrorList) {
    let (targets, ids, unit) = (source.get("targetWWNs"), source.get("wwids"), source.get("lun"));
    match (targets.is_empty(), ids.is_empty()) {
        (true, true) => {
            let detail = "must specify either targetWWNs or wwids, but not both";
            errors.push(targets.required(detail));
        }
        (false, false) => {
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            errors.push(targets.invalid(detail));
        }
        (false, true) if !unit.is_set() => {
            errors.push(unit.required("lun is required if targetWWNs is specified"));
        }
        (false, true) => check_range(unit, errors),
        (true, false) => {}
    }
}

fn check_flex(source: Field<'_, '_>, errors: &mut ErrorList) {
    for (key, option) in source.get("options").entries() {
        let domain = key.split('/').next().filter(|_| key.contains('/')).unwrap_or_default();
        let reserved = ["kubernetes.io", "k8s.io"].iter().any(|own| {
            domain == *own || domain.strip_suffix(own).is_some_and(|rest| rest.ends_with('.'))
        });
        if reserved {
            let detail = "`kubernetes.io` and `k8s.io` namespaces are reserved";
            errors.push(option.invalid_as(key, detail));
        }
    }
}

fn check_flocker(source: Field<'_, '_>, errors: &mut ErrorList) {
    let (name, id) = (source.get("datasetName"), source.get("datasetUUID"));
    match (name.is_empty(), id.is_empty()) {
        (true, true) => {
            errors.push(source.required("one of datasetName and datasetUUID is required"));
        }
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            errors.push(source.invalid_as("resource", detail));
        }
        (true, false) | (false, true) => {}
    }
    if name.text().contains('/') {
        errors.push(name.invalid_text("must not contain '/'"));
    }
}

fn check_iscsi(source: Field<'_, '_>, errors: &mut ErrorList) {
    let name = source.get("iqn");
    let known = ["iqn", "eui", "naa"].iter().any(|prefix| name.text().starts_with(prefix));
    if !name.is_empty() && !known {
        let detail = "must be valid format starting with iqn, eui, or naa";
        errors.push(name.invalid_text(detail));
    }
    check_range(source.get("lun"), errors);
    let authenticates =
        ["chapAuthDiscovery", "chapAuthSession"].iter().any(|field| source.get(field).is_true());
    if authenticates && !source.get("secretRef").is_set() {
        errors.push(source.get("secretRef").required(""));
    }
}

fn check_quobyte(source: Field<'_, '_>, errors: &mut ErrorList) {
    let registry = source.get("registry");
    let rule = "must be a host:port pair or multiple pairs separated by commas";
    if registry.is_empty() {
        errors.push(registry.required(rule));
        return;
    }
    let is_pair = |pair: &str| {
        let port = pair.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        matches!(port, Some(Ok(_)))
    };
    if !registry.text().split(',').all(is_pair) {
        errors.push(registry.invalid_text(rule));
    }
}

fn check_storage_os(source: Field<'_, '_>, errors: &mut ErrorList) {
    for name in ["volumeName", "volumeNamespace"] {
        let field = source.get(name);
        if !field.is_empty() {
            errors.extend(field.all_invalid(label_faults(field.text())));
        }
    }
    check_secret(source, errors);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::kinds::pod::testing::check_spec;

    /// A volume with this source earns these errors, whose places are within it.
    #[track_caller]
    fn check(kind: &str, source: &Value, expected: &[&str]) {
        let expected: Vec<_> =
            expected.iter().map(|error| format!("spec.volumes[0].{kind}{error}")).collect();
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        check_spec(&json!({"volumes": [{"name": "v", kind: source}]}), &expected);
    }

    #[test]
    fn every_source_has_fields_that_it_needs() {
        for (kind, good, missing) in [
            ("awsElasticBlockStore", json!({"volumeID": "v"}), &["volumeID"] as &[&str]),
            ("azureDisk", json!({"diskName": "d", "diskURI": "u"}), &["diskName", "diskURI"]),
            (
                "azureFile",
                json!({"secretName": "s", "shareName": "n"}),
                &["secretName", "shareName"],
            ),
            ("cephfs", json!({"monitors": ["m"]}), &["monitors"]),
            ("cinder", json!({"volumeID": "v"}), &["volumeID"]),
            ("flexVolume", json!({"driver": "d"}), &["driver"]),
            ("gcePersistentDisk", json!({"pdName": "p"}), &["pdName"]),
            ("gitRepo", json!({"repository": "r"}), &["repository"]),
            ("glusterfs", json!({"endpoints": "e", "path": "p"}), &["endpoints", "path"]),
            ("image", json!({"reference": "r"}), &["reference"]),
            (
                "iscsi",
                json!({"targetPortal": "t", "iqn": "iqn.x", "lun": 0}),
                &["targetPortal", "iqn"],
            ),
            ("nfs", json!({"server": "s", "path": "/"}), &["server", "path"]),
            ("persistentVolumeClaim", json!({"claimName": "c"}), &["claimName"]),
            ("photonPersistentDisk", json!({"pdID": "p"}), &["pdID"]),
            ("portworxVolume", json!({"volumeID": "v"}), &["volumeID"]),
            ("rbd", json!({"monitors": ["m"], "image": "i"}), &["monitors", "image"]),
            (
                "scaleIO",
                json!({"gateway": "g", "system": "s", "volumeName": "v"}),
                &["gateway", "system", "volumeName"],
            ),
            ("vsphereVolume", json!({"volumePath": "p"}), &["volumePath"]),
        ] {
            check(kind, &good, &[]);
            let missing: Vec<_> =
                missing.iter().map(|field| format!(".{field}: Required value")).collect();
            let missing: Vec<_> = missing.iter().map(String::as_str).collect();
            check(kind, &json!({}), &missing);
        }
        check("storageos", &json!({}), &[]);
        check("ephemeral", &json!({}), &[".volumeClaimTemplate: Required value"]);
        check("fc", &json!({}), &[".targetWWNs: Required value: must specify either targetWWNs"]);
        check("flocker", &json!({}), &[": Required value: one of datasetName and datasetUUID is"]);
        check(
            "quobyte",
            &json!({}),
            &[".volume: Required value", ".registry: Required value: must be a host:port pair"],
        );
    }

    #[test]
    fn fields_of_a_source_have_rules() {
        check(
            "nfs",
            &json!({"server": "s", "path": "p"}),
            &[".path: Invalid value: \"p\": must be an"],
        );
        check(
            "gitRepo",
            &json!({"repository": "r", "directory": "../x"}),
            &[".directory: Invalid value: \"../x\": must not contain '..'"],
        );
        check(
            "iscsi",
            &json!({"targetPortal": "t", "iqn": "x", "lun": 256, "chapAuthSession": true}),
            &[
                ".iqn: Invalid value: \"x\": must be valid format starting with iqn, eui, or naa",
                ".lun: Invalid value: 256: must be between 0 and 255, inclusive",
                ".secretRef: Required value",
            ],
        );
        check(
            "azureDisk",
            &json!({"diskName": "d", "diskURI": "u", "kind": "Odd", "cachingMode": "Odd"}),
            &[".cachingMode: Unsupported value: \"Odd\"", ".kind: Unsupported value: \"Odd\""],
        );
        check(
            "fc",
            &json!({"targetWWNs": ["a"]}),
            &[".lun: Required value: lun is required if tar"],
        );
        check(
            "fc",
            &json!({"targetWWNs": ["a"], "lun": 1, "wwids": ["b"]}),
            &[".targetWWNs: Invalid"],
        );
        check(
            "flocker",
            &json!({"datasetName": "a/b", "datasetUUID": "u"}),
            &[": Invalid value: \"resource\": datasetName and", ".datasetName: Invalid value"],
        );
        check(
            "flexVolume",
            &json!({"driver": "d", "options": {"x.k8s.io/a": "b", "k8s.io.example.com/a": "b"}}),
            &[".options[x.k8s.io/a]: Invalid value: \"x.k8s.io/a\": `kubernetes.io` and `k8s.io`"],
        );
        check("cinder", &json!({"volumeID": "v", "secretRef": {}}), &[".secretRef.name: Required"]);
        check(
            "storageos",
            &json!({"volumeName": "A"}),
            &[".volumeName: Invalid value: \"A\": a lo"],
        );
        check(
            "image",
            &json!({"reference": "r", "pullPolicy": "Odd"}),
            &[".pullPolicy: Unsupported"],
        );
        check(
            "quobyte",
            &json!({"volume": "v", "registry": "a:1,b"}),
            &[".registry: Invalid value: \"a:1,b\": must be a host:port pair or multiple"],
        );
    }

    #[test]
    fn a_claim_for_the_pod_is_a_whole_claim() {
        let claim = |spec: Value| json!({"volumeClaimTemplate": {"spec": spec}});
        let good = json!({
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        check("ephemeral", &claim(good), &[]);
        check(
            "ephemeral",
            &claim(json!({})),
            &[
                ".volumeClaimTemplate.spec.accessModes: Required value: at least 1 access mode is",
                ".volumeClaimTemplate.spec.resources[storage]: Required value",
            ],
        );
        check(
            "ephemeral",
            &claim(json!({"accessModes": ["Odd"], "resources": {"requests": {"storage": "1"}}})),
            &[".volumeClaimTemplate.spec.accessModes: Unsupported value: \"Odd\": supported val"],
        );
    }
}
