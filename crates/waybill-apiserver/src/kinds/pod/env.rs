//! The environments of a pod or of a template, both of which have `metadata` and `spec`; their rules
//! live in `waybill-api`.

use waybill_api::{
    field::ErrorList,
    pod::{EnvRules, PodEnvSpec, validate, warnings},
};

use crate::kinds::{Context, document::Field};

/// What is wrong with the environments of a new `pod` (NAME-06, CSI-10).
pub(crate) fn check_env(pod: Field<'_, '_>, context: &Context, errors: &mut ErrorList) {
    let (metadata, spec) = (pod.get("metadata"), pod.get("spec"));
    let rules = EnvRules::for_create(&context.gates)
        .with_options(context.env)
        .with_annotations(metadata.get("annotations").value());
    match PodEnvSpec::from_value(spec.value()) {
        Ok(view) => errors.extend(validate(&view, &spec.path(), &rules)),
        Err(error) => errors.push(spec.invalid_as("", error.to_string())),
    }
}

/// What is wrong with the environments of `new` in place of `old`, which may keep what it has
/// (NAME-07, FILE-09, CSI-10).
pub(crate) fn check_env_update(
    new: Field<'_, '_>,
    old: Field<'_, '_>,
    context: &Context,
    errors: &mut ErrorList,
) {
    let (metadata, spec) = (new.get("metadata"), new.get("spec"));
    let old = old.get("spec");
    match (PodEnvSpec::from_value(spec.value()), PodEnvSpec::from_value(old.value())) {
        (Ok(view), Ok(stored)) => {
            let rules = EnvRules::for_update(&context.gates, &view, &stored)
                .with_options(context.env)
                .with_annotations(metadata.get("annotations").value());
            errors.extend(validate(&view, &spec.path(), &rules));
        }
        // What was stored before its schema grew stricter must not stand in the way.
        (Ok(_), Err(_)) => check_env(new, context, errors),
        (Err(error), _) => errors.push(spec.invalid_as("", error.to_string())),
    }
}

/// What is legal in the environments of `spec` but likely a mistake.
pub(crate) fn env_warnings(spec: Field<'_, '_>, context: &Context) -> Vec<String> {
    let rules = EnvRules::for_create(&context.gates).with_options(context.env);
    PodEnvSpec::from_value(spec.value())
        .map_or_else(|_| Vec::new(), |view| warnings(&view, &spec.path(), &rules))
}
