//! Values from HashiCorp Vault or OpenBao: KV version 1 and 2.
//!
//! The driver has no credential of its own. It logs in with the token of the pod's service account, as
//! the one role that the class names, so the backend decides what the pod may read and its audit log
//! says who did. One login serves all containers of a pod until it ends; each path is read once for a
//! container, however many of its fields are wanted.

mod api;
mod class;
mod login;
mod secret;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, stream};
use waybill_core::secret::SecretBytes;

use self::{
    api::VaultApi,
    class::{SecretPath, VaultClass, VaultQuery},
    login::{Login, Logins, log_in},
};
use crate::{
    driver::{Answer, Call, Driver, FailureKind, FetchError, PodToken, Query},
    drivers::sessions::{Held, Identity},
    http::{AllowedAddresses, HttpClients},
};

/// The name under which it registers.
pub const NAME: &str = "vault.csi.waybill.dev";

/// How many paths are read at the same time for one container.
const READS: usize = 8;

/// How many logins are given back at the same time when the driver stops.
const REVOCATIONS: usize = 32;

/// Reads from Vault.
#[derive(Default)]
pub struct Vault {
    clients: HttpClients,
    logins: Logins,
    allowed: AllowedAddresses,
}

impl Vault {
    /// A driver that is not logged in anywhere.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, for these addresses alone. Without it classes name any other machine that has TLS.
    pub fn at(self, allowed: AllowedAddresses) -> Self {
        Self { clients: HttpClients::within(&allowed), allowed, ..self }
    }

    async fn read(
        &self,
        call: &Call,
        class: &VaultClass,
        paths: BTreeSet<SecretPath>,
    ) -> Result<Bodies, FetchError> {
        let token = token(call, class)?;
        let api = VaultApi::new(self.clients.trusting(class.ca_bundle.as_deref())?, class);
        let identity = Identity::of(call, class.clone(), token);
        let make = async |old: Option<&_>| log_in(&api, token, old).await;
        let login = self.logins.current(&identity, make).await?;
        let mut bodies = read_all(&api, &login.get()?.session, paths).await;
        let denied: BTreeSet<_> = bodies
            .iter()
            .filter(|(_, body)| is_denied(body))
            .map(|(path, _)| path.clone())
            .collect();
        // A login may end before its time: somebody revokes it, or the role has got other policies.
        if login.may_be_replaced() && !denied.is_empty() {
            let next = self.logins.after(&login, &identity, make).await?;
            bodies.extend(read_all(&api, &next.get()?.session, denied).await);
            // It would be valid for as long as the role says, and count there.
            api.revoke(&login.get()?.session).await;
        }
        Ok(bodies)
    }
}

impl Driver for Vault {
    fn name(&self) -> &str {
        NAME
    }

    fn backend(&self) -> &'static str {
        "vault"
    }

    async fn fetch(&self, call: &Call, queries: &[Query]) -> Result<Vec<Answer>, FetchError> {
        let class = VaultClass::parse(call)?;
        self.allowed.check(&class.address)?;
        let queries: Vec<_> =
            queries.iter().map(|query| VaultQuery::parse(query, &class)).collect();
        let paths: BTreeSet<_> = queries.iter().flatten().map(|query| query.path.clone()).collect();
        let bodies =
            if paths.is_empty() { Bodies::new() } else { self.read(call, &class, paths).await? };
        let answer = |query: VaultQuery| match bodies.get(&query.path) {
            Some(Ok(body)) => secret::select(body, &query, class.kv_version),
            Some(Err(error)) => Err(error.clone()),
            None => Err(FetchError::backend(format!("{} was not read", query.path.key))),
        };
        Ok(queries.into_iter().map(|query| query.and_then(answer)).collect())
    }

    /// A login is valid for as long as its role says, also when nobody knows it any more.
    async fn release(&self) {
        let revoke = |(identity, login): (Identity<VaultClass>, Held<Login>)| async move {
            let class = &identity.class;
            if let (Ok(client), Ok(login)) =
                (self.clients.trusting(class.ca_bundle.as_deref()), login.get())
            {
                VaultApi::new(client, class).revoke(&login.session).await;
            }
        };
        stream::iter(self.logins.take_all()).for_each_concurrent(REVOCATIONS, revoke).await;
    }
}

/// What the backend answered to each path.
type Bodies = BTreeMap<SecretPath, Result<SecretBytes, FetchError>>;

async fn read_all(api: &VaultApi<'_>, login: &Login, paths: BTreeSet<SecretPath>) -> Bodies {
    let read = |path: SecretPath| async move {
        let body = api.read(login, &path).await;
        (path, body)
    };
    stream::iter(paths).map(read).buffer_unordered(READS).collect().await
}

fn is_denied(body: &Result<SecretBytes, FetchError>) -> bool {
    body.as_ref().is_err_and(|error| error.kind == FailureKind::Denied)
}

/// The pod's token for the audience of the class.
fn token<'a>(call: &'a Call, class: &VaultClass) -> Result<&'a PodToken, FetchError> {
    let audience = &class.audience;
    call.tokens.get(audience).ok_or_else(|| {
        FetchError::invalid(format!(
            "there is no token of the pod for the audience {audience:?}; add it to tokenRequests of \
             the CSIDriver {NAME}, or name another one with the parameter audience of ProviderClass \
             {:?}",
            call.class
        ))
    })
}
