//! Expressions through their front door: compiled in a scope, evaluated over a request.

mod bounds;
mod libraries;
mod semantics;

use serde_json::{Value as Json, json};

use super::{
    Authorize, Bindings, Budget, CompileError, EvalError, Evaluation, Expression, Question, Scope,
    Value, Verdict, Wanted,
};

/// A user who may create pods, and nothing else.
struct MayCreatePods;

impl Authorize for MayCreatePods {
    fn authorize(&self, question: &Question) -> Verdict {
        let allowed = question.resource == "pods"
            && question.verb == "create"
            && question.subresource.is_empty()
            && question.service_account.is_none();
        Verdict { allowed, reason: "RBAC".to_owned(), error: None }
    }
}

fn object() -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web", "tier": "front"}},
        "spec": {
            "replicas": 3,
            "ratio": 0.5,
            "containers": [
                {"name": "a", "image": "registry/a:1", "env": [{"name": "HOME", "value": "/"}]},
                {"name": "b", "image": "registry/b:2"},
            ],
        },
    })
}

fn request() -> Json {
    json!({
        "operation": "CREATE",
        "namespace": "default",
        "name": "web",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "userInfo": {"username": "ann", "groups": ["dev", "system:authenticated"]},
        "dryRun": false,
    })
}

fn compile(source: &str) -> Result<Expression, CompileError> {
    let scope = Scope::request().with_authorizer().with_params(true);
    Expression::compile(source, &scope, Wanted::Any)
}

/// The result of `source` as text, or its error.
fn outcome(source: &str) -> String {
    let expression = match compile(source) {
        Ok(expression) => expression,
        Err(error) => return format!("compile: {error}"),
    };
    let (object, request) = (object(), request());
    let bindings = Bindings {
        object: Some(&object),
        request: Some(&request),
        authorizer: Some(&MayCreatePods),
        ..Bindings::default()
    };
    match Evaluation::new(bindings, &[], Budget::policy()).evaluate(&expression) {
        Ok(value) => shown(&value),
        Err(error) => format!("error: {error}"),
    }
}

fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Uint(uint) => format!("{uint}u"),
        Value::Double(double) => format!("{double:?}"),
        Value::String(text) => format!("'{}'", &**text),
        Value::List(list) => {
            let items: Vec<_> = list.iter().map(|item| shown(&item)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let entries = map.entries();
            let entries: Vec<_> = entries
                .iter()
                .map(|(key, own)| format!("{}: {}", shown(key), shown(own)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(inner)) => format!("some({})", shown(inner)),
        other => other.type_name().to_owned(),
    }
}

#[track_caller]
fn check(source: &str, expected: &str) {
    assert_eq!(outcome(source), expected, "{source}");
}

/// The expression is refused with a text that has this in it.
#[track_caller]
fn refused(source: &str, part: &str) {
    let error = compile(source).expect_err(source).to_string();
    assert!(error.contains(part), "{source}: {error}");
}
