//! Expressions of policies: compiled and, if that succeeds, evaluated over a small object. Neither may panic, hang or
//! overflow the stack.

#![no_main]

use libfuzzer_sys::fuzz_target;
use waybill_policy::cel::{Bindings, Budget, Evaluation, Expression, Scope, Wanted};

fuzz_target!(|source: &str| {
    let scope = Scope::request().with_params(true);
    let Ok(expression) = Expression::compile(source, &scope, Wanted::Any) else { return };
    let object = serde_json::json!({
        "metadata": {"name": "web", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}], "replicas": 3},
    });
    let bindings = Bindings { object: Some(&object), params: Some(&object), ..Bindings::default() };
    let _ = Evaluation::new(bindings, &[], Budget::policy()).evaluate(&expression);
});
