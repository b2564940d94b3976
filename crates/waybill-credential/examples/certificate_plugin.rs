//! A plugin that issues certificates: it makes a key for each run and signs with an authority whose files it can
//! read.
//!
//! ```yaml
//! exec:
//!   apiVersion: client.authentication.k8s.io/v1
//!   command: certificate_plugin
//!   args: [/etc/authority/ca.crt, /etc/authority/ca.key, jane]
//!   interactiveMode: Never
//! ```

use std::{
    error::Error,
    fs,
    io::{self, Write},
    time::Duration,
};

use jiff::Timestamp;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use waybill_core::secret::SecretBytes;
use waybill_credential::provider::{ExecAnswer, load_exec_request_from_env};

/// Clients ask again so often; the certificate itself is valid a little longer.
const LIFE: Duration = Duration::from_hours(1);

fn main() -> Result<(), Box<dyn Error>> {
    let (request, _) = load_exec_request_from_env()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [authority, key, user] = arguments.as_slice() else {
        return Err("usage: certificate_plugin CERTIFICATE KEY USER".into());
    };
    let authority_key = KeyPair::from_pem(&fs::read_to_string(key)?)?;
    let issuer = Issuer::from_ca_cert_pem(&fs::read_to_string(authority)?, authority_key)?;
    let now = Timestamp::now();
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, user.as_str());
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = (std::time::UNIX_EPOCH + since_epoch(now)?).into();
    params.not_after = (std::time::UNIX_EPOCH + since_epoch(now + LIFE * 2)?).into();
    let certificate = params.signed_by(&key, &issuer)?.pem();
    let pair = [certificate, key.serialize_pem()].map(|pem| SecretBytes::from(pem.into_bytes()));
    let answer = ExecAnswer {
        certificate: Some(pair.into()),
        expires: Some(now + LIFE),
        ..ExecAnswer::default()
    };
    io::stdout().write_all(answer.to_json(request.api_version)?.expose())?;
    Ok(())
}

fn since_epoch(time: Timestamp) -> Result<Duration, Box<dyn Error>> {
    Ok(Duration::from_secs(time.as_second().try_into()?))
}
