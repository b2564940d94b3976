//! `waybill names`: variables whose names Kubernetes refused before it relaxed its rule, and what they
//! could trip (NAME-17, KEP-4369).

mod tools;

use std::io::{self, Write};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use waybill_api::pod::{ContainerKind, NameRole, PodEnvSpec, strict_name_findings};
use waybill_client::Place;
use waybill_core::env::name::NameRules;

use self::tools::{Trap, traps};
use crate::{Outcome, cluster::ClusterArgs, columns::align, target::pods, terminal::escaped};

/// List pods with names of variables that the strict rule refuses.
///
/// Since 1.34 Kubernetes takes every printable ASCII character but = in the name of a variable, such as
/// Logging:LogLevel:Default (KEP-4369). Before, a name had to consist of letters, digits, '_', '-' and
/// '.', and could not start with a digit. This lists what is beyond that older rule: in env and as a
/// prefix in envFrom, in containers of every kind.
///
/// Look here before you go back to an API server with the strict rule: pods that run keep their
/// variables, and new ones with such names are refused. Look here, too, when a program does not see a
/// variable. The names reach it unchanged, and yet tools on the way may not take them; the last column says
/// which could not, and -o json why.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// In all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,

    /// How to print them.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,

    #[command(flatten)]
    cluster: ClusterArgs,
}

const AFTER_HELP: &str = "\
Examples:
  waybill names -A
  waybill names -n shop -o json

Who could trip over such a name:
  sh        cannot say $NAME; what dash or busybox sh start does not get it, what bash starts does
  systemd   ignores it in Environment= and EnvironmentFile=
  docker    an --env-file cannot hold names with blanks, and takes # for a comment
  spring    a placeholder ${a:b} means a, or else the text b
  php       names with a blank, dot or [ are not in $_ENV; getenv() has them
  $(NAME)   references in a pod spec end at the first )
  files     tools that write a file for each variable, when the name has a / or only dots
  eval      scripts that evaluate the output of env would run it as code

.NET reads Logging:LogLevel:Default as it is, and Logging__LogLevel__Default as the same setting.
To see what a process really got: cat /proc/PID/environ | tr '\\0' '\\n'.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Table,
}

/// One name in one container.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    namespace: String,
    pod: String,
    container: String,
    container_kind: &'static str,
    /// `variable` or `prefix`.
    role: &'static str,
    name: String,
    /// What the strict rule has against it.
    refused_for: String,
    traps: Vec<Trap>,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cluster = args.cluster.connect().await?;
        let (place, told) = if args.all_namespaces {
            (Place::Everywhere, "in this cluster".to_owned())
        } else {
            (cluster.place(), format!("in namespace {}", cluster.namespace))
        };
        let list = cluster.requests.get(&pods().path(&place)).await?;
        let found = findings(&list)?;
        let mut output = io::stdout().lock();
        match args.output {
            Format::Table if found.is_empty() => {
                writeln!(io::stderr(), "no pod {told} has a name that the strict rule refuses")?;
            }
            Format::Table => output.write_all(align(&rows(&found)).as_bytes())?,
            Format::Json => {
                writeln!(output, "{}", escaped(&serde_json::to_string_pretty(&found)?))?;
            }
        }
        Ok(Outcome::Success)
    })
}

fn findings(list: &Value) -> Result<Vec<Finding>> {
    let pods = list.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut found = Vec::new();
    for pod in pods {
        let text = |pointer| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let spec = PodEnvSpec::from_value(pod.get("spec").unwrap_or(&Value::Null))
            .with_context(|| format!("pod {namespace}/{name} is not understood"))?;
        found.extend(strict_name_findings(&spec).map(|found| Finding {
            namespace: namespace.to_owned(),
            pod: name.to_owned(),
            container: found.container.to_owned(),
            container_kind: kind(found.kind),
            role: role(found.role),
            name: found.name.to_owned(),
            refused_for: refused_for(found.name),
            traps: traps(found.name),
        }));
    }
    Ok(found)
}

fn kind(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Ephemeral => "ephemeral",
        ContainerKind::Init => "init",
        ContainerKind::Regular => "regular",
    }
}

fn role(role: NameRole) -> &'static str {
    match role {
        NameRole::Prefix => "prefix",
        NameRole::Variable => "variable",
    }
}

/// The characters that the strict rule does not know, or else where those that it knows may not stand.
fn refused_for(name: &str) -> String {
    let mut strange: Vec<char> = Vec::new();
    for found in name.chars().filter(|found| !is_strict(*found)) {
        if !strange.contains(&found) {
            strange.push(found);
        }
    }
    if strange.is_empty() {
        let starts_with_digit = name.starts_with(|first: char| first.is_ascii_digit());
        return if starts_with_digit { "a digit at its start" } else { "dots at its start" }
            .to_owned();
    }
    let shown = |found: &char| match found {
        ' ' => "blank".to_owned(),
        other => other.to_string(),
    };
    strange.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// Behind a letter, any character that the rule allows is fine.
fn is_strict(found: char) -> bool {
    NameRules::Strict.fault(format!("a{found}").as_bytes()).is_none()
}

fn rows(found: &[Finding]) -> Vec<Vec<String>> {
    let header = ["NAMESPACE", "POD", "CONTAINER", "NAME", "REFUSED FOR", "COULD TRIP"];
    let row = |found: &Finding| {
        let tools: Vec<_> = found.traps.iter().map(|trap| trap.tool).collect();
        let name = match found.role {
            "prefix" => format!("{}* (prefix)", found.name),
            _ => found.name.clone(),
        };
        vec![
            found.namespace.clone(),
            found.pod.clone(),
            found.container.clone(),
            name,
            found.refused_for.clone(),
            tools.join(", "),
        ]
    };
    [header.map(str::to_owned).to_vec()].into_iter().chain(found.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list() -> Value {
        json!({"kind": "PodList", "items": [
            {"metadata": {"namespace": "a", "name": "fine"}, "spec": {"containers": [
                {"name": "c", "env": [{"name": "A.b-c"}], "envFrom": [{"prefix": "P_"}]}]}},
            {"metadata": {"namespace": "a", "name": "web"}, "spec": {
                "containers": [{"name": "app", "env": [
                    {"name": "Logging:LogLevel:Default", "value": "s3cret"}]}],
                "initContainers": [{"name": "init", "envFrom": [{"prefix": "1-"}]}],
                "ephemeralContainers": [{"name": "debug", "env": [{"name": "a b/c b"}]}],
            }},
        ]})
    }

    /// NAME-17
    #[test]
    fn names_of_every_kind_and_role_are_listed_with_what_they_could_trip_name_17() {
        let found = findings(&list()).unwrap();
        let rows = rows(&found);
        assert_eq!(
            rows[1..],
            [
                ["a", "web", "app", "Logging:LogLevel:Default", ":", "sh, systemd, spring"],
                ["a", "web", "init", "1-* (prefix)", "a digit at its start", "sh, systemd"],
                ["a", "web", "debug", "a b/c b", "blank /", "sh, systemd, docker, php, files"],
            ]
        );
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json[1]["containerKind"], "init");
        assert_eq!(json[1]["role"], "prefix");
        assert_eq!(json[0]["traps"][2]["tool"], "spring");
        assert!(!json.to_string().contains("s3cret"), "values are nobody's business");
    }

    #[test]
    fn a_reason_names_each_character_once_or_the_place() {
        for (name, reason) in [
            ("a:b:c", ":"),
            ("a b", "blank"),
            ("$_-", "$"),
            ("#@!", "# @ !"),
            ("9", "a digit at its start"),
            ("..a", "dots at its start"),
            (".", "dots at its start"),
        ] {
            assert_eq!(refused_for(name), reason);
        }
    }

    #[test]
    fn a_cluster_without_pods_has_no_findings() {
        assert_eq!(findings(&json!({"items": []})).unwrap(), []);
        assert_eq!(findings(&json!({"items": null})).unwrap(), []);
    }
}
