//! Who we are to an etcd that asks for a password.
//!
//! A password buys a token that goes with every call. etcd forgets tokens, after a while or when it
//! starts again, and then says so; the next call gets a new one.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
};

use super::{EtcdUser, message::AuthenticateRequest};

/// The key under which etcd looks for a token (`api/v3rpc/rpctypes/metadatafields.go`).
const TOKEN: &str = "token";

/// A user and the token that etcd knows them by.
pub(super) struct Login {
    user: EtcdUser,
    token: Mutex<Option<Token>>,
}

pub(super) type Token = MetadataValue<Ascii>;

impl Login {
    pub(super) fn new(user: EtcdUser) -> Self {
        Self { user, token: Mutex::default() }
    }

    /// What buys a token.
    pub(super) fn request(&self) -> Result<AuthenticateRequest, Status> {
        let password = str::from_utf8(self.user.password.expose())
            .map_err(|_| Status::invalid_argument("the password for etcd is not UTF-8"))?;
        Ok(AuthenticateRequest { name: self.user.name.clone(), password: password.to_owned() })
    }

    /// Keeps a token that was bought.
    pub(super) fn keep(&self, token: &str) -> Result<Token, Status> {
        let mut token: Token =
            token.parse().map_err(|_| Status::internal("etcd's token is no header"))?;
        token.set_sensitive(true);
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(token)
    }

    /// The token at hand, which may be too old.
    pub(super) fn token(&self) -> Option<Token> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user.name).finish_non_exhaustive()
    }
}

/// `message`, from the bearer of `token`.
pub(super) fn signed<M>(message: M, token: Option<Token>) -> Request<M> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert(TOKEN, token);
    }
    request
}

/// Whether etcd refused a call because its token is too old; nothing was done then.
pub(super) fn is_stale(status: &Status) -> bool {
    status.code() == Code::Unauthenticated
        || status.message().contains("revision of auth store is old")
}
