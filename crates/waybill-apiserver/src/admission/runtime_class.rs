//! A pod of a RuntimeClass has the class's overhead, and goes where the class can run.

use serde_json::{Value, json};
use waybill_api::status::Status;

use super::{Admission, Attributes, Operation};
use crate::{
    cache::ObjectKey,
    document::{at, at_mut, items, put, text},
    kinds::{pod::PODS, runtime_class::RUNTIME_CLASSES},
};

impl Admission {
    pub(super) fn apply_runtime_class(
        &self,
        attributes: &mut Attributes<'_>,
    ) -> Result<(), Status> {
        let is_new = attributes.operation == Operation::Create && attributes.is_main(&PODS);
        let spec = at(&attributes.object, "/spec");
        if !is_new || !spec.is_object() {
            return Ok(());
        }
        let class = match text(spec, "/runtimeClassName") {
            "" => Value::Null,
            name => {
                let cache = self.objects.cache(&RUNTIME_CLASSES);
                let found = cache.and_then(|cache| cache.get(&ObjectKey::new("", name)));
                let Some(found) = found else {
                    let why = format!("pod rejected: RuntimeClass {name:?} not found");
                    return Err(attributes.forbidden(&why));
                };
                found.document()
            }
        };
        match merged(&class, spec) {
            Ok(spec) => {
                if let Some(spec) = spec {
                    put(&mut attributes.object, "/spec", spec);
                }
                Ok(())
            }
            Err(why) => Err(attributes.forbidden(&why)),
        }
    }
}

/// The pod spec with what its class adds; nothing if that is nothing.
fn merged(class: &Value, spec: &Value) -> Result<Option<Value>, String> {
    let (overhead, own) = (at(class, "/overhead/podFixed"), at(spec, "/overhead"));
    let is_empty = |value: &Value| value.as_object().is_none_or(serde_json::Map::is_empty);
    if !is_empty(own) && is_empty(overhead) {
        return Err(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                .to_owned(),
        );
    }
    if !is_empty(own) && own != overhead {
        return Err(
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned()
        );
    }
    if class.is_null() {
        return Ok(None);
    }
    let mut new = spec.clone();
    if !is_empty(overhead) {
        put(&mut new, "/overhead", overhead.clone());
    }
    let selector = at(class, "/scheduling/nodeSelector").as_object();
    for (key, value) in selector.into_iter().flatten() {
        let place = at_mut(&mut new, "/nodeSelector");
        if !place.is_object() {
            *place = json!({});
        }
        let own = place.get(key).filter(|own| *own != value).and_then(Value::as_str);
        if let Some(own) = own {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {own}",
                value.as_str().unwrap_or_default()
            ));
        }
        if let Some(labels) = place.as_object_mut() {
            labels.insert(key.clone(), value.clone());
        }
    }
    for toleration in items(class, "/scheduling/tolerations") {
        let place = at_mut(&mut new, "/tolerations");
        match place.as_array_mut() {
            Some(own) if own.contains(toleration) => {}
            Some(own) => own.push(toleration.clone()),
            None => *place = json!([toleration]),
        }
    }
    Ok(Some(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_adds_its_overhead_and_where_it_runs() {
        let class = json!({"overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {
            "nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm"}],
        }});
        let spec = json!({"nodeSelector": {"a": "b"}, "tolerations": [{"key": "x"}]});
        let expected = json!({"overhead": {"cpu": "1"}, "nodeSelector": {"a": "b", "vm": "yes"},
            "tolerations": [{"key": "x"}, {"key": "vm"}]});
        assert_eq!(merged(&class, &spec).unwrap().unwrap(), expected);
        assert_eq!(merged(&class, &expected).unwrap().unwrap(), expected, "once");
        assert_eq!(merged(&Value::Null, &spec), Ok(None));
        assert!(merged(&Value::Null, &json!({"overhead": {"cpu": "1"}})).is_err());
        assert!(merged(&class, &json!({"overhead": {"cpu": "2"}})).is_err());
        assert!(
            merged(&class, &json!({"nodeSelector": {"vm": "no"}}))
                .unwrap_err()
                .contains("conflict")
        );
    }
}
