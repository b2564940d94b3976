//! Where a node's agent listens, and who it must prove to be.

use std::{fmt, net::IpAddr};

use rustls_pki_types::{InvalidDnsNameError, ServerName};

/// A kind of address in the status of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAddressType {
    /// A DNS name that is good everywhere.
    ExternalDns,
    /// An IP address that is good everywhere.
    ExternalIp,
    /// What the machine calls itself.
    Hostname,
    /// A DNS name that is good in the cluster.
    InternalDns,
    /// An IP address that is good in the cluster.
    InternalIp,
}

impl NodeAddressType {
    /// As Kubernetes tries them unless it is told otherwise.
    pub const USUAL: [Self; 5] =
        [Self::Hostname, Self::InternalDns, Self::InternalIp, Self::ExternalDns, Self::ExternalIp];

    /// As statuses and flags call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExternalDns => "ExternalDNS",
            Self::ExternalIp => "ExternalIP",
            Self::Hostname => "Hostname",
            Self::InternalDns => "InternalDNS",
            Self::InternalIp => "InternalIP",
        }
    }

    /// The type of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::USUAL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The endpoint of one node, taken from its object in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeAddress {
    node: String,
    host: String,
    port: u16,
    server_name: ServerName<'static>,
}

impl NodeAddress {
    /// The endpoint of `node`, whose certificate must name `host`, an IP address or a DNS name.
    pub(crate) fn new(node: &str, host: &str, port: u16) -> Result<Self, InvalidDnsNameError> {
        let server_name = ServerName::try_from(host.to_owned())?;
        Ok(Self { node: node.to_owned(), host: host.to_owned(), port, server_name })
    }

    /// The name of its object.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn server_name(&self) -> &ServerName<'static> {
        &self.server_name
    }
}

/// `host:port`, with brackets around an IPv6 address, as in URLs.
impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse() {
            Ok(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            Ok(IpAddr::V4(_)) | Err(_) => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_as_in_urls() {
        for (host, expected) in
            [("::1", "[::1]:10250"), ("127.0.0.1", "127.0.0.1:10250"), ("n.local", "n.local:10250")]
        {
            assert_eq!(NodeAddress::new("n", host, 10250).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn a_name_that_no_certificate_can_hold_is_refused() {
        assert!(NodeAddress::new("n", "a b", 10250).is_err());
        assert!(NodeAddress::new("n", "", 10250).is_err());
    }
}
