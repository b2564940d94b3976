//! `Debug` for messages whose content must not be shown: names, and lengths in place of content.

use std::fmt;

use crate::{
    cri::{AuthConfig, ExecSyncResponse, KeyValue},
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
}
