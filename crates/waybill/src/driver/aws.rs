//! `waybill driver aws`.

use std::time::SystemTime;

use anyhow::Result;
use waybill_csi::{drivers::aws::Aws, server::Server};

use super::{
    addresses::AddressArgs,
    serve::{ServeArgs, serve},
};
use crate::Outcome;

/// Secrets of AWS Secrets Manager and parameters of the Parameter Store.
///
/// Its name is aws.csi.waybill.dev. It takes on a role with the token of the pod's service account, so its
/// CSIDriver object must ask for one: tokenRequests: [{audience: sts.amazonaws.com}].
#[derive(clap::Args)]
#[command(after_help = "\
Keys: secretsmanager/<name or ARN>, ssm/<name or ARN>.

Parameters of a class:
  roleArn         the role that is taken on
  region          eu-central-1
  audience        of the pod's token; sts.amazonaws.com unless given
  endpoint        another address for all services; for one: stsEndpoint, secretsManagerEndpoint, ssmEndpoint
  caBundle        certificates in PEM that are trusted instead of those of the machine
  allowPlainHTTP  true for an address without TLS, which --allow-address must name

Parameters of a variable:
  field           which field of a value that is a JSON object
  versionStage    AWSPREVIOUS, or a stage of your own; of a secret
  versionId       of a secret
  version         the number or a label; of a parameter")]
pub(crate) struct Args {
    #[command(flatten)]
    addresses: AddressArgs,

    #[command(flatten)]
    serve: ServeArgs,
}

pub(super) fn run(args: Args) -> Result<Outcome> {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed down")]
    let clock = SystemTime::now;
    let allowed = args.addresses.allowed()?;
    serve(args.serve, |config| {
        args.addresses.warn();
        Server::start(Aws::new(clock).at(allowed), config)
    })
}
