//! The JSON form of [`PodExecOptions`], which admission sees and may change (EXEC-35).
//!
//! JSON carries text only. A value that is not UTF-8 makes encoding fail: a stand-in for it would let
//! a policy judge something else than what the process gets. Decoding errors are in words of our own
//! wherever serde's would quote a value.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};
use serde_json::{Map, Value};

use super::{ExecVar, PodExecOptions};

const API_VERSION: &str = "v1";

const KIND: &str = "PodExecOptions";

impl Serialize for PodExecOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let encode = |(index, variable)| {
            EncodedVar::of(variable)
                .ok_or_else(|| S::Error::custom(format_args!("env[{index}].value is not UTF-8")))
        };
        Encoded {
            api_version: API_VERSION,
            kind: KIND,
            stdin: self.stdin,
            stdout: self.stdout,
            stderr: self.stderr,
            tty: self.tty,
            container: &self.container,
            command: &self.command,
            env: self.env.iter().enumerate().map(encode).collect::<Result<_, _>>()?,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PodExecOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let decoded = Decoded::deserialize(deserializer)?;
        if decoded.api_version != API_VERSION || decoded.kind != KIND {
            return Err(D::Error::custom("must be a PodExecOptions of v1"));
        }
        Ok(Self {
            stdin: decoded.stdin.unwrap_or_default(),
            stdout: decoded.stdout.unwrap_or_default(),
            stderr: decoded.stderr.unwrap_or_default(),
            tty: decoded.tty.unwrap_or_default(),
            container: decoded.container.unwrap_or_default(),
            command: decoded.command.unwrap_or_default(),
            env: decode_env(decoded.env.unwrap_or_default()).map_err(D::Error::custom)?,
        })
    }
}

/// Upstream leaves out what is empty, except the command.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Encoded<'a> {
    api_version: &'a str,
    kind: &'a str,
    #[serde(skip_serializing_if = "is_unset")]
    stdin: bool,
    #[serde(skip_serializing_if = "is_unset")]
    stdout: bool,
    #[serde(skip_serializing_if = "is_unset")]
    stderr: bool,
    #[serde(skip_serializing_if = "is_unset")]
    tty: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    container: &'a str,
    command: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<EncodedVar<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EncodedVar<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    value: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_from: Option<&'a Value>,
}

impl<'a> EncodedVar<'a> {
    fn of(variable: &'a ExecVar) -> Option<Self> {
        let value = str::from_utf8(variable.value.expose()).ok()?;
        Some(Self { name: &variable.name, value, value_from: variable.value_from.as_ref() })
    }
}

/// `null` is as good as absent, and unknown fields are dropped, as by Kubernetes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Decoded {
    api_version: String,
    kind: String,
    stdin: Option<bool>,
    stdout: Option<bool>,
    stderr: Option<bool>,
    tty: Option<bool>,
    container: Option<String>,
    command: Option<Vec<String>>,
    env: Option<Value>,
}

fn is_unset(flag: &bool) -> bool {
    !flag
}

fn decode_env(env: Value) -> Result<Vec<ExecVar>, String> {
    let entries = match env {
        Value::Null => Vec::new(),
        Value::Array(entries) => entries,
        _ => return Err("env must be a list".to_owned()),
    };
    let decode = |(index, entry)| match entry {
        Value::Object(fields) => {
            decode_var(fields).map_err(|field| format!("env[{index}].{field} must be a string"))
        }
        _ => Err(format!("env[{index}] must be an object")),
    };
    entries.into_iter().enumerate().map(decode).collect()
}

/// Fails with the name of the field that is not a text.
fn decode_var(mut fields: Map<String, Value>) -> Result<ExecVar, &'static str> {
    let mut text = |field: &'static str| match fields.remove(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(field),
    };
    let mut variable = ExecVar::new(text("name")?, text("value")?);
    variable.value_from = fields.remove("valueFrom").filter(|reference| !reference.is_null());
    Ok(variable)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refused(document: Value, expected: &str) {
        let error = serde_json::from_value::<PodExecOptions>(document).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    fn with_env(env: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "PodExecOptions", "command": ["ls"], "env": env})
    }

    /// EXEC-35
    #[test]
    fn admission_sees_env_as_a_list_of_names_and_values_exec_35() {
        let query =
            "container=app&command=sh&stdin=true&stdout=true&tty=1&stderr=1&env=PATH=/x&env=E=";
        let document = json!({
            "apiVersion": "v1",
            "kind": "PodExecOptions",
            "stdin": true,
            "stdout": true,
            "stderr": true,
            "tty": true,
            "container": "app",
            "command": ["sh"],
            "env": [{"name": "PATH", "value": "/x"}, {"name": "E"}],
        });
        let options = PodExecOptions::from_query(query).unwrap();
        assert_eq!(serde_json::to_value(&options).unwrap(), document);
        assert_eq!(serde_json::from_value::<PodExecOptions>(document).unwrap(), options);
    }

    #[test]
    fn empty_fields_are_left_out_except_the_command() {
        assert_eq!(
            serde_json::to_value(PodExecOptions::default()).unwrap(),
            json!({"apiVersion": "v1", "kind": "PodExecOptions", "command": []})
        );
    }

    #[test]
    fn null_and_absent_are_the_same() {
        let null = json!({
            "apiVersion": "v1", "kind": "PodExecOptions", "stdin": null, "stdout": null,
            "stderr": null, "tty": null, "container": null, "command": null, "env": null,
            "unknown": 1,
        });
        let options: PodExecOptions = serde_json::from_value(null).unwrap();
        assert_eq!(options, PodExecOptions::default());
        let entry = with_env(&json!([{"name": null, "value": null, "valueFrom": null}]));
        let options: PodExecOptions = serde_json::from_value(entry).unwrap();
        assert_eq!(options.env, [ExecVar::new("", "")]);
        assert!(!options.env[0].has_value_from());
    }

    #[test]
    fn a_value_from_is_remembered_and_kept_op_5() {
        let document =
            with_env(&json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]));
        let options: PodExecOptions = serde_json::from_value(document.clone()).unwrap();
        assert!(options.env[0].has_value_from());
        assert_eq!(serde_json::to_value(&options).unwrap(), document);
        let empty = with_env(&json!([{"name": "A", "valueFrom": {}}]));
        assert!(serde_json::from_value::<PodExecOptions>(empty).unwrap().env[0].has_value_from());
    }

    #[test]
    fn a_value_that_is_not_text_is_never_replaced() {
        let query = "env=A=hunter2&env=B=hunter2%ff";
        let error = serde_json::to_value(PodExecOptions::from_query(query).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "env[1].value is not UTF-8");
    }

    #[test]
    fn decoding_errors_never_show_a_value() {
        refused(with_env(&json!("A=hunter2")), "env must be a list");
        refused(with_env(&json!(["A=hunter2"])), "env[0] must be an object");
        refused(with_env(&json!([{"name": "A", "value": 42}])), "env[0].value must be a string");
        refused(with_env(&json!([{}, {"name": ["hunter2"]}])), "env[1].name must be a string");
        let attach = json!({"apiVersion": "v1", "kind": "PodAttachOptions"});
        refused(attach, "must be a PodExecOptions of v1");
    }
}
