//! The server side of TLS. Its files are read again when they change, so certificates are renewed
//! without a restart. Clients show none: an API server has no identity for webhooks unless its operator
//! configures one, and a verdict tells nothing that its asker did not put into the question, except
//! which classes there are and which accounts may use them.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustls::{ServerConfig, crypto::aws_lc_rs};
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
    paths: PairPaths,
    current: Mutex<Current>,
}

struct Current {
    stamps: [Stamp; 2],
    config: Arc<ServerConfig>,
}

/// What changes with a file. Volumes of Secrets change by a link, behind which the inode differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Tls {
    pub(super) fn read(paths: PairPaths) -> Result<Self, TlsError> {
        let current = Mutex::new(Current::read(&paths)?);
        Ok(Self { paths, current })
    }

    /// What new connections are to use.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.lock().config)
    }

    /// Reads the files again if one has changed; says whether it did. What cannot be used changes
    /// nothing: the files may be about to be written.
    pub(super) fn refresh(&self) -> Result<bool, TlsError> {
        if self.lock().stamps == stamps(&self.paths)? {
            return Ok(false);
        }
        let fresh = Current::read(&self.paths)?;
        *self.lock() = fresh;
        Ok(true)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn read(paths: &PairPaths) -> Result<Self, TlsError> {
        // Before the content: a change in between is seen the next time.
        let stamps = stamps(paths)?;
        let key = PrivateKeyDer::from_pem_file(&paths.key).map_err(TlsError::pem(&paths.key))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_single_cert(certificates(&paths.certificate)?, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { stamps, config: Arc::new(config) })
    }
}

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file is missing or closed to us.
    #[error("cannot read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
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

fn stamps(paths: &PairPaths) -> Result<[Stamp; 2], TlsError> {
    Ok([stamp(&paths.certificate)?, stamp(&paths.key)?])
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
        assert!(matches!(Tls::read(paths.clone()), Err(TlsError::File { .. })));
        write(&paths);
        let tls = Tls::read(paths.clone()).unwrap();
        let first = tls.config();
        assert!(!tls.refresh().unwrap());
        write(&paths);
        assert!(tls.refresh().unwrap());
        let second = tls.config();
        assert!(!Arc::ptr_eq(&first, &second));

        fs::write(&paths.certificate, "").unwrap();
        assert!(matches!(tls.refresh(), Err(TlsError::NoCertificate(_))));
        assert!(Arc::ptr_eq(&second, &tls.config()));
    }
}
