//! Names of variables as wide as KEP-4369 allows, from manifest to process.

use std::{fs, path::Path};

use waybill_testkit::{
    kubectl::Ran,
    stack::{IMAGE, Stack},
};

use super::{pod, start};

/// Those of the document: together every character that is allowed but letters.
const NAMES: [&str; 4] = ["!\"#$%&'()", "* +,-./0123456789", ":;<>?@", "[\\]^_`{}|~"];

const PREFIXES: [&str; 4] = ["1-", "$_-", "ABC_", "#@!"];

/// A string of YAML.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn waybill(stack: &Stack, line: &str) -> Ran {
    let child = stack.waybill().args(line.split_whitespace()).spawn().expect("waybill starts");
    Ran::of(format!("waybill {line}"), child)
}

#[track_caller]
fn environ(stack: &Stack, pod: &str) -> Vec<String> {
    let ran = stack.kubectl().line(&format!("exec {pod} -- cat /proc/1/environ"));
    ran.succeeds().stdout.split_terminator('\0').map(str::to_owned).collect()
}

/// NAME-09, NAME-10, NAME-11, NAME-12, NAME-13, NAME-14, NAME-20
pub(super) fn every_name(stack: &Stack) {
    let kubectl = stack.kubectl();
    kubectl
        .apply(
            "apiVersion: v1
kind: ConfigMap
metadata: {name: any-name}
data: {1-data: number first, data.x: dotted, same: from the map}
---
apiVersion: v1
kind: Secret
metadata: {name: any-name}
stringData: {1-key: hidden number, key.x: hidden dots}
",
        )
        .succeeds();
    let variables = NAMES.map(|name| format!("    - {{name: {}, value: kept}}\n", quoted(name)));
    let sources = PREFIXES.map(|prefix| {
        let prefix = quoted(prefix);
        format!(
            "    - {{prefix: {prefix}, configMapRef: {{name: any-name}}}}
    - {{prefix: {prefix}, secretRef: {{name: any-name}}}}\n"
        )
    });
    let spec = format!(
        "  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, '3600']
    envFrom:
    - {{configMapRef: {{name: any-name}}}}
{}    env:
    - {{name: 'Logging:LogLevel:Default', value: Debug}}
    - {{name: MADE, value: '$(Logging:LogLevel:Default) $(1-data) $(a:b)'}}
    - {{name: same, value: from env}}
{}",
        sources.concat(),
        variables.concat()
    );
    start(stack, "any-name", &pod("any-name", &spec));
    let seen = environ(stack, "any-name");
    let mut wanted = vec![
        "Logging:LogLevel:Default=Debug".to_owned(),
        "MADE=Debug number first $(a:b)".to_owned(),
        "same=from env".to_owned(),
        "1-data=number first".to_owned(),
        "data.x=dotted".to_owned(),
    ];
    wanted.extend(NAMES.map(|name| format!("{name}=kept")));
    for prefix in PREFIXES {
        wanted.push(format!("{prefix}1-data=number first"));
        wanted.push(format!("{prefix}data.x=dotted"));
        wanted.push(format!("{prefix}1-key=hidden number"));
        wanted.push(format!("{prefix}key.x=hidden dots"));
    }
    for wanted in &wanted {
        assert!(seen.contains(wanted), "{wanted:?} is not in {seen:#?}");
    }
    assert_eq!(seen.iter().filter(|found| found.starts_with("same=")).count(), 1);
    let events = kubectl.line("get events --field-selector involvedObject.name=any-name");
    assert!(!events.stdout.contains("InvalidEnvironmentVariableNames"), "{events:#?}");
    let stored = "get pod any-name -o jsonpath={.spec.containers[0].env[3].name}";
    kubectl.line(stored).prints(NAMES[0]);
}

/// NAME-13: nobody takes a name for a file or for something to run.
pub(super) fn hostile_names(stack: &Stack) {
    let trace = stack.dir().join("run-by-a-name");
    let names = [
        "../../../../../../../../tmp/waybill-by-a-name".to_owned(),
        "/tmp/waybill-by-a-name".to_owned(),
        format!("$(touch {})", trace.display()),
        format!("`touch {}`", trace.display()),
        format!("'; touch {}; '", trace.display()),
        "..".to_owned(),
        " ".to_owned(),
        "%s%n{}".to_owned(),
        "a,b".to_owned(),
        "-n".to_owned(),
    ];
    let entries =
        names.each_ref().map(|name| format!("    - {{name: {}, value: x}}\n", quoted(name)));
    let spec = format!(
        "  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, '3600']
    env:
{}",
        entries.concat()
    );
    start(stack, "hostile-names", &pod("hostile-names", &spec));
    let seen = environ(stack, "hostile-names");
    for name in &names {
        assert!(seen.contains(&format!("{name}=x")), "{name:?} is not in {seen:#?}");
    }
    for made in [&*trace, Path::new("/tmp/waybill-by-a-name")] {
        assert!(!made.exists(), "{} was made", made.display());
    }
    let mut places = vec![stack.state()];
    while let Some(place) = places.pop() {
        for entry in fs::read_dir(&place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            assert!(
                !names.iter().any(|it| name == it.as_str()),
                "{} is a file",
                entry.path().display()
            );
            // Root file systems of containers are their own business, and large.
            let is_own = entry.file_type().is_ok_and(|kind| kind.is_dir())
                && name != "rootfs"
                && name != "layers";
            if is_own {
                places.push(entry.path());
            }
        }
    }
}

/// NAME-17, NAME-18: who uses such names, and a namespace that does not want them.
pub(super) fn strict_names(stack: &Stack) {
    let kubectl = stack.kubectl();
    kubectl
        .apply(
            "{apiVersion: v1, kind: Namespace, metadata: {name: dotnet}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: tidy, annotations: {waybill.dev/env-names: strict}}}",
        )
        .succeeds();
    let spec = |image: &str| {
        format!(
            "  nodeSelector: {{nobody: has-it}}
  initContainers: [{{name: prepare, image: '{image}', envFrom: [{{prefix: '1-', configMapRef: {{name: none}}}}]}}]
  containers:
  - name: app
    image: '{image}'
    env: [{{name: 'Logging:LogLevel:Default', value: not-to-be-shown}}, {{name: FINE, value: x}}]
"
        )
    };
    let manifest = pod("api", &spec(IMAGE));
    // A namespace takes pods once its service account is there.
    kubectl.eventually("get serviceaccounts -n dotnet -o name", "serviceaccount/default");
    kubectl.eventually("get serviceaccounts -n tidy -o name", "serviceaccount/default");
    kubectl.with_input(&["apply", "-n", "dotnet", "-f", "-"], &manifest).succeeds();
    let table = waybill(stack, "names -n dotnet");
    table.shows(&[
        "NAMESPACE POD CONTAINER NAME REFUSED FOR COULD TRIP",
        "dotnet api app Logging:LogLevel:Default : sh, systemd, spring",
        "dotnet api prepare 1-* (prefix) a digit at its start sh, systemd",
    ]);
    assert_eq!(table.stdout.lines().count(), 3, "{table:#?}");
    waybill(stack, "names -A").shows(&["dotnet api app Logging:LogLevel:Default"]);
    let json = waybill(stack, "names -n dotnet -o json").json();
    assert_eq!(json[0]["name"], "Logging:LogLevel:Default");
    assert_eq!(json[1]["role"], "prefix");
    assert!(!json.to_string().contains("not-to-be-shown"));

    let refused = kubectl.with_input(&["apply", "-n", "tidy", "-f", "-"], &manifest);
    refused.fails_with(1, "waybill.dev/env-names asks for strict names");
    refused.fails_with(1, "refused: \"Logging:LogLevel:Default\" in container \"app\", \"1-\" in container \"prepare\"");
    let none = waybill(stack, "names -n tidy");
    none.prints("");
    assert_eq!(none.stderr, "no pod in namespace tidy has a name that the strict rule refuses\n");
    kubectl.line("delete namespace dotnet tidy").succeeds();
}
