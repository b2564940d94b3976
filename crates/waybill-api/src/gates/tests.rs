//! Gates by version, flag and dependency.

use super::*;
use FeatureGate::{
    CsiDirectEnvInjection, EnvFiles, ExecEnvVar, ExecRequestId,
    RelaxedEnvironmentVariableValidation,
};

fn at(version: &str) -> KubeVersion {
    KubeVersion::parse(version).unwrap()
}

fn on(gates: FeatureGates) -> Vec<FeatureGate> {
    gates.iter().filter(|state| state.enabled).map(|state| state.gate).collect()
}

#[track_caller]
fn check(flag: &str, version: &str, expected: &[FeatureGate]) {
    assert_eq!(on(FeatureGates::parse(flag, at(version)).unwrap()), expected, "{flag}");
}

#[track_caller]
fn check_error(flag: &str, version: &str, expected: &str) {
    let error = FeatureGates::parse(flag, at(version)).unwrap_err();
    assert_eq!(error.to_string(), expected, "{flag}");
}

#[test]
fn defaults_follow_the_emulated_version_op_28() {
    let relaxed = RelaxedEnvironmentVariableValidation;
    for (version, expected) in [
        ("1.30", vec![]),
        ("1.31", vec![]),
        ("1.32", vec![relaxed]),
        ("1.33", vec![relaxed]),
        ("1.34", vec![relaxed]),
        ("1.35", vec![EnvFiles, relaxed]),
        ("1.36", vec![EnvFiles, relaxed]),
        ("1.37", vec![EnvFiles, relaxed]),
    ] {
        assert_eq!(on(FeatureGates::new(at(version))), expected, "{version}");
    }
}

#[test]
fn stages_follow_the_emulated_version() {
    for (gate, version, stage) in [
        (CsiDirectEnvInjection, "1.35", Stage::PreAlpha),
        (CsiDirectEnvInjection, "1.36", Stage::Alpha),
        (CsiDirectEnvInjection, "1.37", Stage::Beta),
        (EnvFiles, "1.33", Stage::PreAlpha),
        (EnvFiles, "1.34", Stage::Alpha),
        (EnvFiles, "1.35", Stage::Beta),
        (ExecEnvVar, "1.30", Stage::Alpha),
        (ExecEnvVar, "1.37", Stage::Alpha),
        (ExecRequestId, "1.30", Stage::Alpha),
        (ExecRequestId, "1.37", Stage::Alpha),
        (RelaxedEnvironmentVariableValidation, "1.30", Stage::Alpha),
        (RelaxedEnvironmentVariableValidation, "1.31", Stage::Alpha),
        (RelaxedEnvironmentVariableValidation, "1.32", Stage::Beta),
        (RelaxedEnvironmentVariableValidation, "1.34", Stage::Ga),
    ] {
        assert_eq!(gate.stage(at(version)), stage, "{gate} at {version}");
    }
}

#[test]
fn the_flag_is_laid_over_the_defaults() {
    check("", "1.30", &[]);
    check("ExecEnvVar=true", "1.30", &[ExecEnvVar]);
    check(" ExecEnvVar = true ,,", "1.30", &[ExecEnvVar]);
    check("EnvFiles=false", "1.37", &[RelaxedEnvironmentVariableValidation]);
    check("ExecEnvVar=true,ExecEnvVar=false", "1.30", &[]);
    check(
        "RelaxedEnvironmentVariableValidation=true",
        "1.34",
        &[RelaxedEnvironmentVariableValidation],
    );
}

#[test]
fn every_spelling_of_a_go_bool_is_taken() {
    for text in ["1", "t", "T", "true", "TRUE", "True"] {
        check(&format!("ExecEnvVar={text}"), "1.30", &[ExecEnvVar]);
    }
    for text in ["0", "f", "F", "false", "FALSE", "False"] {
        check(&format!("RelaxedEnvironmentVariableValidation={text}"), "1.32", &[]);
    }
    for text in ["", "yes", "on", "tRUE", "2", "true=false"] {
        assert!(FeatureGates::parse(&format!("ExecEnvVar={text}"), at("1.30")).is_err(), "{text}");
    }
}

#[test]
fn whole_stages_can_be_set_and_a_named_gate_wins_wherever_it_stands() {
    let relaxed = RelaxedEnvironmentVariableValidation;
    check("AllAlpha=true", "1.30", &[ExecEnvVar, ExecRequestId, relaxed]);
    check(
        "AllAlpha=true",
        "1.36",
        &[CsiDirectEnvInjection, EnvFiles, ExecEnvVar, ExecRequestId, relaxed],
    );
    check("AllAlpha=true,ExecRequestID=false", "1.30", &[ExecEnvVar, relaxed]);
    check("ExecRequestID=false,AllAlpha=true", "1.30", &[ExecEnvVar, relaxed]);
    check("AllBeta=true", "1.37", &[CsiDirectEnvInjection, EnvFiles, relaxed]);
    check("AllBeta=false", "1.32", &[]);
    check("AllBeta=false,EnvFiles=true", "1.37", &[EnvFiles, relaxed]);
    check("AllAlpha=true,AllAlpha=false", "1.30", &[]);
}

#[test]
fn refusals_read_as_in_kubernetes() {
    check_error("Nope=true", "1.37", "unrecognized feature gate: Nope");
    check_error("envfiles=true", "1.37", "unrecognized feature gate: envfiles");
    check_error("EnvFiles", "1.37", "missing bool value for EnvFiles");
    check_error(
        "EnvFiles=foo",
        "1.37",
        "invalid value of EnvFiles=foo, err: strconv.ParseBool: parsing \"foo\": invalid syntax",
    );
    check_error(
        "EnvFiles=true",
        "1.33",
        "cannot set feature gate EnvFiles to true, feature is PreAlpha at emulated version 1.33",
    );
    check_error(
        "CSIDirectEnvInjection=false",
        "1.35",
        "cannot set feature gate CSIDirectEnvInjection to false, feature is PreAlpha at emulated \
         version 1.35",
    );
}

#[test]
fn the_relaxed_names_are_locked_on_from_1_34_op_28() {
    check("RelaxedEnvironmentVariableValidation=false", "1.33", &[]);
    for version in ["1.34", "1.35", "1.36", "1.37"] {
        assert!(
            FeatureGates::parse("RelaxedEnvironmentVariableValidation=false", at(version))
                .unwrap_err()
                .to_string()
                .ends_with(
                    "cannot set feature gate RelaxedEnvironmentVariableValidation to false, \
                     feature is locked to true"
                )
        );
    }
}

/// EXEC-23
#[test]
fn request_ids_need_exec_variables_exec_23_op_4() {
    check("ExecRequestID=true,ExecEnvVar=true", "1.30", &[ExecEnvVar, ExecRequestId]);
    let expected =
        "ExecRequestID is enabled, but depends on features that are disabled: [ExecEnvVar]";
    check_error("ExecRequestID=true", "1.30", expected);
    check_error("AllAlpha=true,ExecEnvVar=false", "1.30", expected);
}

#[test]
fn all_faults_are_gathered() {
    let error = FeatureGates::parse("Nope=true,EnvFiles,ExecEnvVar=x,EnvFiles=true", at("1.30"));
    let error = error.unwrap_err();
    assert_eq!(error.errors().len(), 4);
    assert_eq!(
        error.to_string(),
        "[unrecognized feature gate: Nope, missing bool value for EnvFiles, invalid value of \
         ExecEnvVar=x, err: strconv.ParseBool: parsing \"x\": invalid syntax, cannot set feature \
         gate EnvFiles to true, feature is PreAlpha at emulated version 1.30]"
    );
}

/// EXEC-26: a copy that is flipped leaves the original as it was.
#[test]
fn gates_flip_as_values_under_the_rules_of_the_flag_exec_26() {
    let before = FeatureGates::new(at("1.30"));
    let after = before.with(ExecEnvVar, true).unwrap().with(ExecRequestId, true).unwrap();
    assert!(!before.enabled(ExecEnvVar));
    assert!(after.enabled(ExecEnvVar) && after.enabled(ExecRequestId));
    assert!(matches!(after.with(ExecEnvVar, false), Err(FeatureGateError::Dependency { .. })));
    assert!(matches!(before.with(EnvFiles, true), Err(FeatureGateError::PreAlpha { .. })));
    let locked = FeatureGates::all_on().with(RelaxedEnvironmentVariableValidation, false);
    assert!(matches!(locked, Err(FeatureGateError::Locked { .. })));
}

#[test]
fn all_on_is_what_every_gate_set_to_true_gives() {
    let flag: Vec<_> = FeatureGate::ALL.iter().map(|gate| format!("{gate}=true")).collect();
    let parsed = FeatureGates::parse(&flag.join(","), KubeVersion::default()).unwrap();
    assert_eq!(FeatureGates::all_on(), parsed);
    assert_eq!(parsed.emulated_version(), KubeVersion::NEWEST);
}

#[test]
fn states_carry_name_stage_and_value() {
    let states: Vec<_> = FeatureGates::new(at("1.36"))
        .iter()
        .map(|state| (state.gate.name(), state.stage.as_str(), state.enabled))
        .collect();
    assert_eq!(
        states,
        [
            ("CSIDirectEnvInjection", "ALPHA", false),
            ("EnvFiles", "BETA", true),
            ("ExecEnvVar", "ALPHA", false),
            ("ExecRequestID", "ALPHA", false),
            ("RelaxedEnvironmentVariableValidation", "", true),
        ]
    );
    assert_eq!(EnvFiles.stage(at("1.30")).as_str(), "PRE-ALPHA");
    assert_eq!(
        format!("{:?}", FeatureGates::new(at("1.35"))),
        "FeatureGates(1.35, [EnvFiles, RelaxedEnvironmentVariableValidation])"
    );
}
