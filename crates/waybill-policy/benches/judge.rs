//! What policies cost a request: ten that are about something else, and ten that judge a pod.

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use waybill_policy::{
    cel::{Authorize, Question, Verdict},
    policy::{ActivePolicy, Binding, Policy, judge},
    request::{
        AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation, ParamError,
        ParamQuery, Surroundings, UserInfo,
    },
};

struct Nothing;

impl Authorize for Nothing {
    fn authorize(&self, _: &Question) -> Verdict {
        Verdict::default()
    }
}

impl Surroundings for Nothing {
    fn namespace(&self, name: &str) -> Option<Arc<Value>> {
        Some(Arc::new(json!({"metadata": {"name": name, "labels": {"env-names": "strict"}}})))
    }

    fn params(&self, _: &ParamQuery<'_>) -> Result<Vec<Arc<Value>>, ParamError> {
        Ok(Vec::new())
    }
}

/// As `examples/strict-env-names.yaml` judges the containers of a pod.
const NAMES: &str = "object.spec.containers.all(c, !has(c.env) || c.env.all(e, \
    e.name.matches('^[-._a-zA-Z][-._a-zA-Z0-9]*$') && e.name != '.' && !e.name.startsWith('..')))";

fn policies(count: usize, resource: &str) -> Vec<ActivePolicy> {
    let one = |place: usize| {
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]});
        let policy = json!({"metadata": {"name": format!("p{place}")}, "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": NAMES}],
        }});
        let binding = json!({"metadata": {"name": "b"}, "spec": {
            "policyName": format!("p{place}"), "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"env-names": "strict"}}},
        }});
        ActivePolicy {
            policy: Arc::new(Policy::load(&policy).expect("it is sound")),
            bindings: vec![Arc::new(Binding::load(&binding).expect("it is sound"))],
        }
    };
    (0..count).map(one).collect()
}

fn bench(criterion: &mut Criterion) {
    let env: Vec<_> =
        (0..20).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "x"})).collect();
    let pod = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i", "env": env}]},
    });
    let user = UserInfo { username: "ann".to_owned(), ..UserInfo::default() };
    let request = AdmissionRequest {
        operation: Operation::Create,
        kind: GroupVersionKind { group: "", version: "v1", kind: "Pod" },
        resource: GroupVersionResource { group: "", version: "v1", resource: "pods" },
        subresource: "",
        name: "web",
        namespace: "default",
        user: &user,
        object: Some(&pod),
        old_object: None,
        options: None,
        dry_run: false,
    };
    let elsewhere = policies(10, "nodes");
    criterion.bench_function("10 policies about something else", |bencher| {
        bencher.iter(|| black_box(elsewhere.iter().any(|own| own.policy.may_match(&request))));
    });
    for count in [1, 10] {
        let active = policies(count, "pods");
        criterion.bench_function(&format!("{count} policies over 20 variables"), |bencher| {
            bencher.iter(|| {
                let outcome = judge(&active, &request, &Nothing);
                assert!(outcome.denials.is_empty());
            });
        });
    }
    criterion.bench_function("baseline: the pod copied", |bencher| {
        bencher.iter(|| black_box(pod.clone()));
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
