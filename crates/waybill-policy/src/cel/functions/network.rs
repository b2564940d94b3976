//! Addresses and ranges of them.

use std::{fmt, net::IpAddr};

use super::{Function, Outcome, fail, unfit};
use crate::cel::{
    budget::Budget,
    types::Type,
    value::{Library, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::global("ip", 1, IP, ip).on(&[Type::String]),
    Function::global("isIP", 1, Type::Bool, is_ip).on(&[Type::String]),
    Function::global("ip.isCanonical", 1, Type::Bool, is_canonical).on(&[Type::String]),
    Function::member("family", 1, Type::Int, family).on(&[IP]),
    Function::member("isUnspecified", 1, Type::Bool, is_unspecified).on(&[IP]),
    Function::member("isLoopback", 1, Type::Bool, is_loopback).on(&[IP]),
    Function::member("isLinkLocalMulticast", 1, Type::Bool, is_link_local_multicast).on(&[IP]),
    Function::member("isLinkLocalUnicast", 1, Type::Bool, is_link_local_unicast).on(&[IP]),
    Function::member("isGlobalUnicast", 1, Type::Bool, is_global_unicast).on(&[IP]),
    Function::global("cidr", 1, CIDR, cidr).on(&[Type::String]),
    Function::global("isCIDR", 1, Type::Bool, is_cidr).on(&[Type::String]),
    Function::member("containsIP", 2, Type::Bool, contains_ip).on(&[CIDR]),
    Function::member("containsCIDR", 2, Type::Bool, contains_cidr).on(&[CIDR]),
    Function::member("ip", 1, IP, ip_of).on(&[CIDR]),
    Function::member("masked", 1, CIDR, masked).on(&[CIDR]),
    Function::member("prefixLength", 1, Type::Int, prefix_length).on(&[CIDR]),
];

const IP: Type = Type::Library("net.IP");
const CIDR: Type = Type::Library("net.CIDR");

/// A range of addresses: one of them, and how many of its bits all of them share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    ip: IpAddr,
    prefix: u8,
}

impl Cidr {
    fn parse(text: &str) -> Option<Self> {
        let (ip, prefix) = text.split_once('/')?;
        let ip = parse_ip(ip)?;
        // Go takes no signs and no leading zeros.
        if prefix.len() > 1 && prefix.starts_with('0')
            || !prefix.bytes().all(|c| c.is_ascii_digit())
        {
            return None;
        }
        let prefix: u8 = prefix.parse().ok()?;
        (prefix <= width(ip)).then_some(Self { ip, prefix })
    }

    fn contains(self, ip: IpAddr) -> bool {
        self.ip.is_ipv4() == ip.is_ipv4() && self.network(self.ip) == self.network(ip)
    }

    /// The bits of `ip` that the range fixes.
    fn network(self, ip: IpAddr) -> u128 {
        let free = u32::from(width(ip) - self.prefix);
        bits(ip).checked_shr(free).unwrap_or(0)
    }

    fn masked(self) -> Self {
        let free = u32::from(width(self.ip) - self.prefix);
        let masked = self.network(self.ip).checked_shl(free).unwrap_or(0);
        let ip = match self.ip {
            IpAddr::V4(_) => IpAddr::V4(u32::try_from(masked).unwrap_or(0).into()),
            IpAddr::V6(_) => IpAddr::V6(masked.into()),
        };
        Self { ip, prefix: self.prefix }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

/// As upstream: no zones, and no IPv4 written as IPv6.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let ip: IpAddr = text.parse().ok()?;
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => None,
        ip => Some(ip),
    }
}

fn wrap<'a>(ip: IpAddr) -> Value<'a> {
    Value::Library(Library::Ip(ip))
}

fn ip<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = values else { return unfit() };
    budget.charge_bytes(text.len())?;
    match parse_ip(text) {
        Some(ip) => Ok(wrap(ip)),
        None => fail("IP Address parse error: it is no address"),
    }
}

fn is_ip<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = values else { return unfit() };
    budget.charge_bytes(text.len())?;
    Ok(Value::Bool(parse_ip(text).is_some()))
}

fn is_canonical<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = values else { return unfit() };
    budget.charge_bytes(text.len())?;
    match parse_ip(text) {
        Some(ip) => Ok(Value::Bool(ip.to_string() == **text)),
        None => fail("IP Address parse error: it is no address"),
    }
}

fn address(values: &[Value<'_>]) -> Option<IpAddr> {
    match values {
        [Value::Library(Library::Ip(ip))] => Some(*ip),
        _ => None,
    }
}

fn family<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    address(values).map_or_else(unfit, |ip| Ok(Value::Int(if ip.is_ipv4() { 4 } else { 6 })))
}

fn is_unspecified<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    address(values).map_or_else(unfit, |ip| Ok(Value::Bool(ip.is_unspecified())))
}

fn is_loopback<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    address(values).map_or_else(unfit, |ip| Ok(Value::Bool(ip.is_loopback())))
}

fn is_link_local_multicast<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    address(values).map_or_else(unfit, |ip| Ok(Value::Bool(link_local_multicast(ip))))
}

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => matches!(ip.octets(), [224, 0, 0, _]),
        IpAddr::V6(ip) => matches!(ip.octets(), [0xff, flags, ..] if flags & 0x0f == 2),
    }
}

fn is_link_local_unicast<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    address(values).map_or_else(unfit, |ip| Ok(Value::Bool(link_local_unicast(ip))))
}

fn link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn is_global_unicast<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    address(values).map_or_else(unfit, |ip| {
        let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        let other = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast();
        Ok(Value::Bool(!broadcast && !other && !link_local_unicast(ip)))
    })
}

fn cidr<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = values else { return unfit() };
    budget.charge_bytes(text.len())?;
    match Cidr::parse(text) {
        Some(range) => Ok(Value::Library(Library::Cidr(range))),
        None => fail("network address parse error: it is no range of addresses"),
    }
}

fn is_cidr<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = values else { return unfit() };
    budget.charge_bytes(text.len())?;
    Ok(Value::Bool(Cidr::parse(text).is_some()))
}

fn contains_ip<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Library(Library::Cidr(range)), other] = values else { return unfit() };
    let ip = match other {
        Value::Library(Library::Ip(ip)) => Some(*ip),
        Value::String(text) => {
            budget.charge_bytes(text.len())?;
            parse_ip(text)
        }
        _ => return unfit(),
    };
    match ip {
        Some(ip) => Ok(Value::Bool(range.contains(ip))),
        None => fail("IP Address parse error: it is no address"),
    }
}

fn contains_cidr<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Library(Library::Cidr(range)), other] = values else { return unfit() };
    let inner = match other {
        Value::Library(Library::Cidr(inner)) => Some(*inner),
        Value::String(text) => {
            budget.charge_bytes(text.len())?;
            Cidr::parse(text)
        }
        _ => return unfit(),
    };
    match inner {
        Some(inner) => {
            Ok(Value::Bool(range.contains(inner.masked().ip) && range.prefix <= inner.prefix))
        }
        None => fail("network address parse error: it is no range of addresses"),
    }
}

fn ip_of<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Library(Library::Cidr(range))] = values else { return unfit() };
    Ok(wrap(range.ip))
}

fn masked<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Library(Library::Cidr(range))] = values else { return unfit() };
    Ok(Value::Library(Library::Cidr(range.masked())))
}

fn prefix_length<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Library(Library::Cidr(range))] = values else { return unfit() };
    Ok(Value::Int(range.prefix.into()))
}
