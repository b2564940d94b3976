//! `waybill driver vault`.

use anyhow::Result;
use waybill_csi::{drivers::vault::Vault, server::Server};

use super::{
    addresses::AddressArgs,
    serve::{ServeArgs, serve},
};
use crate::Outcome;

/// Secrets of HashiCorp Vault or OpenBao, KV version 1 and 2.
///
/// Its name is vault.csi.waybill.dev. It logs in with the token of the pod's service account, so its CSIDriver
/// object must ask for one: tokenRequests: [{audience: vault}].
#[derive(clap::Args)]
#[command(after_help = "\
Keys are paths of the API: secret/data/db-creds (version 2), kv1/db-creds (version 1).

Parameters of a class:
  vaultAddr       https://vault.example.com:8200
  vaultRole       the role of every login
  vaultAuthPath   where the kubernetes or jwt auth method is mounted; kubernetes unless given
  vaultNamespace  the namespace, if the server has any
  audience        of the pod's token; vault unless given
  kvVersion       1 or 2, if the answer should not tell
  caBundle        certificates in PEM that are trusted instead of those of the machine
  allowPlainHTTP  true for an address without TLS, which --allow-address must name

Parameters of a variable:
  field           which field of the secret, if it has more than one
  version         an older version, of KV version 2")]
pub(crate) struct Args {
    #[command(flatten)]
    addresses: AddressArgs,

    #[command(flatten)]
    serve: ServeArgs,
}

pub(super) fn run(args: Args) -> Result<Outcome> {
    let allowed = args.addresses.allowed()?;
    serve(args.serve, |config| {
        args.addresses.warn();
        Server::start(Vault::new().at(allowed), config)
    })
}
