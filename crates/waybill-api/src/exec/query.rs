//! The query forms of [`PodExecOptions`].
//!
//! Kubernetes encodes the options under one set of names for the API and under another for the
//! kubelet. Its query codec knows no list of structs, so `env` has a form of its own:
//! `env=NAME=VALUE`, repeated (EXEC-18). Encoded queries contain values; they must not be logged.

use waybill_core::secret::SecretBytes;

use super::{
    ExecVar, ExecVarError, PodExecOptions,
    form::{FormWriter, values},
};

impl PodExecOptions {
    /// Decodes the query of a request to the API server; parameters that we do not know are ignored,
    /// as by Kubernetes.
    pub fn from_query(query: &str) -> Result<Self, ExecQueryError> {
        Ok(Self {
            stdin: api_flag(query, "stdin")?,
            stdout: api_flag(query, "stdout")?,
            stderr: api_flag(query, "stderr")?,
            tty: api_flag(query, "tty")?,
            container: first_text(query, "container")?.unwrap_or_default(),
            command: texts(query, COMMAND).collect::<Result<_, _>>()?,
            env: parse_env_params(query)?,
        })
    }

    /// Decodes the query of a request to the node agent, whose path names the container.
    ///
    /// With a terminal there is no separate standard error, so that flag is dropped, as by the
    /// kubelet.
    pub fn from_kubelet_query(query: &str, env: EnvParams) -> Result<Self, ExecQueryError> {
        let tty = kubelet_flag(query, "tty")?;
        Ok(Self {
            stdin: kubelet_flag(query, "input")?,
            stdout: kubelet_flag(query, "output")?,
            stderr: kubelet_flag(query, "error")? && !tty,
            tty,
            container: String::new(),
            command: texts(query, COMMAND).collect::<Result<_, _>>()?,
            env: match env {
                EnvParams::Ignored => Vec::new(),
                EnvParams::Read => parse_node_env_params(query)?,
            },
        })
    }

    /// Encodes the options as a client sends them to the API server (EXEC-43).
    ///
    /// A name with `=` and a `valueFrom` have no query form; the command line makes neither.
    pub fn to_query(&self) -> String {
        let mut query = FormWriter::default();
        if !self.container.is_empty() {
            query.push("container", self.container.as_bytes());
        }
        let flags = [
            ("stdin", self.stdin),
            ("stdout", self.stdout),
            ("stderr", self.stderr),
            ("tty", self.tty),
        ];
        push_flags(&mut query, "true", flags);
        push_command(&mut query, &self.command);
        push_env(&mut query, &self.env);
        query.finish()
    }

    /// Encodes the options as the API server sends them to the node agent, with `server_env` after
    /// the caller's variables, so that its own win (OP-6).
    ///
    /// For options that [`super::validate()`] has passed: a name with `=` and a `valueFrom` have no
    /// query form.
    pub fn to_kubelet_query(&self, server_env: &[ExecVar]) -> String {
        let mut query = FormWriter::default();
        let flags = [
            ("input", self.stdin),
            ("output", self.stdout),
            ("error", self.stderr),
            ("tty", self.tty),
        ];
        push_flags(&mut query, "1", flags);
        push_command(&mut query, &self.command);
        push_env(&mut query, &self.env);
        push_env(&mut query, server_env);
        query.finish()
    }
}

/// What the node agent does with `env`; the gate `ExecEnvVar` decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvParams {
    /// The gate is off: they are not even looked at (EXEC-38).
    Ignored,
    /// The gate is on (EXEC-37).
    Read,
}

/// The `env` parameters of `query` in order, split and decoded, not judged (EXEC-18).
pub fn parse_env_params(query: &str) -> Result<Vec<ExecVar>, ExecQueryError> {
    env_params(query, ExecVar::split)
}

/// The `env` parameters of `query` in order, under the rule of the node agent: there is a `=`, the
/// name is not empty, and there is no NUL (EXEC-37, EXEC-39).
pub fn parse_node_env_params(query: &str) -> Result<Vec<ExecVar>, ExecQueryError> {
    env_params(query, ExecVar::parse)
}

/// A query that cannot be decoded; every edge answers 400. The text shows no part of the query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("query parameter {parameter}[{index}] {fault}")]
pub struct ExecQueryError {
    parameter: &'static str,
    index: usize,
    fault: ExecQueryFault,
}

impl ExecQueryError {
    /// The parameter at fault.
    pub fn parameter(&self) -> &'static str {
        self.parameter
    }

    /// Which of the parameters of that name, counted from zero.
    pub fn index(&self) -> usize {
        self.index
    }

    /// What is wrong with it.
    pub fn fault(&self) -> ExecQueryFault {
        self.fault
    }
}

/// What can be wrong with a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecQueryFault {
    /// `%` without two hexadecimal digits after it.
    #[error("has a malformed percent-escape")]
    Escape,
    /// A text is wanted.
    #[error("is not UTF-8")]
    NotText,
    /// A variable is wanted.
    #[error(transparent)]
    Variable(#[from] ExecVarError),
}

const COMMAND: &str = "command";

const ENV: &str = "env";

fn env_params(
    query: &str,
    parse: fn(&[u8]) -> Result<ExecVar, ExecVarError>,
) -> Result<Vec<ExecVar>, ExecQueryError> {
    values(query, ENV)
        .enumerate()
        .map(|(index, bytes)| {
            let error = |fault| ExecQueryError { parameter: ENV, index, fault };
            let bytes = SecretBytes::from(bytes.ok_or(error(ExecQueryFault::Escape))?);
            parse(bytes.expose()).map_err(|fault| error(fault.into()))
        })
        .collect()
}

/// A flag as Kubernetes' query codec reads it: set to nothing is true, and so is everything but
/// `0` and `false`.
fn api_flag(query: &str, parameter: &'static str) -> Result<bool, ExecQueryError> {
    let text = first_text(query, parameter)?;
    Ok(text.is_some_and(|text| text != "0" && !text.eq_ignore_ascii_case("false")))
}

/// A flag as the kubelet reads it: only `1` is true.
fn kubelet_flag(query: &str, parameter: &'static str) -> Result<bool, ExecQueryError> {
    Ok(first_text(query, parameter)?.is_some_and(|text| text == "1"))
}

fn first_text(query: &str, parameter: &'static str) -> Result<Option<String>, ExecQueryError> {
    texts(query, parameter).next().transpose()
}

fn texts(
    query: &str,
    parameter: &'static str,
) -> impl Iterator<Item = Result<String, ExecQueryError>> {
    values(query, parameter).enumerate().map(move |(index, bytes)| {
        let text = bytes
            .ok_or(ExecQueryFault::Escape)
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| ExecQueryFault::NotText));
        text.map_err(|fault| ExecQueryError { parameter, index, fault })
    })
}

/// Flags that are not set are left out.
fn push_flags(query: &mut FormWriter, set: &str, flags: [(&str, bool); 4]) {
    for (parameter, _) in flags.iter().filter(|(_, is_set)| *is_set) {
        query.push(parameter, set.as_bytes());
    }
}

fn push_command(query: &mut FormWriter, command: &[String]) {
    for word in command {
        query.push(COMMAND, word.as_bytes());
    }
}

fn push_env(query: &mut FormWriter, env: &[ExecVar]) {
    for variable in env {
        query.push_pair(ENV, variable.name().as_bytes(), variable.value().expose());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use waybill_core::id::AuditId;

    use super::*;

    #[track_caller]
    fn check_env(query: &str, expected: &[(&str, &[u8])]) {
        let env = PodExecOptions::from_query(query).unwrap().env;
        let pairs: Vec<_> =
            env.iter().map(|variable| (variable.name(), variable.value().expose())).collect();
        assert_eq!(pairs, expected, "{query:?}");
    }

    #[track_caller]
    fn refused(query: &str, expected: &str) {
        let error = PodExecOptions::from_query(query).unwrap_err();
        assert_eq!(error.to_string(), expected, "{query:?}");
    }

    #[track_caller]
    fn node_refuses(query: &str, expected: &str) {
        let error = PodExecOptions::from_kubelet_query(query, EnvParams::Read).unwrap_err();
        assert_eq!(error.to_string(), expected, "{query:?}");
    }

    /// EXEC-18
    #[test]
    fn env_is_decoded_once_and_split_at_the_first_equals_sign_exec_18() {
        check_env("env=A=b=c", &[("A", b"b=c")]);
        check_env("env=A%3Db%3Dc", &[("A", b"b=c")]);
        check_env("env=A=x+y%20z%2B", &[("A", b"x y z+")]);
        check_env("env=A=%2541", &[("A", b"%41")]);
        check_env("env=A=%26env%3DB%3D2", &[("A", b"&env=B=2")]);
        check_env("env=A=1&x=2&env=B=2&&env=A=3", &[("A", b"1"), ("B", b"2"), ("A", b"3")]);
        check_env("env=A=", &[("A", b"")]);
        check_env("env==x", &[("", b"x")]);
        check_env("%65nv=A=1&ENV=B=2&env%20=C=3", &[("A", b"1")]);
        check_env("env=A=\u{e9}%e9%00", &[("A", b"\xc3\xa9\xe9\0")]);
        check_env("env=A=$(B)%25B%25", &[("A", b"$(B)%B%")]);
        check_env("", &[]);
    }

    /// EXEC-18
    #[test]
    fn what_cannot_be_decoded_is_refused_exec_18() {
        refused("env=A=1&env=B", "query parameter env[1] must have the form NAME=VALUE");
        refused("env", "query parameter env[0] must have the form NAME=VALUE");
        refused("env=", "query parameter env[0] must have the form NAME=VALUE");
        refused("env=%ff=1", "query parameter env[0] has a name that is not UTF-8");
        for bad in ["%", "%4", "%zz", "%4g", "%+1", "%\u{e9}"] {
            let text =
                |parameter| format!("query parameter {parameter} has a malformed percent-escape");
            refused(&format!("env=A={bad}"), &text("env[0]"));
            refused(&format!("command=a&command={bad}"), &text("command[1]"));
            refused(&format!("container={bad}"), &text("container[0]"));
            refused(&format!("stdin={bad}"), &text("stdin[0]"));
            check_env(&format!("other={bad}&{bad}=1&{bad}"), &[]);
        }
        refused("command=%ff", "query parameter command[0] is not UTF-8");
        refused("container=%ff", "query parameter container[0] is not UTF-8");
    }

    #[test]
    fn flags_are_read_as_by_the_codec_of_kubernetes() {
        let stdin = |query: &str| PodExecOptions::from_query(query).unwrap().stdin;
        for set in ["stdin", "stdin=", "stdin=true", "stdin=1", "stdin=yes", "stdin=2&stdin=0"] {
            assert!(stdin(set), "{set:?}");
        }
        for unset in ["", "stdout=1", "stdin=0", "stdin=false", "stdin=FaLSe", "stdin=0&stdin=1"] {
            assert!(!stdin(unset), "{unset:?}");
        }
    }

    #[test]
    fn each_parameter_reaches_its_field() {
        let options = PodExecOptions::from_query(
            "container=app&container=x&command=sh&command=-c&command=&stdin=true&stdout=true&\
             stderr=true&tty=true",
        )
        .unwrap();
        let command = ["sh", "-c", ""].map(str::to_owned).to_vec();
        let container = "app".to_owned();
        assert_eq!(
            options,
            PodExecOptions {
                stdin: true,
                stdout: true,
                stderr: true,
                tty: true,
                container,
                command,
                env: vec![],
            }
        );
    }

    /// EXEC-39
    #[test]
    fn the_node_refuses_malformed_env_exec_39() {
        node_refuses("env=A=1&env=B", "query parameter env[1] must have the form NAME=VALUE");
        node_refuses("env==x", "query parameter env[0] has an empty name");
        node_refuses("env=A=%00", "query parameter env[0] contains a NUL byte");
        node_refuses("env=A%00=", "query parameter env[0] contains a NUL byte");
        node_refuses("env=A=%f", "query parameter env[0] has a malformed percent-escape");
    }

    /// EXEC-38
    #[test]
    fn the_node_ignores_env_while_the_gate_is_off_exec_38() {
        let query = "command=ls&output=1&env=bad&env=A=%";
        let options = PodExecOptions::from_kubelet_query(query, EnvParams::Ignored).unwrap();
        assert!(options.stdout && options.env.is_empty());
        assert_eq!(options.command, ["ls"]);
    }

    #[test]
    fn the_node_reads_flags_as_the_kubelet() {
        let read =
            |query: &str| PodExecOptions::from_kubelet_query(query, EnvParams::Read).unwrap();
        assert_eq!(read("input=true&output=&error=0&tty=yes&stdin=1"), PodExecOptions::default());
        let terminal = read("input=1&output=1&error=1&tty=1");
        assert!(terminal.stdin && terminal.stdout && terminal.tty && !terminal.stderr);
    }

    /// EXEC-43
    #[test]
    fn clients_send_the_names_of_the_api_exec_43() {
        let options = PodExecOptions {
            stdin: true,
            tty: true,
            stdout: true,
            stderr: false,
            container: "app".to_owned(),
            command: vec!["sh".to_owned(), "a b&c".to_owned()],
            env: vec![ExecVar::new("A", "b=c;d"), ExecVar::new("A.b", "")],
        };
        assert_eq!(
            options.to_query(),
            "container=app&stdin=true&stdout=true&tty=true&command=sh&command=a%20b%26c&\
             env=A=b%3Dc%3Bd&env=A.b="
        );
        assert_eq!(PodExecOptions::default().to_query(), "");
    }

    /// EXEC-19
    #[test]
    fn the_api_server_sends_the_names_of_the_kubelet_and_its_own_env_last_exec_19_op_6() {
        let options = PodExecOptions {
            stdin: true,
            stdout: true,
            stderr: true,
            tty: true,
            container: "app".to_owned(),
            command: vec!["ls".to_owned()],
            env: vec![ExecVar::new("A", "1")],
        };
        let id = AuditId::parse("5c1e/0f").unwrap();
        assert_eq!(
            options.to_kubelet_query(&[ExecVar::audit_id(Some(&id))]),
            "input=1&output=1&error=1&tty=1&command=ls&env=A=1&\
             env=KUBERNETES_EXEC_AUDIT_ID=5c1e%2F0f"
        );
        assert_eq!(
            PodExecOptions::default().to_kubelet_query(&[ExecVar::audit_id(None)]),
            "env=KUBERNETES_EXEC_AUDIT_ID=unknown"
        );
        assert_eq!(PodExecOptions::default().to_kubelet_query(&[]), "");
    }

    #[test]
    fn errors_never_show_a_value() {
        for query in ["env=hunter2", "env=A=hunter2%", "env=%ff=hunter2", "command=hunter2%ff"] {
            let error = PodExecOptions::from_query(query).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    prop_compose! {
        fn any_options()(
            [stdin, stdout, stderr, tty] in any::<[bool; 4]>(),
            container in any::<String>(),
            command in prop::collection::vec(any::<String>(), 0..4),
            env in prop::collection::vec(("[^=]*", any::<Vec<u8>>()), 0..4),
        ) -> PodExecOptions {
            let env = env.into_iter().map(|(name, value)| ExecVar::new(name, value)).collect();
            PodExecOptions { stdin, stdout, stderr, tty, container, command, env }
        }
    }

    proptest! {
        #[test]
        fn the_api_reads_what_a_client_sends(options in any_options()) {
            prop_assert_eq!(PodExecOptions::from_query(&options.to_query()), Ok(options));
        }

        /// EXEC-37
        #[test]
        fn the_node_reads_what_the_api_server_sends_exec_37(
            mut options in any_options(),
            server in any::<bool>(),
        ) {
            options.env.retain(|variable| {
                !variable.name().is_empty()
                    && !variable.name().contains('\0')
                    && !variable.value().expose().contains(&0)
            });
            let server_env: Vec<_> = server.then(|| ExecVar::audit_id(None)).into_iter().collect();
            let query = options.to_kubelet_query(&server_env);

            options.env.extend(server_env);
            options.container = String::new();
            options.stderr &= !options.tty;
            let read = PodExecOptions::from_kubelet_query(&query, EnvParams::Read);
            prop_assert_eq!(read, Ok(options));
        }

        #[test]
        fn no_query_makes_it_panic(
            query in "((env|command|stdin|container|%65nv|.)(=|&|%|%[0-9a-f]{2}|\\+|.){0,6}&?){0,8}",
        ) {
            let _ = PodExecOptions::from_query(&query);
            let _ = PodExecOptions::from_kubelet_query(&query, EnvParams::Read);
        }
    }
}
