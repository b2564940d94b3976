//! Values from AWS: Secrets Manager and the Parameter Store of Systems Manager.
//!
//! The driver has no credential of its own. It takes on the one role that the class names, with the
//! token of the pod's service account as web identity, so IAM decides what the pod may read and
//! CloudTrail says who did. Secrets and parameters of a container are read in batches.

mod api;
mod class;
mod parameters;
mod secrets_manager;
mod sts;

use std::{collections::BTreeSet, time::SystemTime};

use self::{
    api::{AwsApi, Found},
    class::{AwsClass, AwsQuery, Item},
    sts::AwsSessions,
};
use crate::{
    driver::{Answer, Call, Driver, FailureKind, FetchError, PodToken, Query},
    drivers::sessions::Identity,
    http::{AllowedAddresses, HttpClients},
};

/// The name under which it registers.
pub const NAME: &str = "aws.csi.waybill.dev";

/// Reads from AWS.
pub struct Aws {
    clients: HttpClients,
    sessions: AwsSessions,
    allowed: AllowedAddresses,
    /// Signatures are good for some minutes.
    clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
}

impl Aws {
    /// A driver that has taken on no role yet.
    pub fn new(clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self {
            clients: HttpClients::default(),
            sessions: AwsSessions::default(),
            allowed: AllowedAddresses::default(),
            clock: Box::new(clock),
        }
    }

    /// The same, for AWS's own addresses and these.
    pub fn at(self, allowed: AllowedAddresses) -> Self {
        Self { clients: HttpClients::within(&allowed), allowed, ..self }
    }

    async fn read(
        &self,
        call: &Call,
        class: &AwsClass,
        items: BTreeSet<Item>,
    ) -> Result<Found, FetchError> {
        let token = token(call, class)?;
        let client = self.clients.trusting(class.ca_bundle.as_deref())?;
        let api = AwsApi::new(client, class, &*self.clock);
        let identity = Identity::of(call, class.clone(), token);
        let make = async |_: Option<&_>| sts::take_on(&api, &call.pod, token).await;
        let session = self.sessions.current(&identity, make).await?;
        let mut found = read_all(&api.with(&session.get()?.session), &items).await;
        let denied: BTreeSet<_> =
            items.into_iter().filter(|item| is_denied(&found, item)).collect();
        // A session may end before its time, and a role may have got other policies meanwhile.
        if session.may_be_replaced() && !denied.is_empty() {
            let session = self.sessions.after(&session, &identity, make).await?;
            found.extend(read_all(&api.with(&session.get()?.session), &denied).await);
        }
        Ok(found)
    }
}

impl Driver for Aws {
    fn name(&self) -> &str {
        NAME
    }

    fn backend(&self) -> &'static str {
        "aws"
    }

    async fn fetch(&self, call: &Call, queries: &[Query]) -> Result<Vec<Answer>, FetchError> {
        let class = AwsClass::parse(call)?;
        class.other_addresses().try_for_each(|address| self.allowed.check(address))?;
        let queries: Vec<_> = queries.iter().map(AwsQuery::parse).collect();
        let items: BTreeSet<_> = queries.iter().flatten().map(|query| query.item.clone()).collect();
        let found =
            if items.is_empty() { Found::new() } else { self.read(call, &class, items).await? };
        let answer = |query: AwsQuery| match found.get(&query.item) {
            Some(Ok(value)) => query.select(value),
            Some(Err(error)) => Err(error.clone()),
            None => Err(FetchError::backend(format!("{} was not read", query.key))),
        };
        Ok(queries.into_iter().map(|query| query.and_then(answer)).collect())
    }
}

async fn read_all(api: &api::SignedApi<'_>, items: &BTreeSet<Item>) -> Found {
    let mut found = secrets_manager::read(api, items).await;
    found.extend(parameters::read(api, items).await);
    found
}

fn is_denied(found: &Found, item: &Item) -> bool {
    let denied =
        |answer: &Answer| answer.as_ref().is_err_and(|error| error.kind == FailureKind::Denied);
    found.get(item).is_some_and(denied)
}

/// The pod's token for the audience of the class.
fn token<'a>(call: &'a Call, class: &AwsClass) -> Result<&'a PodToken, FetchError> {
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
