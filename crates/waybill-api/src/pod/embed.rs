//! Where objects keep a pod spec.

use crate::field::FieldPath;

/// The JSON pointer to the pod spec in an object of `kind`; `None` if that kind embeds none.
///
/// `group` is the API group, empty for the core group.
pub fn pod_spec_pointer(group: &str, kind: &str) -> Option<&'static str> {
    match (group, kind) {
        ("", "Pod") => Some("/spec"),
        ("", "PodTemplate") => Some("/template/spec"),
        ("", "ReplicationController")
        | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job") => Some("/spec/template/spec"),
        ("batch", "CronJob") => Some("/spec/jobTemplate/spec/template/spec"),
        _ => None,
    }
}

/// The same place as [`pod_spec_pointer`], as errors name it.
pub fn pod_spec_path(group: &str, kind: &str) -> Option<FieldPath> {
    let mut fields = pod_spec_pointer(group, kind)?.split('/').skip(1);
    let root = FieldPath::new(fields.next()?);
    Some(fields.fold(root, |path, field| path.child(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(group: &str, kind: &str, pointer: &str, path: &str) {
        assert_eq!(pod_spec_pointer(group, kind), Some(pointer), "{kind}");
        assert_eq!(pod_spec_path(group, kind).unwrap().to_string(), path, "{kind}");
    }

    /// NAME-05
    #[test]
    fn every_kind_with_a_pod_template_is_known_name_05() {
        check("", "Pod", "/spec", "spec");
        check("", "PodTemplate", "/template/spec", "template.spec");
        for (group, kind) in [
            ("", "ReplicationController"),
            ("apps", "DaemonSet"),
            ("apps", "Deployment"),
            ("apps", "ReplicaSet"),
            ("apps", "StatefulSet"),
            ("batch", "Job"),
        ] {
            check(group, kind, "/spec/template/spec", "spec.template.spec");
        }
        check(
            "batch",
            "CronJob",
            "/spec/jobTemplate/spec/template/spec",
            "spec.jobTemplate.spec.template.spec",
        );
    }

    #[test]
    fn other_kinds_and_other_groups_have_none() {
        for (group, kind) in
            [("", "ConfigMap"), ("", "Deployment"), ("example.com", "Job"), ("apps", "Pod")]
        {
            assert_eq!(pod_spec_pointer(group, kind), None, "{group}/{kind}");
            assert_eq!(pod_spec_path(group, kind), None, "{group}/{kind}");
        }
    }
}
