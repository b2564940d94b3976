//! What the other parts of a cluster may do: the controller manager, its controllers, the scheduler, proxies.
//!
//! Nothing of ours needs these roles; they are for Kubernetes' own components on this server. The controllers are those
//! of Kubernetes that work on resources we serve. Each of them is a service account of `kube-system`.

use serde_json::{Value, json};

use super::{
    ALL, API_VERSION, AUTHENTICATION, AUTHORIZATION, COORDINATION, CORE, EVENTS, GROUP, PolicyRule,
    READ, STORAGE, binding, metadata, role,
};

const ADMISSION: &str = "admissionregistration.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const DISCOVERY: &str = "discovery.k8s.io";

/// Where controllers have their accounts, and where servers find how users are authenticated.
const SYSTEM: &str = "kube-system";

/// How servers beside this one learn whom it believes.
pub(crate) const AUTHENTICATION_INFO: &str = "extension-apiserver-authentication";

/// Every role of other components, and who has it.
pub(super) fn objects() -> Vec<Value> {
    let mut objects = vec![
        role("system:kube-controller-manager", &controller_manager()),
        role("system:kube-scheduler", &scheduler()),
        role("system:node-proxier", &proxy()),
        binding("system:kube-controller-manager", &[user("system:kube-controller-manager")]),
        binding("system:kube-scheduler", &[user("system:kube-scheduler")]),
        binding("system:node-proxier", &[user("system:kube-proxy")]),
    ];
    for signer in SIGNERS {
        let short = signer.trim_start_matches("kubernetes.io/");
        let rule = PolicyRule::resources(&[CERTIFICATES], &["signers"], &["approve"]);
        let name = format!("system:certificates.k8s.io:{short}-approver");
        objects.push(role(&name, &[rule.named(&[signer])]));
    }
    for (name, rules) in controllers() {
        let role_name = format!("system:controller:{name}");
        objects.push(role(&role_name, &rules));
        objects.push(binding(&role_name, &[account(name)]));
    }
    objects.extend(of_the_system_namespace());
    objects
}

const SIGNERS: [&str; 4] = [
    "kubernetes.io/kube-apiserver-client",
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/legacy-unknown",
];

/// It lists and watches for its controllers, whatever there is, and makes accounts for them.
fn controller_manager() -> Vec<PolicyRule> {
    let mut rules = vec![
        write_events(),
        PolicyRule::resources(&[COORDINATION], &["leases"], &["create"]),
        PolicyRule::resources(&[COORDINATION], &["leases"], &["get", "update"])
            .named(&["kube-controller-manager"]),
        PolicyRule::resources(&[CORE], &["secrets", "serviceaccounts"], &["create", "update"]),
        PolicyRule::resources(&[CORE], &["secrets"], &["delete"]),
        PolicyRule::resources(
            &[CORE],
            &["configmaps", "namespaces", "secrets", "serviceaccounts"],
            &["get"],
        ),
        PolicyRule::resources(&[CORE], &["serviceaccounts/token"], &["create"]),
        PolicyRule::resources(&[ALL], &[ALL], &["list", "watch"]),
    ];
    rules.extend(reviews());
    rules
}

fn scheduler() -> Vec<PolicyRule> {
    let mut rules = vec![
        write_events(),
        PolicyRule::resources(&[COORDINATION], &["leases"], &["create"]),
        PolicyRule::resources(&[COORDINATION], &["leases"], &["get", "list", "update", "watch"])
            .named(&["kube-scheduler"]),
        PolicyRule::resources(&[CORE], &["namespaces", "nodes", "services"], READ),
        PolicyRule::resources(&[CORE], &["pods"], &["delete", "get", "list", "watch"]),
        PolicyRule::resources(&[CORE], &["bindings", "pods/binding"], &["create"]),
        PolicyRule::resources(&[CORE], &["pods/status"], &["patch", "update"]),
        PolicyRule::resources(&[STORAGE], &["csidrivers", "csinodes"], READ),
    ];
    rules.extend(reviews());
    rules
}

fn proxy() -> [PolicyRule; 4] {
    [
        write_events(),
        PolicyRule::resources(&[CORE], &["endpoints", "services"], &["list", "watch"]),
        PolicyRule::resources(&[CORE], &["nodes"], READ),
        PolicyRule::resources(&[DISCOVERY], &["endpointslices"], &["list", "watch"]),
    ]
}

/// The controllers by the names of their accounts.
fn controllers() -> Vec<(&'static str, Vec<PolicyRule>)> {
    let mut all = about_the_cluster();
    all.extend(about_nodes_and_pods());
    all.extend(about_services());
    all
}

fn about_the_cluster() -> Vec<(&'static str, Vec<PolicyRule>)> {
    let on = PolicyRule::resources;
    let policies = "validatingadmissionpolicies";
    vec![
        ("certificate-controller", certificates()),
        (
            "clusterrole-aggregation-controller",
            vec![on(
                &[GROUP],
                &["clusterroles"],
                &["escalate", "get", "list", "patch", "update", "watch"],
            )],
        ),
        (
            // Anything can have an owner.
            "generic-garbage-collector",
            vec![
                on(&[ALL], &[ALL], &["delete", "get", "list", "patch", "update", "watch"]),
                write_events(),
            ],
        ),
        (
            "legacy-service-account-token-cleaner",
            vec![
                on(&[CORE], &["configmaps"], &["get"])
                    .named(&["kube-apiserver-legacy-service-account-token-tracking"]),
                on(&[CORE], &["secrets"], &["delete", "patch"]),
            ],
        ),
        (
            // Anything can be in a namespace that ends.
            "namespace-controller",
            vec![
                on(&[CORE], &["namespaces"], &["delete", "get", "list", "watch"]),
                on(&[CORE], &["namespaces/finalize", "namespaces/status"], &["update"]),
                on(&[ALL], &[ALL], &["delete", "deletecollection", "get", "list", "watch"]),
            ],
        ),
        (
            "root-ca-cert-publisher",
            vec![on(&[CORE], &["configmaps"], &["create", "update"]), write_events()],
        ),
        (
            "service-account-controller",
            vec![on(&[CORE], &["serviceaccounts"], &["create"]), write_events()],
        ),
        (
            "validatingadmissionpolicy-status-controller",
            vec![
                on(&[ADMISSION], &[policies], READ),
                on(&[ADMISSION], &[&format!("{policies}/status")], &["get", "patch", "update"]),
                write_events(),
            ],
        ),
    ]
}

fn certificates() -> Vec<PolicyRule> {
    let on = PolicyRule::resources;
    let requests = "certificatesigningrequests";
    let parts = [format!("{requests}/approval"), format!("{requests}/status")];
    vec![
        on(&[CERTIFICATES], &[requests], &["delete", "get", "list", "watch"]),
        on(&[CERTIFICATES], &[&parts[0], &parts[1]], &["update"]),
        on(&[CERTIFICATES], &["signers"], &["approve"])
            .named(&["kubernetes.io/kube-apiserver-client-kubelet"]),
        on(&[CERTIFICATES], &["signers"], &["sign"]).named(&SIGNERS),
        on(&[AUTHORIZATION], &["subjectaccessreviews"], &["create"]),
        write_events(),
    ]
}

fn about_nodes_and_pods() -> Vec<(&'static str, Vec<PolicyRule>)> {
    let on = PolicyRule::resources;
    vec![
        (
            "node-controller",
            vec![
                on(&[CORE], &["nodes"], &["delete", "get", "list", "patch", "update", "watch"]),
                on(&[CORE], &["nodes/status", "pods/status"], &["patch", "update"]),
                on(&[CORE], &["pods"], &["delete", "get", "list", "watch"]),
                on(&[COORDINATION], &["leases"], READ),
                write_events(),
            ],
        ),
        (
            "pod-garbage-collector",
            vec![
                on(&[CORE], &["pods"], &["delete", "list", "watch"]),
                on(&[CORE], &["nodes"], READ),
                on(&[CORE], &["pods/status"], &["patch"]),
            ],
        ),
        (
            "ttl-controller",
            vec![on(&[CORE], &["nodes"], &["list", "patch", "update", "watch"]), write_events()],
        ),
    ]
}

fn about_services() -> Vec<(&'static str, Vec<PolicyRule>)> {
    let on = PolicyRule::resources;
    let all = ["create", "delete", "get", "list", "update", "watch"];
    vec![
        (
            "endpoint-controller",
            vec![
                on(&[CORE], &["pods", "services"], READ),
                on(&[CORE], &["endpoints"], &all),
                on(&[CORE], &["endpoints/restricted"], &["create"]),
                write_events(),
            ],
        ),
        (
            "endpointslice-controller",
            vec![
                on(&[CORE], &["nodes", "pods", "services"], READ),
                on(&[CORE], &["services/finalizers"], &["update"]),
                on(&[DISCOVERY], &["endpointslices"], &all),
                write_events(),
            ],
        ),
        (
            "endpointslicemirroring-controller",
            vec![
                on(&[CORE], &["endpoints", "services"], READ),
                on(&[CORE], &["endpoints/finalizers", "services/finalizers"], &["update"]),
                on(&[DISCOVERY], &["endpointslices"], &all),
                write_events(),
            ],
        ),
    ]
}

/// Who leads, and whom this server believes.
fn of_the_system_namespace() -> Vec<Value> {
    let (manager, scheduler) = ("kube-controller-manager", "kube-scheduler");
    let users = [manager, scheduler].map(|name| user(&format!("system:{name}")));
    let reader = format!("{AUTHENTICATION_INFO}-reader");
    let info = PolicyRule::resources(&[CORE], &["configmaps"], READ).named(&[AUTHENTICATION_INFO]);
    let mut objects = vec![
        role_of_system(&reader, &[info]),
        binding_of_system(&format!("system::{reader}"), &reader, &users),
    ];
    for (name, user) in [manager, scheduler].into_iter().zip(users) {
        let locking = format!("system::leader-locking-{name}");
        // Upstream lets each have every lease there, so that it may use another name.
        let create = PolicyRule::resources(&[COORDINATION], &["leases"], &["create"]);
        let verbs = ["get", "list", "update", "watch"];
        let keep = PolicyRule::resources(&[COORDINATION], &["leases"], &verbs).named(&[name]);
        objects.push(role_of_system(&locking, &[create, keep]));
        objects.push(binding_of_system(&locking, &locking, &[user, account(name)]));
    }
    objects
}

fn write_events() -> PolicyRule {
    PolicyRule::resources(&[CORE, EVENTS], &["events"], &["create", "patch", "update"])
}

/// For whoever serves something of their own and asks this server about their callers.
fn reviews() -> [PolicyRule; 2] {
    [
        PolicyRule::resources(&[AUTHENTICATION], &["tokenreviews"], &["create"]),
        PolicyRule::resources(&[AUTHORIZATION], &["subjectaccessreviews"], &["create"]),
    ]
}

fn user(name: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": "User", "name": name})
}

fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "namespace": SYSTEM, "name": name})
}

fn role_of_system(name: &str, rules: &[PolicyRule]) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "Role",
        "metadata": in_system(name),
        "rules": rules,
    })
}

fn binding_of_system(name: &str, role: &str, subjects: &[Value]) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "RoleBinding",
        "metadata": in_system(name),
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": role},
        "subjects": subjects,
    })
}

fn in_system(name: &str) -> Value {
    let mut metadata = metadata(name, &[]);
    if let Some(members) = metadata.as_object_mut() {
        members.insert("namespace".to_owned(), json!(SYSTEM));
    }
    metadata
}
