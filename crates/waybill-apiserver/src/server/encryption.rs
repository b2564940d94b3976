//! Which objects are encrypted in the store, with which keys, and how the keys change while the server runs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use waybill_core::chain::Chain;

use super::{ServerError, StoreConfig, during, store};
use crate::{
    kinds::secret::SECRETS,
    registry::RESOURCES,
    store::{Forms, KeyFile, KeyId, KeyRing, Sealed, Stamp, Store},
};

/// Between two looks at whether the key file changed.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// What is encrypted in the store.
#[derive(Clone, Debug)]
pub struct Encryption {
    /// The keys; without a path they are in the state directory, beside that of the store. A missing file is made,
    /// unless something is encrypted already.
    pub key_file: Option<PathBuf>,
    /// The resources, as `secrets` or `roles.rbac.authorization.k8s.io`. What is not named here is stored as it is.
    pub resources: Vec<String>,
}

impl Default for Encryption {
    fn default() -> Self {
        Self { key_file: None, resources: vec![SECRETS.plural.to_owned()] }
    }
}

impl Encryption {
    /// Where the keys are.
    fn key_file(&self, state_dir: &Path) -> Result<KeyFile, ServerError> {
        let usual = || state_dir.join("encryption").join("keys");
        let path = self.key_file.clone().unwrap_or_else(usual);
        KeyFile::at(&path, &store::embedded_dir(state_dir)).map_err(during(STEP))
    }

    /// Where the objects to encrypt lie in the store.
    fn prefixes(&self) -> Result<Vec<String>, ServerError> {
        self.resources.iter().map(|name| prefix(name)).collect()
    }
}

const STEP: &str = "setting up the encryption of the store";

fn prefix(name: &str) -> Result<String, ServerError> {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    let found = RESOURCES.iter().find(|resource| {
        resource.plural == plural && resource.group == group && resource.is_stored()
    });
    let unknown = || {
        let advice =
            "name a resource as `secrets`, or with its group as `leases.coordination.k8s.io`";
        during(STEP)(format!("no resource {name:?} is stored; {advice}"))
    };
    found.map(|resource| resource.prefix()).ok_or_else(unknown)
}

/// The file with the keys, and what it was when they were last read.
pub(super) struct Keys {
    pub(super) file: KeyFile,
    read_at: Option<Stamp>,
}

/// The store `inner` with what `config` wants to be encrypted, and the file with the keys.
pub(super) async fn seal(
    config: &Encryption,
    state_dir: &Path,
    inner: Arc<dyn Store>,
    now: Timestamp,
) -> Result<(Arc<Sealed>, Keys), ServerError> {
    let prefixes = config.prefixes()?;
    let file = config.key_file(state_dir)?;
    if file.read().map_err(during(STEP))?.is_none() {
        check_nothing_is_lost(&inner, &file).await?;
        if !prefixes.is_empty() {
            make_first_key(&file, now)?;
        }
    }
    let read_at = file.stamp();
    let ring = file.read().map_err(during(STEP))?.unwrap_or_default();
    Ok((Arc::new(Sealed::new(inner, ring, prefixes)), Keys { file, read_at }))
}

/// New keys in place of lost ones would hide the loss until somebody reads.
async fn check_nothing_is_lost(inner: &Arc<dyn Store>, file: &KeyFile) -> Result<(), ServerError> {
    let bare = Sealed::new(Arc::clone(inner), KeyRing::default(), Vec::new());
    let forms = bare.forms().await.map_err(during("reading the store"))?;
    let Some((id, found)) = forms.under.first_key_value() else { return Ok(()) };
    let values: u64 = forms.under.values().map(|found| found.values).sum();
    Err(during(STEP)(format!(
        "the key file {} is missing, and {values} values in the store are encrypted, as {} under the key {id}; \
         put the file back from its copy, or name it with --encryption-key-file",
        file.path().display(),
        found.first,
    )))
}

fn make_first_key(file: &KeyFile, now: Timestamp) -> Result<(), ServerError> {
    let id = file.add_key(now).map_err(during(STEP))?;
    tracing::info!(path = %file.path().display(), key = %id, "made a key for the store; keep a copy of it");
    Ok(())
}

/// Encrypts what is not yet encrypted under the newest key, now and whenever the key file changes.
pub(super) async fn follow_keys(sealed: Arc<Sealed>, mut keys: Keys, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        () = sealed.rewrite_and_tell() => {}
    }
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(BETWEEN_LOOKS) => {}
        }
        let found = keys.file.stamp();
        if found == keys.read_at {
            continue;
        }
        keys.read_at = found;
        tokio::select! {
            () = stop.cancelled() => return,
            () = take_keys(&sealed, &keys.file) => {}
        }
    }
}

/// Uses what the file has now. If that does not do, the keys from before stay in use.
async fn take_keys(sealed: &Sealed, file: &KeyFile) {
    let path = file.path().display();
    let taken = match file.read() {
        Ok(None) => Err("it is gone; put it back".to_owned()),
        Ok(Some(ring)) => {
            let ids: Vec<_> = ring.ids().map(ToString::to_string).collect();
            sealed.set_keys(ring).await.map(|()| ids).map_err(|error| Chain(&error).to_string())
        }
        Err(error) => Err(Chain(&error).to_string()),
    };
    sealed.set_keys_failing(taken.is_err());
    match taken {
        Ok(ids) => {
            tracing::info!(%path, keys = ids.join(", "), "the key file changed");
            sealed.rewrite_and_tell().await;
        }
        Err(error) => {
            tracing::error!(%path, error, "the key file changed and cannot be used; the keys from before stay in use");
        }
    }
}

/// The keys of a store, for who looks after them.
pub struct StoreKeys {
    file: KeyFile,
    config: Encryption,
    store: StoreConfig,
    state_dir: PathBuf,
}

/// A key, and what is encrypted under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// Its id.
    pub id: String,
    /// Whether the key file has it.
    pub in_file: bool,
    /// Values in the store that need it.
    pub values: u64,
}

impl StoreKeys {
    /// The keys that a server with this configuration uses. Nothing is opened yet.
    pub fn new(
        state_dir: &Path,
        store: StoreConfig,
        config: Encryption,
    ) -> Result<Self, ServerError> {
        config.prefixes()?;
        let file = config.key_file(state_dir)?;
        Ok(Self { file, config, store, state_dir: state_dir.to_owned() })
    }

    /// Where the keys are.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Adds a key for writing, and returns its id. A server that runs takes it within seconds, one that does not when
    /// it starts; either encrypts everything anew.
    pub fn add(&self, now: Timestamp) -> Result<String, ServerError> {
        let id = self.file.add_key(now).map_err(during("adding a key"))?;
        Ok(id.to_string())
    }

    /// The ids of the file, the one for writing first.
    pub fn ids(&self) -> Result<Vec<String>, ServerError> {
        let ring = self.file.read().map_err(during("reading the keys"))?;
        Ok(ring.unwrap_or_default().ids().map(KeyId::to_string).collect())
    }

    /// What each key is used for, and how many values are to be encrypted and are not. The embedded store must not be
    /// in use.
    pub async fn uses(&self) -> Result<(Vec<KeyUse>, u64), ServerError> {
        let ids = self.ids()?;
        let Forms { mut under, plain } = self.forms().await?;
        let mut uses = Vec::new();
        for id in ids {
            let values = under.remove(&id).map_or(0, |found| found.values);
            uses.push(KeyUse { id, in_file: true, values });
        }
        let lost = under.into_iter().map(|(id, found)| (id, found.values));
        uses.extend(lost.map(|(id, values)| KeyUse { id, in_file: false, values }));
        Ok((uses, plain))
    }

    /// Removes the keys that no value needs, and returns their ids. The one for writing stays.
    pub async fn prune(&self) -> Result<Vec<String>, ServerError> {
        let (uses, _) = self.uses().await?;
        let unused = |id: &str| uses.iter().any(|it| it.id == id && it.values == 0);
        let before = self.ids()?;
        self.file.retain(|id| !unused(id)).map_err(during("removing keys"))?;
        let after = self.ids()?;
        Ok(before.into_iter().filter(|id| !after.contains(id)).collect())
    }

    async fn forms(&self) -> Result<Forms, ServerError> {
        let inner = store::open(&self.store, &self.state_dir).await?;
        let sealed = Sealed::new(inner, KeyRing::default(), self.config.prefixes()?);
        sealed.forms().await.map_err(during("reading the store"))
    }
}
