//! Facts that a cloud tells its machines: EC2, Google Compute Engine, Azure.
//!
//! The same services hand out the credentials of the machine. Those, and what is known to hold secrets
//! of the machine, are refused unless the class says otherwise, whatever its allow-list says.

mod class;
mod cloud;

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt, stream};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use waybill_core::secret::SecretBytes;

use self::{
    class::{MetadataClass, MetadataQuery, Resource},
    cloud::Cloud,
};
use crate::{
    driver::{Answer, Call, Driver, FetchError, Query, Sharing},
    drivers::sessions::{Owned, Sessions, Timed},
    http::{Address, AllowedAddresses, HttpClient, HttpClients, Question, Reply, sensitive},
};

/// The name under which it registers.
pub const NAME: &str = "metadata.csi.waybill.dev";

/// Longest answer.
const ANSWER_BYTES: usize = 1 << 20;

/// How many resources are read at the same time for one container.
const READS: usize = 8;

/// Most facts hold as long as the machine runs.
const TTL: Duration = Duration::from_secs(60);

/// The longest that EC2 allows for a token.
const TOKEN_SECONDS: u32 = 21600;

/// Where Azure's tokens are.
const AZURE_TOKEN: &str = "identity/oauth2/token";

const TOKEN_TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
const TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");

/// Asks the cloud that this machine is in.
#[derive(Default)]
pub struct Metadata {
    clients: HttpClients,
    /// Of EC2, which answers nobody without one.
    tokens: Sessions<Address, SecretBytes>,
    allowed: AllowedAddresses,
}

impl Metadata {
    /// A driver that has asked nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, for the address that clouds document and these.
    pub fn at(self, allowed: AllowedAddresses) -> Self {
        Self { clients: HttpClients::within(&allowed), allowed, ..self }
    }

    async fn read(&self, class: &MetadataClass, resource: &Resource) -> Answer {
        let client = self.clients.trusting(None)?;
        let reply = match class.cloud {
            Cloud::Ec2 => self.read_ec2(&client, class, resource).await?,
            Cloud::Gce | Cloud::Azure => {
                let question = Question::new(Method::GET, resource.uri(class)?, Vec::new().into());
                let question = class.cloud.headers().into_iter().fold(question, with_header);
                client.ask(question, ANSWER_BYTES).await?
            }
        };
        understand(reply, class.cloud, &resource.key)
    }

    async fn read_ec2(
        &self,
        client: &HttpClient,
        class: &MetadataClass,
        resource: &Resource,
    ) -> Result<Reply, FetchError> {
        let make = async |_: Option<&_>| ec2_token(client, &class.address).await;
        let token = self.tokens.current(&class.address, make).await?;
        let reply = ask_ec2(client, class, resource, &token.get()?.session).await?;
        // A machine that was stopped knows none of its tokens.
        if reply.status == StatusCode::UNAUTHORIZED && !token.is_new {
            let token = self.tokens.after(&token, &class.address, make).await?;
            return ask_ec2(client, class, resource, &token.get()?.session).await;
        }
        Ok(reply)
    }
}

impl Driver for Metadata {
    fn name(&self) -> &str {
        NAME
    }

    fn backend(&self) -> &'static str {
        "metadata"
    }

    /// The cloud knows nothing of pods.
    fn sharing(&self) -> Sharing {
        Sharing::Class
    }

    fn cache_ttl(&self) -> Duration {
        TTL
    }

    async fn fetch(&self, call: &Call, queries: &[Query]) -> Result<Vec<Answer>, FetchError> {
        let class = &MetadataClass::parse(call)?;
        if class.address != Address::of_metadata() {
            self.allowed.check(&class.address)?;
        }
        let queries: Vec<_> =
            queries.iter().map(|query| MetadataQuery::parse(query, class)).collect();
        let mut wanted: Vec<_> =
            queries.iter().flatten().map(|query| query.resource.clone()).collect();
        wanted.sort();
        wanted.dedup();
        let read = |resource: Resource| async move {
            let answer = self.read(class, &resource).await;
            (resource, answer)
        };
        let found: BTreeMap<_, _> =
            stream::iter(wanted).map(read).buffer_unordered(READS).collect().await;
        let answer = |query: MetadataQuery| match found.get(&query.resource) {
            Some(Ok(value)) => query.select(value),
            Some(Err(error)) => Err(error.clone()),
            None => Err(FetchError::backend(format!("{} was not read", query.resource.key))),
        };
        Ok(queries.into_iter().map(|query| query.and_then(answer)).collect())
    }
}

/// The tokens of a machine are nobody's.
impl Owned for Address {
    fn owner(&self) -> &str {
        ""
    }
}

fn with_header(question: Question, (name, value): (HeaderName, HeaderValue)) -> Question {
    question.header(name, value)
}

async fn ec2_token(
    client: &HttpClient,
    address: &Address,
) -> Result<Timed<SecretBytes>, FetchError> {
    let uri = address.join("latest/api/token", &[])?;
    let question = Question::new(Method::PUT, uri, Vec::new().into())
        .header(TOKEN_TTL, HeaderValue::from(TOKEN_SECONDS));
    let reply = client.ask(question, ANSWER_BYTES).await?;
    match reply.status {
        StatusCode::OK => Ok(Timed::new(reply.body, Duration::from_secs(TOKEN_SECONDS.into()))),
        StatusCode::FORBIDDEN => {
            Err(FetchError::denied("the metadata service of this EC2 instance is switched off"))
        }
        status => Err(FetchError::backend(format!(
            "EC2 gave no token for its metadata ({})",
            status.as_u16()
        ))),
    }
}

async fn ask_ec2(
    client: &HttpClient,
    class: &MetadataClass,
    resource: &Resource,
    token: &SecretBytes,
) -> Result<Reply, FetchError> {
    let token = sensitive(token).ok_or_else(|| FetchError::backend("EC2's token is none"))?;
    let question = Question::new(Method::GET, resource.uri(class)?, Vec::new().into());
    Ok(client.ask(question.header(TOKEN, token), ANSWER_BYTES).await?)
}

fn understand(reply: Reply, cloud: Cloud, key: &str) -> Answer {
    let is_renewed = cloud == Cloud::Azure && key == AZURE_TOKEN;
    let cloud = cloud.name();
    match reply.status.as_u16() {
        200 => Ok(reply.body),
        // Azure says it of tokens, which are there always, while it renews its service.
        404 if is_renewed => {
            Err(FetchError::unavailable(format!("{cloud} cannot answer for {key} now (404)")))
        }
        404 => Err(FetchError::not_found(format!("{cloud} has no metadata {key}"))),
        // The way to a directory ends with a slash there.
        300..=399 => {
            Err(FetchError::invalid(format!("{key} is a directory of {cloud}'s metadata")))
        }
        400 => Err(FetchError::invalid(format!("{cloud} does not understand {key} (400)"))),
        status @ (401 | 403) => {
            Err(FetchError::denied(format!("{cloud} refused {key} ({status})")))
        }
        // Azure says 410 while it moves the machine.
        status @ (410 | 429 | 502..=504) => {
            Err(FetchError::unavailable(format!("{cloud} cannot answer for {key} now ({status})")))
        }
        status => Err(FetchError::backend(format!("{cloud} failed at {key} ({status})"))),
    }
}
