//! How etcd and we prove who we are, also when our certificate is replaced while we run.

use std::{error::Error, time::Duration};

use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use waybill_core::secret::SecretBytes;

use super::client::Client;

/// Between two looks at whether somebody replaced our certificate.
const BETWEEN_LOOKS: Duration = Duration::from_secs(60);

/// How etcd and we prove who we are.
pub(crate) struct EtcdTls {
    /// Who signs etcd's certificates, in PEM.
    pub(crate) ca: Vec<u8>,
    /// Our own certificate, if etcd asks for one.
    pub(crate) identity: Option<EtcdIdentity>,
}

/// A client certificate.
pub(crate) struct EtcdIdentity {
    /// In PEM.
    pub(crate) certificate: Vec<u8>,
    /// In PEM.
    pub(crate) key: SecretBytes,
}

impl EtcdTls {
    pub(super) fn config(&self) -> ClientTlsConfig {
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        match &self.identity {
            Some(identity) => {
                config.identity(Identity::from_pem(&identity.certificate, identity.key.expose()))
            }
            None => config,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let same = |one: &EtcdIdentity, other: &EtcdIdentity| {
            one.certificate == other.certificate && one.key.constant_time_eq(other.key.expose())
        };
        let identities = match (&self.identity, &other.identity) {
            (Some(one), Some(other)) => same(one, other),
            (None, None) => true,
            _ => false,
        };
        self.ca == other.ca && identities
    }
}

/// Where certificates are read from again while we run.
pub(crate) struct TlsSource {
    pub(crate) read: Box<dyn Fn() -> Result<EtcdTls, Box<dyn Error + Send + Sync>> + Send>,
    pub(crate) every: Duration,
}

impl TlsSource {
    pub(crate) fn new(
        read: impl Fn() -> Result<EtcdTls, Box<dyn Error + Send + Sync>> + Send + 'static,
    ) -> Self {
        Self { read: Box::new(read), every: BETWEEN_LOOKS }
    }

    /// Looks again and again. New connections use what is found; one that is open keeps what it has. What cannot be used, because
    /// it is half of a pair for example, is tried again at the next look.
    pub(super) async fn follow(self, client: Client, mut known: EtcdTls) {
        loop {
            tokio::time::sleep(self.every).await;
            let found = match (self.read)() {
                Ok(found) if found.is_same(&known) => continue,
                found => found,
            };
            let used = found.and_then(|found| {
                client.use_tls(&found)?;
                Ok(found)
            });
            match used {
                Ok(found) => {
                    known = found;
                    tracing::info!("the new certificate for etcd is used from now on");
                }
                Err(error) => {
                    let error = &*error as &dyn Error;
                    tracing::error!(error, "the certificate for etcd cannot be read again");
                }
            }
        }
    }
}
