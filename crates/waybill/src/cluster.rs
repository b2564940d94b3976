//! The flags that say which cluster a command talks to, and as whom.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use waybill_client::{ActingAs, Options, Place, Requests, connect};
use waybill_credential::Stdin;

/// Where `waybill up` and `waybill apiserver` write theirs by default.
const OWN: &str = "/var/lib/waybill/kubeconfig";

/// Which cluster, and where in it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ClusterArgs {
    /// The kubeconfig; without it $KUBECONFIG, that in $WAYBILL_STATE_DIR, ~/.kube/config or that of `waybill up`.
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context in it, rather than its current one.
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    context: Option<String>,

    /// The user in it, rather than that of the context.
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    user: Option<String>,

    /// The namespace, rather than that of the context.
    #[arg(short, long, value_name = "NAMESPACE", help_heading = "Cluster")]
    namespace: Option<String>,

    /// Act as this user. The audit log names both, and RBAC must allow you to impersonate.
    #[arg(long = "as", value_name = "USER", help_heading = "Cluster")]
    acting_as: Option<String>,

    /// Act as a member of this group; repeat it for more.
    #[arg(
        long = "as-group",
        value_name = "GROUP",
        help_heading = "Cluster",
        requires = "acting_as"
    )]
    groups: Vec<String>,

    /// No flag: a command that reads standard input says so.
    #[arg(skip)]
    stdin: Stdin,
}

impl ClusterArgs {
    /// For a command with flags of its own.
    pub(crate) fn of(
        kubeconfig: Option<PathBuf>,
        context: Option<String>,
        namespace: Option<String>,
    ) -> Self {
        Self { kubeconfig, context, namespace, ..Self::default() }
    }

    /// Keeps standard input from credential plugins if manifests come from there.
    pub(crate) fn reserve_stdin(&mut self, files: &[PathBuf]) {
        if files.iter().any(|file| file == Path::new("-")) {
            // As kubectl words it.
            self.stdin = Stdin::Taken("used by stdin resource manifest reader".to_owned());
        }
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            kubeconfig: self.kubeconfig.clone().unwrap_or_else(default_kubeconfig),
            context: self.context.clone(),
            user: self.user.clone(),
            namespace: self.namespace.clone(),
            acting_as: self
                .acting_as
                .clone()
                .map(|user| ActingAs { user, groups: self.groups.clone() }),
            stdin: self.stdin.clone(),
            ..Options::default()
        }
    }

    /// Prepares requests to it.
    pub(crate) async fn connect(&self) -> Result<Cluster> {
        let options = self.options();
        if !options.kubeconfig.exists() {
            let what = match self.kubeconfig {
                None => "start a cluster with `waybill up`, or name one with --kubeconfig",
                Some(_) => "name the right one with --kubeconfig",
            };
            bail!("there is no kubeconfig at {}; {what}", options.kubeconfig.display());
        }
        let session = connect(&options).await?;
        Ok(Cluster {
            requests: Requests::new(session.client),
            namespace: session.namespace,
            named: self.namespace.is_some(),
        })
    }
}

/// A cluster, and where its user works.
pub(crate) struct Cluster {
    pub(crate) requests: Requests,
    /// The namespace that is meant when none is named.
    pub(crate) namespace: String,
    /// Whether a flag named it.
    named: bool,
}

impl Cluster {
    pub(crate) fn place(&self) -> Place {
        Place::Namespace(self.namespace.clone())
    }

    /// Where an object of a manifest goes, which may name its namespace.
    pub(crate) fn place_of(&self, own: Option<&str>) -> Result<Place> {
        match own {
            Some(own) if self.named && own != self.namespace => bail!(
                "the object is in namespace {own}, and --namespace says {}; leave one of them away",
                self.namespace
            ),
            Some(own) => Ok(Place::Namespace(own.to_owned())),
            None => Ok(self.place()),
        }
    }
}

/// The first that the user has, in the order of other clients; ours comes last, unless a state directory is named.
#[expect(clippy::disallowed_methods, reason = "this is the binary's configuration stage")]
fn default_kubeconfig() -> PathBuf {
    let named = std::env::var_os("KUBECONFIG").filter(|named| !named.is_empty());
    let named = named.and_then(|named| std::env::split_paths(&named).next());
    let home = std::env::home_dir().map(|home| home.join(".kube/config"));
    let usual = home.filter(|path| path.exists());
    let state_dir = std::env::var_os("WAYBILL_STATE_DIR").filter(|dir| !dir.is_empty());
    let own = state_dir.map(|dir| Path::new(&dir).join("kubeconfig"));
    named.or(own).or(usual).unwrap_or_else(|| Path::new(OWN).to_owned())
}
