//! `Debug` for messages whose content must not be shown: names, and lengths in place of content.

use std::fmt;

use crate::{
    cri::{AuthConfig, ExecSyncResponse, KeyValue},
    csi::{EnvVarResult, NodeGetEnvVarsRequest, NodePublishVolumeRequest},
    provider::{File, MountRequest},
    runtime::{ExportResponse, ImportRequest},
};

impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValue")
            .field("key", &self.key)
            .field("value", &Length(self.value.len()))
            .finish()
    }
}

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credentials = [
            ("username", &self.username),
            ("password", &self.password),
            ("auth", &self.auth),
            ("identity_token", &self.identity_token),
            ("registry_token", &self.registry_token),
        ];
        let set = credentials.iter().filter(|(_, text)| !text.is_empty());
        f.debug_struct("AuthConfig")
            .field("server_address", &self.server_address)
            .field("set", &set.map(|(name, _)| *name).collect::<Vec<_>>())
            .finish()
    }
}

impl fmt::Debug for ExecSyncResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSyncResponse")
            .field("stdout", &Length(self.stdout.len()))
            .field("stderr", &Length(self.stderr.len()))
            .field("exit_code", &self.exit_code)
            .finish()
    }
}

/// Parameters of a class may tell where secrets are, and the context of a pod may hold its token.
impl fmt::Debug for NodeGetEnvVarsRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeGetEnvVarsRequest")
            .field("provider_class_name", &self.provider_class_name)
            .field("class_parameters", &self.class_parameters.keys())
            .field("queries", &self.queries.iter().map(|query| &query.name).collect::<Vec<_>>())
            .field("pod_context", &self.pod_context.keys())
            .finish_non_exhaustive()
    }
}

/// The context of a pod may hold its token.
impl fmt::Debug for NodePublishVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePublishVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("target_path", &self.target_path)
            .field("readonly", &self.readonly)
            .field("secrets", &self.secrets.keys())
            .field("volume_context", &self.volume_context.keys())
            .finish()
    }
}

/// A driver's words about a failure may quote what it read.
impl fmt::Debug for EnvVarResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvVarResult")
            .field("name", &self.name)
            .field("value", &Length(self.value.len()))
            .field("error", &Length(self.error.len()))
            .finish()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("path", &self.path)
            .field("mode", &self.mode)
            .field("contents", &Length(self.contents.len()))
            .finish()
    }
}

/// Both texts may hold credentials.
impl fmt::Debug for MountRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountRequest")
            .field("attributes", &Length(self.attributes.len()))
            .field("secrets", &Length(self.secrets.len()))
            .field("target_path", &self.target_path)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ImportRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportRequest")
            .field("name", &self.name)
            .field("data", &Length(self.data.len()))
            .field("pinned", &self.pinned)
            .finish()
    }
}

impl fmt::Debug for ExportResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportResponse").field("data", &Length(self.data.len())).finish()
    }
}

struct Length(usize);

impl fmt::Debug for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} bytes)", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::{ContainerConfig, CreateContainerRequest, ExecRequest, PullImageRequest};

    const VALUE: &str = "hunter2";

    #[track_caller]
    fn check(message: &impl fmt::Debug, shown: &str) {
        for text in [format!("{message:?}"), format!("{message:#?}")] {
            assert!(!text.contains(VALUE) && !text.contains("104, 117"), "{text}");
            assert!(text.contains(shown), "{text}");
        }
    }

    fn variable() -> KeyValue {
        KeyValue { key: "PASSWORD".into(), value: VALUE.into() }
    }

    #[test]
    fn variables_show_their_names_only() {
        check(&variable(), "(7 bytes)");
        check(&ExecRequest { envs: vec![variable()], ..Default::default() }, "PASSWORD");
        let config = ContainerConfig { envs: vec![variable()], ..Default::default() };
        check(&CreateContainerRequest { config: Some(config), ..Default::default() }, "PASSWORD");
    }

    #[test]
    fn credentials_show_which_are_set_only() {
        let auth = AuthConfig {
            username: VALUE.into(),
            password: VALUE.into(),
            auth: VALUE.into(),
            server_address: "registry.example".into(),
            identity_token: VALUE.into(),
            registry_token: VALUE.into(),
        };
        check(&auth, "registry.example");
        check(&PullImageRequest { auth: Some(auth), ..Default::default() }, "identity_token");
    }

    #[test]
    fn content_shows_its_length_only() {
        let output = ExecSyncResponse { stdout: VALUE.into(), stderr: VALUE.into(), exit_code: 3 };
        check(&output, "(7 bytes)");
        let import =
            ImportRequest { name: "a".into(), data: VALUE.into(), ..ImportRequest::default() };
        check(&import, "(7 bytes)");
        check(&ExportResponse { data: VALUE.into() }, "(7 bytes)");
    }

    /// CSI-49
    #[test]
    fn questions_and_answers_of_drivers_show_names_only_csi_49() {
        let map = |key: &str| [(key.to_owned(), VALUE.to_owned())].into();
        let request = NodeGetEnvVarsRequest {
            provider_class_name: String::new(),
            class_parameters: map("vaultAddr"),
            queries: Vec::new(),
            pod_context: map("csi.storage.k8s.io/serviceAccount.tokens"),
            version: String::new(),
        };
        check(&request, "vaultAddr");
        let (value, error) = (VALUE.into(), format!("cannot read {VALUE}"));
        check(&EnvVarResult { name: "PASSWORD".into(), value, error }, "PASSWORD");
        check(&File { path: "db".into(), mode: 0, contents: VALUE.into() }, "(7 bytes)");
        let (attributes, secrets) = (VALUE.into(), VALUE.into());
        check(&MountRequest { attributes, secrets, ..Default::default() }, "(7 bytes)");
    }
}
