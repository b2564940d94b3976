//! The server side of TLS: the certificate that is shown, and the authorities whose clients are believed.
//!
//! Both change while the gate runs. A client may show no certificate, as the probes of a kubelet do; what it may ask for then is
//! decided by `callers.rs`.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
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

/// What new connections use.
pub(crate) struct Tls {
    provider: Arc<CryptoProvider>,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    shown: Option<Arc<CertifiedKey>>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    /// Made of both; `None` before there is a certificate.
    config: Option<Arc<ServerConfig>>,
}

impl Default for Tls {
    fn default() -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        Self { provider, current: Mutex::default() }
    }
}

impl Tls {
    /// What a new connection is to use; `None` before there is a certificate.
    pub(crate) fn config(&self) -> Option<Arc<ServerConfig>> {
        self.lock().config.clone()
    }

    /// Shows this certificate from now on.
    pub(crate) fn show(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), TlsError> {
        let pair = CertifiedKey::from_der(chain, key, &self.provider)?;
        self.change(|current| current.shown = Some(Arc::new(pair)))
    }

    /// Believes clients of these authorities, which are in PEM, from now on.
    pub(super) fn believe(&self, authorities: &[u8]) -> Result<(), TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities) {
            roots.add(authority.map_err(TlsError::Authority)?)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&self.provider),
        )
        .allow_unauthenticated()
        .build()
        .map_err(|_| TlsError::NoAuthority)?;
        self.change(|current| current.clients = Some(verifier))
    }

    fn change(&self, change: impl FnOnce(&mut Current)) -> Result<(), TlsError> {
        let mut current = self.lock();
        change(&mut current);
        let Some(shown) = &current.shown else { return Ok(()) };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        let builder = match &current.clients {
            Some(clients) => builder.with_client_cert_verifier(Arc::clone(clients)),
            None => builder.with_no_client_auth(),
        };
        let resolver = SingleCertAndKey::from(Arc::clone(shown));
        let mut config = builder.with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        current.config = Some(Arc::new(config));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Files that are read again when they change, so certificates are renewed without a restart.
pub(super) struct Watched {
    paths: Vec<PathBuf>,
    stamps: Vec<Stamp>,
}

/// What changes with a file. Volumes of Secrets change by a link, behind which the inode differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Watched {
    /// Files that have not been read yet.
    pub(super) fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { paths: paths.into_iter().collect(), stamps: Vec::new() }
    }

    /// Calls `read` if one of the files has changed since it last succeeded; says whether it did. What cannot be used
    /// changes nothing: the files may be about to be written.
    pub(super) fn refresh(
        &mut self,
        read: impl FnOnce() -> Result<(), TlsError>,
    ) -> Result<bool, TlsError> {
        // Before the content: a change in between is seen the next time.
        let stamps = self.paths.iter().map(|path| stamp(path)).collect::<Result<Vec<_>, _>>()?;
        if self.stamps == stamps {
            return Ok(false);
        }
        read()?;
        self.stamps = stamps;
        Ok(true)
    }
}

/// Shows the certificate that is in files.
pub(super) fn show_files(tls: &Tls, paths: &PairPaths) -> Result<(), TlsError> {
    let key = PrivateKeyDer::from_pem_file(&paths.key).map_err(TlsError::pem(&paths.key))?;
    tls.show(certificates(&paths.certificate)?, key)
}

/// Believes clients of the authorities in a file.
pub(super) fn believe_file(tls: &Tls, path: &Path) -> Result<(), TlsError> {
    let text = fs::read(path).map_err(|source| TlsError::File { path: path.to_owned(), source })?;
    tls.believe(&text)
}

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// An authority of clients is no PEM.
    #[error("an authority of clients is not usable as PEM")]
    Authority(#[source] rustls_pki_types::pem::Error),
    /// A file is missing or closed to us.
    #[error("cannot read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Nobody whose clients could be believed.
    #[error("there is no authority of clients")]
    NoAuthority,
    /// A file without any certificate.
    #[error("{} holds no certificate", .0.display())]
    NoCertificate(PathBuf),
    /// A file that is no PEM.
    #[error("{} is not usable as PEM", path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// The certificate and the key do not go together, or are of an unknown kind.
    #[error("certificate and key are not usable for TLS")]
    Rustls(#[from] rustls::Error),
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

fn stamp(path: &Path) -> Result<Stamp, TlsError> {
    let metadata =
        fs::metadata(path).map_err(|source| TlsError::File { path: path.to_owned(), source })?;
    Ok(Stamp {
        inode: metadata.ino(),
        size: metadata.len(),
        changed: (metadata.mtime(), metadata.mtime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    /// Files are replaced by rename, as whoever renews them does.
    fn write(paths: &PairPaths) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["gate".to_owned()]).unwrap();
        for (path, text) in
            [(&paths.certificate, cert.pem()), (&paths.key, signing_key.serialize_pem())]
        {
            let fresh = path.with_extension("new");
            fs::write(&fresh, text).unwrap();
            fs::rename(fresh, path).unwrap();
        }
    }

    #[test]
    fn certificates_are_read_again_when_they_change_and_kept_when_they_are_broken() {
        let dir = tempfile::tempdir().unwrap();
        let paths =
            PairPaths { certificate: dir.path().join("c.pem"), key: dir.path().join("k.pem") };
        let (tls, mut files) =
            (Tls::default(), Watched::new([paths.certificate.clone(), paths.key.clone()]));
        let mut refresh = || files.refresh(|| show_files(&tls, &paths));
        assert!(matches!(refresh(), Err(TlsError::File { .. })));
        assert!(tls.config().is_none());
        write(&paths);
        assert!(refresh().unwrap());
        let first = tls.config().unwrap();
        assert!(!refresh().unwrap());
        write(&paths);
        assert!(refresh().unwrap());
        let second = tls.config().unwrap();
        assert!(!Arc::ptr_eq(&first, &second));

        fs::write(&paths.certificate, "").unwrap();
        assert!(matches!(refresh(), Err(TlsError::NoCertificate(_))));
        assert!(Arc::ptr_eq(&second, &tls.config().unwrap()));
    }

    #[test]
    fn authorities_of_clients_change_without_the_certificate() {
        let tls = Tls::default();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["gate".to_owned()]).unwrap();
        let key = PrivateKeyDer::from_pem_slice(signing_key.serialize_pem().as_bytes()).unwrap();
        tls.show(vec![cert.der().clone()], key).unwrap();
        let first = tls.config().unwrap();
        tls.believe(cert.pem().as_bytes()).unwrap();
        assert!(!Arc::ptr_eq(&first, &tls.config().unwrap()));
        assert!(matches!(tls.believe(b""), Err(TlsError::NoAuthority)));
    }
}
