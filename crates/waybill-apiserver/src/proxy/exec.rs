//! What the API server adds to an exec session before the node sees it (KEP-6035).
//!
//! Pure: gates, options and the audit ID in, the node's request out. Only the opaque ID leaves; who
//! the user is stays in the audit log (EXEC-22).

use waybill_api::{
    exec::{ExecEnvRules, ExecVar, PodExecOptions, validate},
    field::ErrorList,
    gates::{FeatureGate, FeatureGates},
};
use waybill_core::{env::name::NameRules, id::AuditId};

use super::target::{NodeTarget, PodPath};

/// An exec request that passed validation, with the server's own variables.
///
/// There is one per request that may reach a node, so its [`AuditIdInjection`] is counted once
/// (EXEC-46, OP-11).
#[derive(Debug)]
pub(crate) struct ExecPlan {
    options: PodExecOptions,
    server_env: Vec<ExecVar>,
    injection: AuditIdInjection,
}

impl ExecPlan {
    /// Judges `options` and decides what the server adds. The gates are those of the moment when the
    /// request began (EXEC-26).
    pub(crate) fn new(
        gates: FeatureGates,
        options: PodExecOptions,
        audit_id: Option<&AuditId>,
    ) -> Result<Self, ErrorList> {
        let errors = validate(&options, env_rules(gates));
        if !errors.is_empty() {
            return Err(errors);
        }
        let (server_env, injection) = if injects(gates) {
            let injection = match audit_id {
                Some(_) => AuditIdInjection::Injected,
                None => AuditIdInjection::Placeholder,
            };
            (vec![ExecVar::audit_id(audit_id)], injection)
        } else {
            (Vec::new(), AuditIdInjection::Skipped)
        };
        Ok(Self { options, server_env, injection })
    }

    /// How to count the request.
    pub(crate) fn injection(&self) -> AuditIdInjection {
        self.injection
    }

    /// What to ask the node for.
    pub(crate) fn target(&self, pod: PodPath<'_>, container: &str) -> NodeTarget {
        NodeTarget::exec(pod, container, &self.options, &self.server_env)
    }
}

/// The label `result` of `apiserver_exec_audit_id_injected_total` (EXEC-46).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AuditIdInjection {
    /// The session carries the audit ID of its request.
    Injected,
    /// The request has no audit ID, and the session carries `unknown`.
    Placeholder,
    /// The gates are off.
    Skipped,
}

impl AuditIdInjection {
    /// The value of the label.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Injected => "injected",
            Self::Placeholder => "placeholder",
            Self::Skipped => "skipped",
        }
    }
}

fn env_rules(gates: FeatureGates) -> ExecEnvRules {
    if !gates.enabled(FeatureGate::ExecEnvVar) {
        return ExecEnvRules::Disabled;
    }
    let relaxed = gates.enabled(FeatureGate::RelaxedEnvironmentVariableValidation);
    ExecEnvRules::Enabled { names: if relaxed { NameRules::Relaxed } else { NameRules::Strict } }
}

/// The gates refuse one without the other at start-up (OP-4); here neither is trusted alone.
fn injects(gates: FeatureGates) -> bool {
    gates.enabled(FeatureGate::ExecEnvVar) && gates.enabled(FeatureGate::ExecRequestId)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: PodPath<'_> = PodPath { namespace: "default", name: "web" };

    fn gates(exec_env_var: bool, exec_request_id: bool) -> FeatureGates {
        let gates = FeatureGates::all_on();
        let gates = gates.with(FeatureGate::ExecRequestId, exec_request_id).unwrap();
        gates.with(FeatureGate::ExecEnvVar, exec_env_var).unwrap()
    }

    fn options(env: &[(&str, &str)]) -> PodExecOptions {
        let env = env.iter().map(|(name, value)| ExecVar::new(*name, *value)).collect();
        PodExecOptions {
            stdout: true,
            command: vec!["id".to_owned()],
            env,
            ..PodExecOptions::default()
        }
    }

    #[track_caller]
    fn check(
        gates: FeatureGates,
        env: &[(&str, &str)],
        id: Option<&str>,
        query: &str,
        label: &str,
    ) {
        let id = id.map(|id| AuditId::parse(id).unwrap());
        let plan = ExecPlan::new(gates, options(env), id.as_ref()).unwrap();
        let expected = format!("/exec/default/web/main?output=1&command=id{query}");
        assert_eq!(plan.target(POD, "main").expose(), expected);
        assert_eq!(plan.injection().label(), label);
    }

    /// EXEC-19 EXEC-24 EXEC-46 EXEC-54
    #[test]
    fn the_audit_id_is_sent_with_and_without_variables_of_the_caller() {
        let id = "&env=KUBERNETES_EXEC_AUDIT_ID=5c1e-0f2a";
        check(gates(true, true), &[], Some("5c1e-0f2a"), id, "injected");
        let both = format!("&env=A=b%20c{id}");
        check(gates(true, true), &[("A", "b c")], Some("5c1e-0f2a"), &both, "injected");
    }

    /// EXEC-20 EXEC-46
    #[test]
    fn a_request_without_audit_id_gets_the_placeholder() {
        let unknown = "&env=KUBERNETES_EXEC_AUDIT_ID=unknown";
        check(gates(true, true), &[], None, unknown, "placeholder");
    }

    /// EXEC-23 EXEC-46 EXEC-54
    #[test]
    fn no_audit_id_is_sent_while_a_gate_is_off() {
        check(gates(true, false), &[], Some("x"), "", "skipped");
        check(gates(true, false), &[("A", "1")], Some("x"), "&env=A=1", "skipped");
        check(gates(false, false), &[], Some("x"), "", "skipped");
        check(gates(false, false), &[], None, "", "skipped");
    }

    /// EXEC-25 EXEC-33 EXEC-34
    #[test]
    fn refused_variables_reach_neither_node_nor_counter() {
        let refused = |gates, env| {
            let errors = ExecPlan::new(gates, options(env), None).unwrap_err();
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(
            refused(gates(false, false), &[("A", "1")]),
            "env: Forbidden: ExecEnvVar feature gate is not enabled"
        );
        assert_eq!(
            refused(gates(true, true), &[("KUBERNETES_EXEC_AUDIT_ID", "fake")]),
            "env[0].name: Forbidden: KUBERNETES_EXEC_AUDIT_ID is reserved by the API server"
        );
    }
}
