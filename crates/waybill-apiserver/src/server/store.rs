//! Where objects are kept, as the configuration says it, and how that store is opened.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use waybill_core::secret::SecretBytes;

use super::{ServerError, during};
use crate::store::{
    Embedded, Etcd, EtcdConfig, EtcdIdentity, EtcdTls, EtcdUser, Settings, Store, TlsSource,
};

/// Where objects are kept.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreConfig {
    /// In the state directory.
    Embedded,
    /// In etcd v3.
    Etcd(EtcdStore),
}

/// A cluster of etcd.
#[derive(Clone, Debug)]
pub struct EtcdStore {
    /// Its members, as `https://host:2379`, or `http://` without TLS.
    pub urls: Vec<String>,
    /// For `https`; without it etcd cannot be believed.
    pub tls: Option<EtcdFiles>,
    /// A user of etcd and the file with their password, if etcd asks for one.
    pub user: Option<(String, PathBuf)>,
}

/// How etcd and we prove who we are, as PEM files.
#[derive(Clone, Debug)]
pub struct EtcdFiles {
    /// Who signs etcd's certificates.
    pub ca: PathBuf,
    /// Our own certificate and its key, if etcd asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Where the embedded store lives.
pub(super) fn embedded_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("store")
}

/// Opens the store that `config` names, which may live in `state_dir`.
pub(super) async fn open(
    config: &StoreConfig,
    state_dir: &Path,
) -> Result<Arc<dyn Store>, ServerError> {
    match config {
        StoreConfig::Embedded => {
            let path = embedded_dir(state_dir);
            // Right here: nobody is served yet, and a machine without threads to spare makes tokio's pool panic.
            let opened = Embedded::open(&path, Settings::default());
            Ok(Arc::new(opened.map_err(during("opening the store"))?))
        }
        StoreConfig::Etcd(EtcdStore { urls, tls, user }) => {
            let mut config = EtcdConfig::new(urls.clone());
            config.tls = tls.as_ref().map(read_tls).transpose()?;
            config.tls_source = tls
                .clone()
                .map(|files| TlsSource::new(move || read_tls(&files).map_err(Into::into)));
            config.user = user.as_ref().map(read_user).transpose()?;
            let step = format!("connecting to etcd at {}", urls.join(", "));
            Ok(Arc::new(Etcd::open(config).await.map_err(during(step))?))
        }
    }
}

fn read_tls(files: &EtcdFiles) -> Result<EtcdTls, ServerError> {
    let ca = read("the authority of etcd", &files.ca)?;
    let identity = match &files.identity {
        Some((certificate, key)) => Some(EtcdIdentity {
            certificate: read("the certificate for etcd", certificate)?,
            key: SecretBytes::from(read("the key for etcd", key)?),
        }),
        None => None,
    };
    Ok(EtcdTls { ca, identity })
}

/// The line break that editors put at the end of a file is no part of the password.
fn read_user((name, path): &(String, PathBuf)) -> Result<EtcdUser, ServerError> {
    let mut password = read("the password for etcd", path)?;
    while password.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        password.pop();
    }
    Ok(EtcdUser { name: name.clone(), password: SecretBytes::from(password) })
}

fn read(what: &str, path: &Path) -> Result<Vec<u8>, ServerError> {
    fs::read(path).map_err(during(format!("reading {what} {}", path.display())))
}
