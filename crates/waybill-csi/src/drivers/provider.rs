//! Values from any provider of the Secrets Store CSI driver, by its socket.
//!
//! Providers answer with files, which the stock driver writes into a volume. This one takes the values
//! out of the answer and writes nothing. The parameters of the class are those of a
//! SecretProviderClass, and a key is the path of a file.

mod mount;
mod objects;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use tonic::transport::Channel;
use waybill_core::secret::SecretBytes;

use self::{
    mount::{Files, mount},
    objects::Objects,
};
use crate::driver::{Answer, Call, Driver, FailureKind, FetchError, Query, Sharing};

/// The name under which it registers.
pub const NAME: &str = "provider.csi.waybill.dev";

/// Where providers have their sockets: today's place and the one before.
pub const DIRECTORIES: [&str; 2] =
    ["/var/run/secrets-store-csi-providers", "/etc/kubernetes/secrets-store-csi-providers"];

/// Parameter of a class that names the provider, as `spec.provider` of a SecretProviderClass does.
const PROVIDER: &str = "provider";

/// Longest name of a provider.
const NAME_BYTES: usize = 30;

/// Asks providers.
pub struct Provider {
    directories: Vec<PathBuf>,
    channels: Mutex<HashMap<PathBuf, Channel>>,
}

impl Provider {
    /// Asks those with a socket in one of `directories`, the first first.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Self { directories, channels: Mutex::default() }
    }

    /// A connection to the provider of a class, made when it is first used.
    fn channel(&self, call: &Call) -> Result<Channel, FetchError> {
        let name = call.required(PROVIDER)?;
        if !is_name(name) {
            return Err(FetchError::invalid(format!(
                "parameter {PROVIDER} of ProviderClass {:?} is not the name of a provider: letters, \
                 digits, '-' and '_', at most {NAME_BYTES}",
                call.class
            )));
        }
        let file = format!("{name}.sock");
        let mut sockets = self.directories.iter().map(|directory| directory.join(&file));
        let socket = sockets.find(|socket| socket.exists()).ok_or_else(|| {
            let places: Vec<_> =
                self.directories.iter().map(|place| place.display().to_string()).collect();
            FetchError::unavailable(format!(
                "there is no {file} in {}; is the provider installed on this node?",
                places.join(" or ")
            ))
        })?;
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(&socket) {
            return Ok(channel.clone());
        }
        let channel = mount::channel(&socket)?;
        channels.insert(socket, channel.clone());
        Ok(channel)
    }
}

impl Driver for Provider {
    fn name(&self) -> &str {
        NAME
    }

    fn backend(&self) -> &'static str {
        "provider"
    }

    /// Providers are told the name and the UID of the pod, and may decide by them.
    fn sharing(&self) -> Sharing {
        Sharing::Pod
    }

    async fn fetch(&self, call: &Call, queries: &[Query]) -> Result<Vec<Answer>, FetchError> {
        let channel = self.channel(call)?;
        let keys: BTreeSet<&str> = queries.iter().map(|query| query.key.as_str()).collect();
        let objects = Objects::parse(&call.parameters);
        let together = keys.iter().copied().collect::<Vec<_>>();
        let found = match mount(&channel, call, objects.as_ref(), &together).await {
            Ok(files) => take(files, &keys),
            Err(error) if keys.len() > 1 && objects.is_some() && may_be_of_one(error.kind) => {
                one_by_one(&channel, call, objects.as_ref(), &keys).await
            }
            Err(error) => return Err(error),
        };
        Ok(queries.iter().map(|query| answer(query, &found)).collect())
    }
}

/// What became of each key.
type Found = BTreeMap<String, Result<SecretBytes, FetchError>>;

/// Providers give all that they are asked for or nothing, so who fails shows only apart.
async fn one_by_one(
    channel: &Channel,
    call: &Call,
    objects: Option<&Objects>,
    keys: &BTreeSet<&str>,
) -> Found {
    let mut found = Found::new();
    for key in keys {
        match mount(channel, call, objects, &[key]).await {
            Ok(files) => found.extend(take(files, &[*key].into())),
            Err(error) => {
                found.insert((*key).to_owned(), Err(error));
            }
        }
    }
    found
}

fn take(files: Files, keys: &BTreeSet<&str>) -> Found {
    let wanted = files.into_iter().filter(|(path, _)| keys.contains(path.as_str()));
    wanted.map(|(path, content)| (path, Ok(content))).collect()
}

fn answer(query: &Query, found: &Found) -> Answer {
    let Query { key, parameters } = query;
    if let Some(name) = parameters.keys().next() {
        return Err(FetchError::invalid(format!(
            "{key} has the unknown parameter {name:?}; all parameters are those of the class"
        )));
    }
    match found.get(key) {
        // One file may become several variables.
        Some(Ok(content)) => Ok(SecretBytes::copy_of(content.expose())),
        Some(Err(error)) => Err(error.clone()),
        None => Err(FetchError::not_found(format!(
            "the provider's answer has no file {key:?}; a key is the alias or name of an object of \
             the class"
        ))),
    }
}

/// Whether a failure may have its reason in one object, so that others can still be had.
fn may_be_of_one(kind: FailureKind) -> bool {
    match kind {
        FailureKind::NotFound | FailureKind::Invalid | FailureKind::Backend => true,
        FailureKind::Denied | FailureKind::Unavailable => false,
    }
}

/// As the stock driver wants it, so that no name leads out of the directory.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !name.is_empty() && name.len() <= NAME_BYTES && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn a_provider_is_named_as_the_stock_driver_wants_it() {
        for good in ["vault", "aws", "my_provider-2", "A", &"a".repeat(30)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "../vault", "a/b", "a.b", "ä", &"a".repeat(31)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
