//! `waybill driver`: a driver of environment variables as a process of its own.

mod addresses;
mod aws;
mod metadata;
mod mock;
mod os;
mod provider;
mod serve;
mod vault;

use anyhow::Result;
use clap::{Subcommand, ValueEnum};

use crate::Outcome;

/// Run a driver: values from elsewhere become variables of containers, in memory only.
///
/// A driver serves the CSI call NodeGetEnvVars on a Unix socket. When a container starts, the node asks it once
/// for all variables that the container has from one ProviderClass, and the values go straight into the
/// container's environment: no Secret, no file, no store. Before a driver asks its backend it checks that the class
/// serves the pod's namespace (allowedNamespaces) and each key (allowedFields).
///
/// `waybill up --driver KIND` starts one beside everything else. By hand it needs the directories of the kubelet.
#[derive(clap::Args)]
#[command(after_help = "\
Example, on a node whose kubelet has its usual directories:
  waybill driver os --socket /var/lib/kubelet/plugins/os.csi.waybill.dev/csi.sock \\
    --registration-dir /var/lib/kubelet/plugins_registry

A class that uses it, and a variable of a container:
  apiVersion: storage.k8s.io/v1
  kind: ProviderClass
  metadata: {name: host}
  spec:
    driver: os.csi.waybill.dev
    parameters: {allowedNamespaces: default, allowedFields: 'os/**'}

  env:
  - name: KERNEL
    valueFrom:
      csiSecretRef: {driver: os.csi.waybill.dev, providerClassName: host, key: os/kernel/release}

The pod's service account needs the right to use the class. kubectl create role refuses the verb, so it is YAML:
  apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: providerclass-user-host}
  rules:
  - {apiGroups: [storage.k8s.io], resources: [providerclasses], resourceNames: [host], verbs: [use]}

  kubectl create rolebinding host --clusterrole=providerclass-user-host --serviceaccount=default:default

Parameters that classes of every driver know:
  allowedNamespaces  namespaces whose pods may use the class, between commas; * for all
  allowedFields      patterns for keys, between commas; * and ? stay within a segment, ** does not
  cacheTTL           how long values may be given out again, such as 30s; 0 for not at all

SIGHUP empties the cache. SIGTERM deregisters, answers calls under way, and ends.
Whoever calls must be root, or the user of the driver.")]
pub(crate) struct Args {
    #[command(subcommand)]
    driver: Driver,
}

#[derive(Subcommand)]
enum Driver {
    Aws(aws::Args),
    Metadata(metadata::Args),
    Mock(mock::Args),
    Os(os::Args),
    Provider(provider::Args),
    Vault(vault::Args),
}

/// The drivers that `waybill up` can start; each is a subcommand of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Aws,
    Metadata,
    Mock,
    Os,
    Provider,
    Vault,
}

impl Kind {
    /// The subcommand.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Metadata => "metadata",
            Self::Mock => "mock",
            Self::Os => "os",
            Self::Provider => "provider",
            Self::Vault => "vault",
        }
    }

    /// What people read.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Aws => "aws driver",
            Self::Metadata => "metadata driver",
            Self::Mock => "mock driver",
            Self::Os => "os driver",
            Self::Provider => "provider driver",
            Self::Vault => "vault driver",
        }
    }

    /// The name under which it registers.
    pub(crate) fn driver_name(self) -> &'static str {
        match self {
            Self::Aws => waybill_csi::drivers::aws::NAME,
            Self::Metadata => waybill_csi::drivers::metadata::NAME,
            Self::Mock => waybill_csi::drivers::mock::NAME,
            Self::Os => waybill_csi::drivers::os::NAME,
            Self::Provider => waybill_csi::drivers::provider::NAME,
            Self::Vault => waybill_csi::drivers::vault::NAME,
        }
    }
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    match args.driver {
        Driver::Aws(args) => aws::run(args),
        Driver::Metadata(args) => metadata::run(args),
        Driver::Mock(args) => mock::run(args),
        Driver::Os(args) => os::run(args),
        Driver::Provider(args) => provider::run(args),
        Driver::Vault(args) => vault::run(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_a_subcommand_and_the_other_way_round() {
        let command = Driver::augment_subcommands(clap::Command::new("driver"));
        let subcommands: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        let kinds: Vec<_> = Kind::value_variants().iter().map(|kind| kind.word()).collect();
        assert_eq!(subcommands, kinds);
    }
}
