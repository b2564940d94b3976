//! The server side of TLS. Its files are read again when they change, so certificates are renewed
//! without a restart. A client may present a certificate; if it does, our authority must vouch for it.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    server::{VerifierBuilderError, WebPkiClientVerifier},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// Where a certificate and its key are, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairPaths {
    /// The chain, own certificate first.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The files of TLS, and what was last read from them.
pub(super) struct Tls {
    serving: PairPaths,
    client_ca: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    stamps: [Stamp; 3],
    config: Arc<ServerConfig>,
}

/// What changes with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Tls {
    pub(super) fn read(serving: PairPaths, client_ca: PathBuf) -> Result<Self, TlsError> {
        let current = Mutex::new(Current::read(&serving, &client_ca)?);
        Ok(Self { serving, client_ca, current })
    }

    /// What new connections are to use.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.lock().config)
    }

    /// Reads the files again if one has changed; says whether it did. What cannot be used changes
    /// nothing: the files may be about to be written.
    pub(super) fn refresh(&self) -> Result<bool, TlsError> {
        let stamps = stamps(&self.serving, &self.client_ca)?;
        if self.lock().stamps == stamps {
            return Ok(false);
        }
        let fresh = Current::read(&self.serving, &self.client_ca)?;
        *self.lock() = fresh;
        Ok(true)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn read(serving: &PairPaths, client_ca: &Path) -> Result<Self, TlsError> {
        // Before the content: a change in between is seen the next time.
        let stamps = stamps(serving, client_ca)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        for root in certificates(client_ca)? {
            roots.add(root)?;
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()?;
        let key =
            PrivateKeyDer::from_pem_file(&serving.key).map_err(TlsError::pem(&serving.key))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(&serving.certificate)?, key)?;
        // Streams are upgrades, which exist only there.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { stamps, config: Arc::new(config) })
    }
}

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("cannot read {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} holds no certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} is not usable as PEM", path.display())]
    Pem {
        path: PathBuf,
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    #[error("certificate, key or authority are not usable for TLS")]
    Rustls(#[from] rustls::Error),
    #[error("the authority for clients is not usable")]
    Verifier(#[from] VerifierBuilderError),
}

impl TlsError {
    fn pem(path: &Path) -> impl FnOnce(rustls_pki_types::pem::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Pem { path, source }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(TlsError::pem(path))?;
    if found.is_empty() { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(found) }
}

fn stamps(serving: &PairPaths, client_ca: &Path) -> Result<[Stamp; 3], TlsError> {
    Ok([stamp(&serving.certificate)?, stamp(&serving.key)?, stamp(client_ca)?])
}

fn stamp(path: &Path) -> Result<Stamp, TlsError> {
    let metadata =
        fs::metadata(path).map_err(|source| TlsError::File { path: path.to_owned(), source })?;
    Ok(Stamp {
        inode: metadata.ino(),
        size: metadata.len(),
        changed: (metadata.mtime(), metadata.mtime_nsec()),
    })
}
