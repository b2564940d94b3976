//! Where values lie that the same readers may have.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::{ENTRY_BYTES, map_bytes};
use crate::driver::{Call, Sharing};

/// Where values lie that the same readers may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shelf {
    pub(super) class: String,
    parameters: BTreeMap<String, String>,
    reader: Reader,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Reader {
    Anybody,
    Account { namespace: String, name: String, proof: Proof },
    Pod { uid: String, proof: Proof },
}

impl Shelf {
    /// The one for `call`.
    pub(crate) fn of(call: &Call, sharing: Sharing) -> Self {
        let pod = &call.pod;
        let reader = match sharing {
            Sharing::Class => Reader::Anybody,
            Sharing::Identity => Reader::Account {
                namespace: pod.namespace.clone(),
                name: pod.service_account.clone(),
                proof: proof(call),
            },
            Sharing::Pod => Reader::Pod { uid: pod.uid.clone(), proof: proof(call) },
        };
        Self { class: call.class.clone(), parameters: call.parameters.clone(), reader }
    }

    pub(super) fn bytes(&self) -> usize {
        ENTRY_BYTES + self.class.len() + map_bytes(&self.parameters)
    }
}

/// A hash of the tokens that a pod brought. Where there are some, the backend decides by them: a name that
/// somebody says is not enough to have what it gave to another.
type Proof = [u8; 32];

fn proof(call: &Call) -> Proof {
    let mut all = Sha256::new();
    for (audience, token) in &call.tokens {
        for part in [audience.as_bytes(), token.token.expose()] {
            all.update(part.len().to_be_bytes());
            all.update(part);
        }
    }
    all.finalize().into()
}
