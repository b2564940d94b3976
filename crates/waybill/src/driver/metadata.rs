//! `waybill driver metadata`.

use anyhow::Result;
use waybill_csi::{drivers::metadata::Metadata, server::Server};

use super::{
    addresses::AddressArgs,
    serve::{ServeArgs, serve},
};
use crate::Outcome;

/// What a cloud tells its machines: EC2, Google Compute Engine, Azure.
///
/// Its name is metadata.csi.waybill.dev. Credentials of the machine are refused unless a class allows them.
#[derive(clap::Args)]
#[command(after_help = "\
Keys are paths of the cloud's own metadata:
  ec2    placement/availability-zone, instance-id (below latest/meta-data)
  gce    instance/zone, project/project-id (below computeMetadata/v1)
  azure  compute/location, compute/vmId (below metadata/instance)

Parameters of a class:
  cloud             ec2, gce or azure
  endpoint          another address than http://169.254.169.254
  allowCredentials  true for tokens and other credentials of the machine

Parameters of a variable:
  field             which field of a value that is a JSON object
  resource          what an Azure token is for")]
pub(crate) struct Args {
    #[command(flatten)]
    addresses: AddressArgs,

    #[command(flatten)]
    serve: ServeArgs,
}

pub(super) fn run(args: Args) -> Result<Outcome> {
    let allowed = args.addresses.allowed()?;
    serve(args.serve, |config| Server::start(Metadata::new().at(allowed), config))
}
