//! The Kubernetes versions whose behaviour can be taken on.

use std::fmt;

/// A Kubernetes version whose behaviour Waybill can take on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubeVersion {
    minor: u8,
}

impl KubeVersion {
    /// The version in which the first of the five features appeared.
    pub const OLDEST: Self = Self::minor(30);
    /// The default.
    pub const NEWEST: Self = Self::minor(37);

    /// Parses `1.34` or `v1.34`.
    pub fn parse(raw: &str) -> Result<Self, KubeVersionError> {
        let refused = || KubeVersionError { raw: raw.to_owned() };
        let minor = raw.strip_prefix('v').unwrap_or(raw).strip_prefix("1.").ok_or_else(refused)?;
        // `parse` alone would take a sign.
        if !minor.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(refused());
        }
        let version = Self { minor: minor.parse().map_err(|_| refused())? };
        let emulated = Self::OLDEST <= version && version <= Self::NEWEST;
        if emulated { Ok(version) } else { Err(refused()) }
    }

    /// Version 1.`minor`, for the constants of this crate.
    pub(crate) const fn minor(minor: u8) -> Self {
        Self { minor }
    }
}

impl Default for KubeVersion {
    fn default() -> Self {
        Self::NEWEST
    }
}

impl fmt::Display for KubeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor)
    }
}

/// The text names no version that can be emulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot emulate Kubernetes version {raw:?}, choose one from {} to {}",
    KubeVersion::OLDEST,
    KubeVersion::NEWEST
)]
pub struct KubeVersionError {
    raw: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(raw: &str) -> KubeVersion {
        KubeVersion::parse(raw).unwrap()
    }

    #[test]
    fn versions_parse_inside_the_emulated_range_only() {
        assert_eq!(KubeVersion::parse("1.34"), KubeVersion::parse("v1.34"));
        assert_eq!(version("v1.30"), KubeVersion::OLDEST);
        assert_eq!(version("1.37"), KubeVersion::NEWEST);
        for bad in
            ["", "1", "1.", "1.29", "1.38", "2.34", "1.34.1", "1.+34", "1.300", "vv1.34", "x"]
        {
            assert!(KubeVersion::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            KubeVersion::parse("1.29").unwrap_err().to_string(),
            "cannot emulate Kubernetes version \"1.29\", choose one from 1.30 to 1.37"
        );
    }
}
