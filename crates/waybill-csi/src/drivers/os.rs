//! Facts about the host: its name, kernel, distribution, processors, memory and network.
//!
//! Nothing here is secret, and nothing that is belongs here: no command line of the kernel, no machine ID,
//! no file that a key could name. [`KEYS`] is the whole list.

mod facts;
mod network;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use waybill_core::secret::SecretBytes;

use crate::driver::{Answer, Call, Driver, FetchError, Query, Sharing};

/// The name under which it registers.
pub const NAME: &str = "os.csi.waybill.dev";

/// Every key, and what its value is.
pub const KEYS: &[(&str, &str)] = &[
    ("os/basic/hostname", "name of the host"),
    ("os/basic/domainname", "its NIS domain; \"(none)\" without one"),
    ("os/basic/architecture", "of the machine, such as x86_64"),
    ("os/basic/boot-id", "a UUID that changes with each boot"),
    ("os/basic/boot-time", "seconds from 1970 to the boot"),
    ("os/basic/os-release/FIELD", "a field of os-release, such as ID, VERSION_ID or PRETTY_NAME"),
    ("os/kernel/name", "such as Linux"),
    ("os/kernel/release", "such as 6.1.0-18-amd64, as `uname -r` says it"),
    ("os/kernel/version", "when and how it was built, as `uname -v` says it"),
    ("os/cpu/count", "how many processors are on line"),
    ("os/cpu/model", "as /proc/cpuinfo says it; not on every architecture"),
    ("os/cpu/vendor", "as /proc/cpuinfo says it; not on every architecture"),
    ("os/memory/total", "bytes of memory"),
    ("os/memory/swap-total", "bytes of swap"),
    ("os/network/default-interface", "the interface of the default route"),
    ("os/network/INTERFACE/address", "the first IPv4 address of an interface"),
    ("os/network/INTERFACE/address6", "its first IPv6 address that is not link-local"),
    ("os/network/INTERFACE/mac", "its hardware address"),
    ("os/network/INTERFACE/mtu", "its largest packet, in bytes"),
];

/// The driver.
#[derive(Clone, Debug)]
pub struct Os {
    root: PathBuf,
}

impl Os {
    /// Reads facts of the host whose files are below `root`: `/`, or where a container has them mounted.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn files(&self) -> Files<'_> {
        Files { root: &self.root, seen: RefCell::default() }
    }
}

/// The host's files as one call sees them: each is read once.
struct Files<'a> {
    root: &'a Path,
    seen: RefCell<BTreeMap<String, Option<String>>>,
}

impl Files<'_> {
    fn fact(&self, key: &str) -> Answer {
        match facts::read(self, key) {
            Ok(Some(text)) => Ok(SecretBytes::from(text.into_bytes())),
            Ok(None) if is_known(key) => {
                Err(FetchError::not_found(format!("this host has nothing for the key {key:?}")))
            }
            Ok(None) => Err(FetchError::not_found(format!(
                "there is no key {key:?}; `waybill driver os --help` lists them"
            ))),
            Err(error) => Err(FetchError::backend(format!("key {key:?} cannot be read: {error}"))),
        }
    }

    /// The text of a file of the host; nothing if it has none.
    fn file(&self, path: &str) -> io::Result<Option<String>> {
        if let Some(seen) = self.seen.borrow().get(path) {
            return Ok(seen.clone());
        }
        let text = match std::fs::read(self.root.join(path)) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        self.seen.borrow_mut().insert(path.to_owned(), text.clone());
        Ok(text)
    }
}

impl Driver for Os {
    fn name(&self) -> &str {
        NAME
    }

    fn backend(&self) -> &'static str {
        "os"
    }

    fn sharing(&self) -> Sharing {
        Sharing::Class
    }

    /// The files are the kernel's own, or small: nobody waits for a disk.
    async fn fetch(&self, _call: &Call, queries: &[Query]) -> Result<Vec<Answer>, FetchError> {
        let files = self.files();
        Ok(queries.iter().map(|query| files.fact(&query.key)).collect())
    }
}

/// Whether a key is on the list. A word in capitals there is one segment of any text.
fn is_known(key: &str) -> bool {
    let is_word = |part: &str| part.bytes().all(|byte| byte.is_ascii_uppercase());
    let fits = |(known, _): &(&str, &str)| {
        let pairs = known.split('/').zip(key.split('/'));
        known.split('/').count() == key.split('/').count()
            && pairs.into_iter().all(|(known, part)| known == part || is_word(known))
    };
    KEYS.iter().any(fits)
}

#[cfg(test)]
mod tests;
