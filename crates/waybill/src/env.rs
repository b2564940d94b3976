//! `waybill env`: every variable of a container and where it came from, never its value.

mod reference;
mod stale;

use std::io::{self, Write};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use waybill_client::Requests;

use crate::{
    Outcome,
    cluster::ClusterArgs,
    columns::align,
    target::{parse_pod, pods},
    terminal::{escaped, plain},
};

/// Show where the variables of a container came from.
///
/// The node that made the environment keeps the origin of each variable, and of definitions that lost
/// against another: which object and key, which volume, file and key, which field, or the image. Values
/// are not shown; whether one is sensitive is said by a star. It is what the newest container was made
/// with, whatever became of the objects since, and a restarted node still knows it.
///
/// Variables of the image are in the list if the runtime tells them; if not, that is said. What the
/// runtime adds by itself, such as HOSTNAME, is not.
///
/// With --stale, only variables whose value is another at its driver by now: those of one pod, or of all pods
/// of the namespace. Drivers are asked again for pods with the annotation waybill.dev/restart-on-rotation,
/// as often as the ProviderClass says; what such a pod keeps is what its restart policy does not let go.
///
/// It asks the node through the API server, which needs the right to `get` `nodes/proxy`. Where the node is none of ours,
/// variables that the pod itself defines are shown, with the class and key of those that refer to values from outside.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill env web
  waybill env web -c sidecar -o json
  waybill env --stale")]
pub(crate) struct Args {
    /// The pod, as NAME or pod/NAME.
    #[arg(value_name = "POD", value_parser = parse_pod, required_unless_present = "stale")]
    pod: Option<String>,

    /// The container; the first one by default.
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,

    /// Show who runs on old values.
    #[arg(long, conflicts_with = "output")]
    stale: bool,

    /// How to print them.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,

    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Table,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cluster = args.cluster.connect().await?;
        let container = args.container.as_deref();
        let pod = args.pod.as_deref();
        if args.stale {
            return stale::run(&cluster.requests, &cluster.namespace, pod, container).await;
        }
        let pod = pod.unwrap_or_default();
        let found = provenance(&cluster.requests, &cluster.namespace, pod, container).await?;
        let mut output = io::stdout().lock();
        match args.output {
            Format::Table => output.write_all(found.table().as_bytes())?,
            Format::Json => {
                writeln!(output, "{}", escaped(&serde_json::to_string_pretty(&found)?))?;
            }
        }
        Ok(Outcome::Success)
    })
}

/// What a node tells of one container.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Provenance {
    #[serde(default)]
    image_variables: ImageVariables,
    variables: Vec<Value>,
    /// Names of variables that have other values by now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stale: Vec<String>,
    /// Nobody knows whether more of them have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stale_unknown: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
enum ImageVariables {
    Known,
    #[default]
    Unknown,
}

impl Provenance {
    fn table(&self) -> String {
        let table = align(&rows(&self.variables));
        match self.image_variables {
            ImageVariables::Known => table,
            ImageVariables::Unknown => {
                table + "Variables of the image: unknown, the runtime does not tell them.\n"
            }
        }
    }
}

/// The variables of one container.
pub(crate) async fn variables(
    requests: &Requests,
    namespace: &str,
    pod: &str,
    container: Option<&str>,
) -> Result<Vec<Value>> {
    Ok(provenance(requests, namespace, pod, container).await?.variables)
}

/// Asks the pod's node for the variables of one container.
async fn provenance(
    requests: &Requests,
    namespace: &str,
    pod: &str,
    container: Option<&str>,
) -> Result<Provenance> {
    let place = waybill_client::Place::Namespace(namespace.to_owned());
    let object = requests.get(&pods().object_path(&place, pod)).await?;
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let Some(node) = text("/spec/nodeName") else {
        bail!("pod {pod} is on no node yet, so nobody has made its environment");
    };
    let first = text("/spec/containers/0/name").unwrap_or_default();
    let container = container.unwrap_or(first);
    let path =
        format!("/api/v1/nodes/{node}/proxy/waybill/v1/environment/{namespace}/{pod}/{container}");
    let answer = match requests.get(&path).await {
        Ok(answer) => answer,
        Err(_) if reference::is_guarded(&object) => {
            return Ok(reference::of_spec(&object, container));
        }
        Err(error) => {
            return Err(error).with_context(|| {
                format!(
                    "node {node} does not say where the variables of {pod}/{container} came from"
                )
            });
        }
    };
    serde_json::from_value(answer)
        .context("the node's answer is none of ours; is it a `waybill node`?")
}

/// Names with their origins, and what they won against.
pub(crate) fn rows(variables: &[Value]) -> Vec<Vec<String>> {
    let header = ["NAME", "FROM", "OVERRIDES"].map(str::to_owned).to_vec();
    // Keys and names are what the owner of the pod wrote.
    let text = |value: &Value, field: &str| -> String {
        plain(value.get(field).and_then(Value::as_str).unwrap_or_default())
    };
    let row = |variable: &Value| {
        let shadowed = variable.get("shadowed").and_then(Value::as_array).into_iter().flatten();
        let lost: Vec<String> = shadowed.map(|definition| text(definition, "from")).collect();
        let star = if variable.get("sensitive") == Some(&Value::Bool(true)) { " *" } else { "" };
        vec![text(variable, "name"), format!("{}{star}", text(variable, "from")), lost.join(", ")]
    };
    [header].into_iter().chain(variables.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_names_the_origin_and_what_it_won_against() {
        let variables = [
            json!({"name": "A", "from": "value", "shadowed": [{"from": "ConfigMap a"}]}),
            json!({"name": "B", "from": "Secret s, key k", "sensitive": true}),
        ];
        let rows = rows(&variables);
        assert_eq!(rows[1], ["A", "value", "ConfigMap a"]);
        assert_eq!(rows[2], ["B", "Secret s, key k *", ""]);
    }

    #[test]
    fn no_key_drives_a_terminal_or_forges_a_row() {
        let from = "CSI d, class c, key k\nDB_PASSWORD  Secret prod\u{1b}[31m\u{202e}";
        let rows = rows(&[json!({"name": "A", "from": from})]);
        assert!(
            rows[1].iter().all(|cell| !cell.contains(['\n', '\u{1b}', '\u{202e}'])),
            "{rows:?}"
        );
    }

    #[test]
    fn an_image_that_is_not_told_of_is_said_to_be_unknown() {
        let table = |answer| serde_json::from_value::<Provenance>(answer).unwrap().table();
        let known = table(
            json!({"imageVariables": "known", "variables": [{"name": "A", "from": "image"}]}),
        );
        assert_eq!(known, "NAME   FROM    OVERRIDES\nA      image\n");
        for silent in
            [json!({"imageVariables": "unknown", "variables": []}), json!({"variables": []})]
        {
            assert!(table(silent).contains("Variables of the image: unknown"));
        }
    }
}
