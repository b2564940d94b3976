//! The environment of a session: the container's own, what the caller sealed, and whose session it is.

use waybill_api::stock::{Reference, SESSION_VARIABLE, SessionId, literal};
use waybill_core::env::{
    limits::check_kernel_string,
    merge::{EnvVar, Environment, Tier},
    name::{EnvName, NameRules},
    origin::Origin,
    value::EnvValue,
};

/// `env` of a process with the container's references replaced by `values`, which are the variables of the
/// container itself, and with literals as they were meant. Whoever called the runtime knows the references only.
pub(crate) fn resolved(env: Vec<String>, references: &[String], values: &[String]) -> Vec<String> {
    let value_of = |name: &str| {
        let mut values = values.iter().filter_map(|entry| entry.split_once('='));
        values.find(|(found, _)| *found == name).map(|(_, value)| value)
    };
    let resolve = |entry: String| {
        let Some((name, value)) = entry.split_once('=') else { return entry };
        let replaced = match Reference::parse(value) {
            Ok(Some(_)) if references.iter().any(|reference| reference == name) => {
                value_of(name).map(str::to_owned)
            }
            Ok(None) => literal(value),
            Ok(Some(_)) | Err(_) => None,
        };
        replaced.map_or(entry.clone(), |value| format!("{name}={value}"))
    };
    env.into_iter().map(resolve).collect()
}

/// The environment of a session, by the precedence of every exec (EXEC-13). `None` if the kernel or the
/// runtime's format would not take it.
pub(crate) fn merged(
    env: Vec<String>,
    caller: Vec<EnvVar>,
    session: &SessionId,
) -> Option<Vec<String>> {
    let mut environment = Environment::new();
    // What has no name was never a variable; it stays where it would be found.
    let mut rest = Vec::new();
    for entry in env {
        match baseline(&entry) {
            Some(variable) => environment.set(Tier::Baseline, variable),
            None => rest.push(entry),
        }
    }
    environment.extend(Tier::Caller, caller);
    let name = EnvName::parse(SESSION_VARIABLE, NameRules::Relaxed).ok()?;
    let value = EnvValue::plain(session.as_str().as_bytes()).ok()?;
    environment.set(Tier::ApiServer, EnvVar { name, value, origin: Origin::ApiServer });
    let text = |variable: EnvVar| {
        check_kernel_string(&variable.name, &variable.value).ok()?;
        let name = str::from_utf8(variable.name.as_bytes()).ok()?;
        let value = str::from_utf8(variable.value.expose()).ok()?;
        Some(format!("{name}={value}"))
    };
    environment.into_vars().map(text).chain(rest.into_iter().map(Some)).collect()
}

fn baseline(entry: &str) -> Option<EnvVar> {
    let (name, value) = entry.split_once('=')?;
    Some(EnvVar {
        name: EnvName::parse(name, NameRules::Kernel).ok()?,
        value: EnvValue::secret(value.as_bytes().to_vec()).ok()?,
        origin: Origin::Runtime,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> Vec<String> {
        entries.iter().map(|&entry| entry.to_owned()).collect()
    }

    fn caller(name: &str, value: &str) -> EnvVar {
        EnvVar {
            name: EnvName::parse(name, NameRules::Relaxed).unwrap(),
            value: EnvValue::secret(value.as_bytes().to_vec()).unwrap(),
            origin: Origin::Caller,
        }
    }

    /// EXEC-13
    #[test]
    fn the_caller_goes_before_the_container_and_the_session_before_both_exec_13() {
        let session = SessionId::from_random([0; 16]);
        let env = list(&["PATH=/bin", "A=container", "WAYBILL_SESSION_ID=forged", "odd"]);
        let merged = merged(env, vec![caller("A", "caller"), caller("B", "")], &session).unwrap();
        let ours = format!("WAYBILL_SESSION_ID={session}");
        assert_eq!(merged, list(&["PATH=/bin", "A=caller", &ours, "B=", "odd"]));
    }

    #[test]
    fn what_the_kernel_does_not_take_is_no_environment() {
        let session = SessionId::from_random([0; 16]);
        assert!(merged(Vec::new(), vec![caller("A", &"x".repeat(131_070))], &session).is_none());
    }

    #[test]
    fn only_noted_references_become_values() {
        let env = list(&[
            "A=waybill{db/p}",
            "B=waybill{db/p}",
            "C=waybill{{db/p}",
            "D=waybill{",
            "E=1",
            "F",
        ]);
        let values = list(&["A=hunter2", "B=no", "E=2"]);
        let resolved = resolved(env, &list(&["A", "E"]), &values);
        assert_eq!(
            resolved,
            list(&["A=hunter2", "B=waybill{db/p}", "C=waybill{db/p}", "D=waybill{", "E=1", "F"])
        );
    }
}
