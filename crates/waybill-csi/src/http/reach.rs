//! Which machines classes may name, unless the owner of the node says so himself.
//!
//! What listens on the node's own addresses, or on its link, trusts whoever comes from there: the API of a
//! kubelet or a runtime, the metadata of a cloud, which gives out credentials of the machine. A class is written
//! by somebody else, who must not be able to ask them through a driver.

use std::{
    error::Error,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    task::{Context, Poll},
    vec,
};

use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

/// Where metadata of clouds is that is not link-local: EC2 by IPv6, Alibaba, Oracle's older machines.
const METADATA: [IpAddr; 3] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];

/// How far a driver goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reach {
    /// To other machines alone.
    #[default]
    Elsewhere,
    /// Wherever names lead to: the owner of the node knows them.
    Anywhere,
}

/// A name leads to this machine or to its link.
#[derive(Debug, thiserror::Error)]
#[error("its name leads to this machine or its link")]
pub(super) struct OffLimits;

/// Whether an address is this machine, its link, many machines, or none.
pub(super) fn is_off_limits(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let of_its_kind = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
        // The second prefix writes IPv4 addresses in another way; no router passes them on.
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local()
                || v6.to_ipv4().is_some_and(|v4| is_off_limits(IpAddr::V4(v4)))
        }
    };
    of_its_kind
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || METADATA.contains(&address)
}

/// Looks names up as the machine does, and leaves out what is off limits.
///
/// A check of the name alone would not do: whoever owns a name decides where it leads, and can change it
/// between a check and the connection.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    reach: Reach,
    system: GaiResolver,
}

impl Resolver {
    pub(super) fn new(reach: Reach) -> Self {
        Self { reach, system: GaiResolver::new() }
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.system.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (reach, found) = (self.reach, self.system.call(name));
        Box::pin(async move { Ok(within(reach, found.await?.collect())?.into_iter()) })
    }
}

fn within(reach: Reach, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, OffLimits> {
    if reach == Reach::Anywhere || found.is_empty() {
        return Ok(found);
    }
    let left: Vec<_> = found.into_iter().filter(|found| !is_off_limits(found.ip())).collect();
    if left.is_empty() { Err(OffLimits) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CSI-46
    #[test]
    fn this_machine_its_link_and_metadata_are_off_limits_csi_46() {
        for off in [
            "127.0.0.1",
            "127.8.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "febf::1",
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "192.0.0.192",
        ] {
            assert!(is_off_limits(off.parse().unwrap()), "{off}");
        }
        for fine in ["10.0.0.1", "192.168.1.1", "172.16.0.1", "8.8.8.8", "fd00::1", "2001:db8::1"] {
            assert!(!is_off_limits(fine.parse().unwrap()), "{fine}");
        }
    }

    /// CSI-46
    #[test]
    fn names_lead_to_other_machines_alone_csi_46() {
        let found = |raw: &[&str]| raw.iter().map(|raw| raw.parse().unwrap()).collect::<Vec<_>>();
        let (here, there) = (["127.0.0.1:80", "[::1]:80"], ["10.0.0.1:80"]);
        assert!(within(Reach::Elsewhere, found(&here)).is_err());
        let both = found(&[here[0], there[0]]);
        assert_eq!(within(Reach::Elsewhere, both).unwrap(), found(&there));
        assert_eq!(within(Reach::Anywhere, found(&here)).unwrap(), found(&here));
        assert!(within(Reach::Elsewhere, Vec::new()).unwrap().is_empty());
    }
}
