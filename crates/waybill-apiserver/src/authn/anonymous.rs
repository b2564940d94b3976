//! Requests without credentials.

use crate::request::User;

/// What may be asked without saying who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Anonymous {
    /// Everything, as far as authorization goes along.
    Everywhere,
    Never,
    /// These paths, exactly.
    Paths(Vec<String>),
}

impl Anonymous {
    pub(super) fn allows(&self, path: &str) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Never => false,
            Self::Paths(paths) => paths.iter().any(|allowed| allowed == path),
        }
    }
}

/// Probes and the version: what load balancers and clients ask before they have credentials.
impl Default for Anonymous {
    fn default() -> Self {
        Self::Paths(["/healthz", "/livez", "/readyz", "/version"].map(str::to_owned).into())
    }
}

/// What the user of such a request is called.
pub(super) const NAME: &str = "system:anonymous";

/// The user of such a request.
pub(super) fn user() -> User {
    User {
        name: NAME.to_owned(),
        groups: vec!["system:unauthenticated".to_owned()],
        ..User::default()
    }
}
