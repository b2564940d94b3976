//! The rules for one object, decided once.
//!
//! On create the gates decide. On update a stored object may keep what it already holds, so that
//! turning a gate off never freezes it (NAME-05, NAME-07).

use std::collections::HashSet;

use serde_json::Value;
use waybill_core::env::name::NameRules;

use super::{
    PodEnvSpec, allows_csi_words, csi_words, name_use::relaxed_names, validate::mount_findings,
};
use crate::gates::{FeatureGate, FeatureGates, KubeVersion};

/// What the environments of one object may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvRules {
    names: NameRules,
    csi_secret_ref: bool,
    csi_optional: bool,
    file_key_ref: bool,
    csi_words: bool,
    refuse_mounts: bool,
    old_mounts: bool,
}

impl EnvRules {
    /// The rules for a new object.
    pub fn for_create(gates: &FeatureGates) -> Self {
        let relaxed = gates.enabled(FeatureGate::RelaxedEnvironmentVariableValidation);
        Self {
            names: if relaxed { NameRules::Relaxed } else { NameRules::Strict },
            csi_secret_ref: gates.enabled(FeatureGate::CsiDirectEnvInjection),
            csi_optional: gates.emulated_version() >= CSI_OPTIONAL_SINCE,
            file_key_ref: gates.enabled(FeatureGate::EnvFiles),
            csi_words: false,
            refuse_mounts: false,
            old_mounts: false,
        }
    }

    /// The rules for `new`, which is to replace `old`.
    pub fn for_update(gates: &FeatureGates, new: &PodEnvSpec, old: &PodEnvSpec) -> Self {
        let mut rules = Self::for_create(gates);
        if keeps_relaxed_name(new, old) {
            rules.names = NameRules::Relaxed;
        }
        for source in old.sources() {
            rules.file_key_ref |= source.file_key_ref.is_some();
            if let Some(reference) = &source.csi_secret_ref {
                rules.csi_secret_ref = true;
                rules.csi_optional |= reference.optional;
            }
        }
        rules.csi_words = old.all_containers().any(|(_, _, old)| !csi_words(old).is_empty());
        rules.old_mounts = !mount_findings(old).is_empty();
        rules
    }

    /// These rules with what the operator chose.
    pub fn with_options(mut self, options: EnvOptions) -> Self {
        self.csi_optional |= options.csi_env_optional;
        self.refuse_mounts = options.strict_env_file_mounts && !self.old_mounts;
        self
    }

    /// These rules with what the `annotations` of the pod allow.
    pub fn with_annotations(mut self, annotations: &Value) -> Self {
        self.csi_words |= allows_csi_words(annotations);
        self
    }

    /// The rule for `env[].name` and `envFrom[].prefix`.
    pub fn names(&self) -> NameRules {
        self.names
    }

    /// Whether `csiSecretRef` may be used.
    pub(super) fn allows_csi_secret_ref(&self) -> bool {
        self.csi_secret_ref
    }

    /// Whether `csiSecretRef.optional` may be true.
    pub(super) fn allows_csi_optional(&self) -> bool {
        self.csi_optional
    }

    /// Whether commands and arguments may hold values from CSI drivers.
    pub(super) fn allows_csi_words(&self) -> bool {
        self.csi_words
    }

    /// Whether `fileKeyRef` may be used.
    pub(super) fn allows_file_key_ref(&self) -> bool {
        self.file_key_ref
    }

    /// Whether a doubtful mount of an env file's volume is an error rather than a warning.
    pub(super) fn refuses_mounts(&self) -> bool {
        self.refuse_mounts
    }
}

/// What an operator may choose beyond the gates; all off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnvOptions {
    /// Allows `csiSecretRef.optional` below the version that brings it (`csiEnvOptional`, OP-33).
    pub csi_env_optional: bool,
    /// Refuses what [`super::warnings`] would only mention (OP-20).
    pub strict_env_file_mounts: bool,
}

/// The version that gives `csiSecretRef.optional` its meaning (OP-33).
const CSI_OPTIONAL_SINCE: KubeVersion = KubeVersion::minor(37);

/// The released rule (OP-26): one relaxed name that stays is enough to relax the whole object.
fn keeps_relaxed_name(new: &PodEnvSpec, old: &PodEnvSpec) -> bool {
    let stored: HashSet<_> = relaxed_names(old).collect();
    relaxed_names(new).any(|name| stored.contains(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(version: &str) -> FeatureGates {
        FeatureGates::new(KubeVersion::parse(version).unwrap())
    }

    fn spec(value: &Value) -> PodEnvSpec {
        PodEnvSpec::from_value(value).unwrap()
    }

    fn named(names: &[&str]) -> PodEnvSpec {
        let env: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        spec(&json!({"containers": [{"env": env}]}))
    }

    /// 1.30 has the gate off, 1.32 has it on.
    #[track_caller]
    fn check_names(version: &str, old: &[&str], new: &[&str], expected: NameRules) {
        let rules = EnvRules::for_update(&at(version), &named(new), &named(old));
        assert_eq!(rules.names(), expected, "{old:?} to {new:?}");
    }

    /// NAME-06
    #[test]
    fn on_create_the_gate_decides_name_06() {
        assert_eq!(EnvRules::for_create(&at("1.30")).names(), NameRules::Strict);
        assert_eq!(EnvRules::for_create(&at("1.32")).names(), NameRules::Relaxed);
    }

    /// NAME-07, NAME-19
    #[test]
    fn on_update_one_kept_relaxed_name_relaxes_the_object_name_07_op_26() {
        let off = |old: &[&str], new: &[&str], expected| check_names("1.30", old, new, expected);
        off(&["A"], &["A"], NameRules::Strict);
        off(&["A"], &["a:b"], NameRules::Strict);
        off(&["a:b"], &["a:b"], NameRules::Relaxed);
        off(&["a:b"], &["a:b", "c:d"], NameRules::Relaxed);
        off(&["a:b", "c:d"], &["c:d"], NameRules::Relaxed);
        off(&["a:b"], &["c:d"], NameRules::Strict);
        off(&["a:b"], &[], NameRules::Strict);
        off(&[], &["a:b"], NameRules::Strict);
        // Names that not even the relaxed rule allows relax nothing.
        off(&["a=b"], &["a=b"], NameRules::Strict);
        off(&["é"], &["é"], NameRules::Strict);
        for (old, new) in [(&["A"][..], &["A"][..]), (&["A"], &["a:b"]), (&["a:b"], &["a:b"])] {
            check_names("1.32", old, new, NameRules::Relaxed);
        }
    }

    /// NAME-05
    #[test]
    fn a_kept_name_may_move_between_kinds_and_roles_name_05() {
        let places = [
            json!({"containers": [{"env": [{"name": "a:b"}]}]}),
            json!({"initContainers": [{"env": [{"name": "a:b"}]}]}),
            json!({"ephemeralContainers": [{"env": [{"name": "a:b"}]}]}),
            json!({"containers": [{"envFrom": [{"prefix": "a:b"}]}]}),
            json!({"initContainers": [{"envFrom": [{"prefix": "a:b"}]}]}),
            json!({"ephemeralContainers": [{"envFrom": [{"prefix": "a:b"}]}]}),
        ];
        for old in &places {
            for new in &places {
                let rules = EnvRules::for_update(&at("1.30"), &spec(new), &spec(old));
                assert_eq!(rules.names(), NameRules::Relaxed, "{old} to {new}");
            }
        }
    }

    /// CSI-10, FILE-09
    #[test]
    fn sources_in_use_stay_allowed_when_their_gate_goes_off_csi_10_file_09() {
        let empty = PodEnvSpec::default();
        let source = |field: &str| {
            spec(&json!({"initContainers": [{"env": [{"name": "A", "valueFrom": {field: {}}}]}]}))
        };
        let (csi, file) = (source("csiSecretRef"), source("fileKeyRef"));
        let off = at("1.30");
        let allowed =
            |rules: EnvRules| (rules.allows_csi_secret_ref(), rules.allows_file_key_ref());
        assert_eq!(allowed(EnvRules::for_create(&off)), (false, false));
        assert_eq!(allowed(EnvRules::for_update(&off, &csi, &empty)), (false, false));
        assert_eq!(allowed(EnvRules::for_update(&off, &empty, &csi)), (true, false));
        assert_eq!(allowed(EnvRules::for_update(&off, &empty, &file)), (false, true));
        assert_eq!(allowed(EnvRules::for_create(&FeatureGates::all_on())), (true, true));
    }

    #[test]
    fn optional_needs_a_version_an_option_or_a_stored_one_op_33() {
        let allowed = |rules: EnvRules| rules.allows_csi_optional();
        let optional = EnvOptions { csi_env_optional: true, ..EnvOptions::default() };
        assert!(!allowed(EnvRules::for_create(&at("1.36"))));
        assert!(allowed(EnvRules::for_create(&at("1.37"))));
        assert!(allowed(EnvRules::for_create(&at("1.36")).with_options(optional)));
        assert!(!allowed(EnvRules::for_create(&at("1.36")).with_options(EnvOptions::default())));

        let stored = |optional: bool| {
            spec(&json!({"containers": [{"env": [
                {"name": "A", "valueFrom": {"csiSecretRef": {"optional": optional}}}]}]}))
        };
        let update = |old| EnvRules::for_update(&at("1.36"), &stored(true), &old);
        assert!(allowed(update(stored(true))));
        assert!(!allowed(update(stored(false))));
    }

    #[test]
    fn words_with_fetched_values_need_an_annotation_or_a_stored_one() {
        let words = spec(&json!({"containers": [{"args": ["$(S)"], "env": [
            {"name": "S", "valueFrom": {"csiSecretRef": {}}}]}]}));
        let gates = FeatureGates::all_on();
        let create = EnvRules::for_create(&gates);
        assert!(!create.allows_csi_words());
        let annotations = json!({"waybill.dev/allow-csi-env-in-args": "true"});
        assert!(create.with_annotations(&annotations).allows_csi_words());
        assert!(!EnvRules::for_update(&gates, &words, &PodEnvSpec::default()).allows_csi_words());
        assert!(EnvRules::for_update(&gates, &words, &words).allows_csi_words());
    }

    #[test]
    fn the_strict_mount_option_spares_what_is_stored_op_20() {
        let strict = EnvOptions { strict_env_file_mounts: true, ..EnvOptions::default() };
        let doubtful = spec(&json!({"containers": [{
            "env": [{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v"}}}],
            "volumeMounts": [{"name": "v"}],
        }]}));
        let gates = FeatureGates::all_on();
        let create = EnvRules::for_create(&gates);
        assert!(!create.refuses_mounts());
        assert!(create.with_options(strict).refuses_mounts());
        let clean = EnvRules::for_update(&gates, &doubtful, &PodEnvSpec::default());
        assert!(clean.with_options(strict).refuses_mounts());
        let stored = EnvRules::for_update(&gates, &doubtful, &doubtful);
        assert!(!stored.with_options(strict).refuses_mounts());
    }
}
