//! Objects in, changed and out again.

use crate::cluster::Cluster;

const CONFIG: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: app, labels: {tier: web}}
data: {keep: '1', drop: '2'}
";

#[test]
fn apply_creates_updates_and_prunes_a_removed_key() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(CONFIG).prints("configmap/app created");
    cluster.apply(CONFIG).prints("configmap/app unchanged");
    // What others add is not what was applied, so the three-way merge lets it be.
    cluster.kubectl("patch cm app --type=merge -p {\"data\":{\"other\":\"x\"}}").succeeds();

    let changed = CONFIG.replace("keep: '1', drop: '2'", "keep: '3', new: '4'");
    cluster.kubectl_with_input("diff -f -", &changed).differs(&["+ keep: \"3\"", "- drop: \"2\""]);
    cluster.apply(&changed).prints("configmap/app configured");
    let data = cluster.kubectl("get cm app -o json").json()["data"].clone();
    assert_eq!(data, serde_json::json!({"keep": "3", "new": "4", "other": "x"}));
    cluster.kubectl_with_input("diff -f -", &changed).prints("");
}

#[test]
fn replace_needs_the_version_it_was_given() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(CONFIG).succeeds();
    let first = cluster.kubectl("get cm app -o json").json();
    let replaced = CONFIG.replace("drop: '2'", "more: '5'");
    cluster.kubectl_with_input("replace -f -", &replaced).prints("configmap/app replaced");
    cluster.kubectl("get cm app -o jsonpath={.data}").prints(r#"{"keep":"1","more":"5"}"#);
    cluster.kubectl_with_input("replace -f -", &first.to_string()).fails(
        "Error from server (Conflict): error when replacing \"STDIN\": Operation cannot be \
         fulfilled on configmaps \"app\": the object has been modified; please apply your changes \
         to the latest version and try again",
    );
}

#[test]
fn patches_of_three_types_change_what_they_name() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(CONFIG).succeeds();
    let patch = |kind: &str, patch: &str, expected: &str| {
        cluster.kubectl(&format!("patch cm app --type={kind} -p {patch}")).prints(expected);
    };
    let patched = "configmap/app patched";
    patch("json", r#"[{"op":"replace","path":"/data/keep","value":"j"}]"#, patched);
    patch("merge", r#"{"data":{"drop":null,"m":"1"}}"#, patched);
    patch("strategic", r#"{"data":{"s":"1"}}"#, patched);
    patch("merge", r#"{"data":{"s":"1"}}"#, "configmap/app patched (no change)");
    cluster.kubectl("get cm app -o jsonpath={.data}").prints(r#"{"keep":"j","m":"1","s":"1"}"#);
    let failing = r#"[{"op":"test","path":"/data/keep","value":"no"}]"#;
    let ran = cluster.kubectl(&format!("patch cm app --type=json -p {failing}"));
    let rejected = "The request is invalid: the server rejected our request due to an error in our \
                    request: testing value";
    assert!(ran.stderr.contains(rejected), "{ran:#?}");
}

#[test]
fn a_strategic_patch_merges_containers_by_name() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("run p --image=a --labels=x=y").prints("pod/p created");
    let patch = r#"{"spec":{"containers":[{"name":"p","image":"b"}]}}"#;
    cluster.kubectl(&format!("patch pod p -p {patch}")).prints("pod/p patched");
    cluster.kubectl("get pod p -o jsonpath={.spec.containers[*].image}").prints("b");
    cluster.kubectl("set image pod/p p=c").prints("pod/p image updated");
    cluster.kubectl("get pod p -o jsonpath={.spec.containers[*].image}").prints("c");
}

#[test]
fn labels_and_annotations_come_and_go() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(CONFIG).succeeds();
    cluster.kubectl("label cm app env=test").prints("configmap/app labeled");
    cluster
        .kubectl("label cm app env=prod")
        .fails("error: 'env' already has a value (test), and --overwrite is false");
    cluster.kubectl("label cm app env=prod --overwrite").prints("configmap/app labeled");
    cluster.kubectl("label cm app tier-").prints("configmap/app unlabeled");
    cluster.kubectl("annotate cm app note=hello").prints("configmap/app annotated");
    cluster.kubectl("get cm app -o jsonpath={.metadata.labels}").prints(r#"{"env":"prod"}"#);
    cluster.kubectl("get cm app -o jsonpath={.metadata.annotations.note}").prints("hello");
    let ran = cluster.kubectl("label cm app bad/key/x=1");
    assert!(ran.stderr.contains("a qualified name must consist of"), "{ran:#?}");
}

#[test]
fn lists_are_selected_and_paged() {
    let Some(cluster) = Cluster::start() else { return };
    let manifests: Vec<String> = (0..5)
        .map(|n| {
            let parity = n % 2;
            CONFIG.replace("app", &format!("c{n}")).replace("tier: web", &format!("p: 'x{parity}'"))
        })
        .collect();
    cluster.apply(&manifests.join("---")).succeeds();
    let names = |options: &str, expected: &str| {
        let line = format!("get cm {options} -o jsonpath={{.items[*].metadata.name}}");
        cluster.kubectl(&line).prints(expected);
    };
    names("-l p=x1", "c1 c3");
    names("-l p!=x1,p", "c0 c2 c4");
    names("-l p=x0,p!=x1", "c0 c2 c4");
    names("--field-selector=metadata.name=c2", "c2");
    names("--field-selector=metadata.name!=c2 -l p", "c0 c1 c3 c4");
    names("--chunk-size=2 -l p", "c0 c1 c2 c3 c4");
    let page = cluster.kubectl("get --raw /api/v1/namespaces/default/configmaps?limit=2").json();
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    assert_eq!(page["metadata"]["remainingItemCount"], 4, "five, and the root certificate");
    let token = page["metadata"]["continue"].as_str().unwrap();
    let next = format!("get --raw /api/v1/namespaces/default/configmaps?limit=9&continue={token}");
    assert_eq!(cluster.kubectl(&next).json()["items"].as_array().unwrap().len(), 4);
    cluster.kubectl("get cm --field-selector=data.keep=1").fails(
        "Error from server (BadRequest): Unable to find \"/v1, Resource=configmaps\" that match \
         label selector \"\", field selector \"data.keep=1\": \"data.keep\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
    );
}

#[test]
fn a_dry_run_leaves_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    cluster
        .kubectl_with_input("apply --dry-run=server -f -", CONFIG)
        .prints("configmap/app created (server dry run)");
    cluster.kubectl("get cm app --ignore-not-found").prints("");
    cluster.apply(CONFIG).succeeds();
    cluster
        .kubectl("label cm app a=b --dry-run=server")
        .prints("configmap/app labeled (server dry run)");
    cluster
        .kubectl("delete cm app --dry-run=server")
        .prints("configmap \"app\" deleted (server dry run)");
    cluster.kubectl("get cm app -o jsonpath={.metadata.labels}").prints(r#"{"tier":"web"}"#);
}

#[test]
fn mistakes_are_named_as_upstream_names_them() {
    let Some(cluster) = Cluster::start() else { return };
    cluster
        .kubectl("get cm none")
        .fails("Error from server (NotFound): configmaps \"none\" not found");
    cluster
        .kubectl("get widgets")
        .fails("error: the server doesn't have a resource type \"widgets\"");
    cluster.apply(CONFIG).succeeds();
    cluster.kubectl_with_input("create -f -", CONFIG).fails(
        "Error from server (AlreadyExists): error when creating \"STDIN\": configmaps \"app\" already exists",
    );
    cluster
        .kubectl_with_input("create -n none -f -", CONFIG)
        .fails("Error from server (NotFound): error when creating \"STDIN\": namespaces \"none\" not found");
    cluster.kubectl_with_input("create -f -", &CONFIG.replace("app", "App_")).fails(
        "The ConfigMap \"App_\" is invalid: metadata.name: Invalid value: \"App_\": a lowercase \
         RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
         must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
         validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    );
    cluster.apply(&CONFIG.replace("app", "new").replace("\ndata:", "\ndta:")).fails(
        "Error from server (BadRequest): error when creating \"STDIN\": ConfigMap in version \
         \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"dta\"",
    );
}
