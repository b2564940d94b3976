//! The other replicas: each keeps the records of all, so that any can answer, and none is lost when one ends.
//!
//! A replica says with its public key where it is. Every two seconds, and when somebody asks for sessions, the others are asked for what
//! is new there. Both sides prove who they are: the asked by the certificate of the authority that replicas share, who asks by
//! a token.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, Method, StatusCode, header};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use waybill_api::stock::{GATES, MissingRecords};

use super::{
    Answer, Service, answer,
    ask::Question,
    records::{KeptRecord, Known},
    text,
};
use crate::token::{key_of, may_read};

/// Where replicas ask one another.
pub(super) const PATH: &str = "/records";

/// How often.
const INTERVAL: Duration = Duration::from_secs(2);

/// The most bytes of records in one answer; there may be more to ask for.
const ANSWER_BYTES: usize = 1 << 20;

/// The most answers that are asked for at once.
const ANSWERS: usize = 8;

/// Whose certificates replicas believe of one another.
#[derive(Default)]
pub(super) struct Shared(Mutex<Vec<CertificateDer<'static>>>);

impl Shared {
    /// Believes these authorities from now on, which are in PEM.
    pub(super) fn set(&self, bundle: &str) {
        let found = CertificateDer::pem_slice_iter(bundle.as_bytes()).filter_map(Result::ok);
        *self.lock() = found.collect();
    }

    fn get(&self) -> Vec<CertificateDer<'static>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CertificateDer<'static>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one replica asks another.
#[derive(Serialize, Deserialize)]
struct Wanted {
    known: Known,
}

/// What it is told.
#[derive(Default, Serialize, Deserialize)]
struct Told {
    records: Vec<KeptRecord>,
    /// Whether there are more.
    more: bool,
}

impl Service {
    /// Keeps the records of others, for ever.
    pub(super) async fn follow_siblings(&self) {
        loop {
            // Who does not answer is asked again, and missed when somebody wants to know.
            self.ask_siblings().await;
            sleep(INTERVAL).await;
        }
    }

    /// Asks all others for what is new; returns who did not tell.
    pub(super) async fn ask_siblings(&self) -> Vec<MissingRecords> {
        let Some(own) = &self.advertised else { return Vec::new() };
        let addresses = match self.keys.addresses().await {
            Ok(addresses) => addresses,
            Err(_) => {
                return vec![missing("other gates", "the API server did not say where they are")];
            }
        };
        let others = addresses.into_iter().filter(|address| address != own);
        let asked = others.map(|address| async move {
            self.ask_sibling(&address)
                .await
                .err()
                .map(|why| missing(&format!("gate at {address}"), &why))
        });
        let asked: Vec<_> = asked.collect();
        futures_util::future::join_all(asked).await.into_iter().flatten().collect()
    }

    async fn ask_sibling(&self, address: &str) -> Result<(), String> {
        let roots = self.shared.get();
        let name = self.serving_name.as_deref().ok_or("its certificate is not ours to know")?;
        for _ in 0..ANSWERS {
            let token = self.keys.signer()?.records_token(GATES, (self.clock)());
            let wanted = Wanted { known: self.records.known() };
            let question = Question {
                address,
                name,
                roots: &roots,
                token: token.map_err(|error| error.to_string())?,
                method: Method::POST,
                path: PATH.to_owned(),
                body: serde_json::to_string(&wanted).unwrap_or_default(),
            };
            let told: Told = question.ask().await.map_err(|error| error.to_string())?;
            let more = told.more && !told.records.is_empty();
            self.records.take(told.records);
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Whether another replica asks.
    pub(super) async fn is_sibling(&self, headers: &HeaderMap) -> bool {
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(token) = bearer.and_then(|value| value.strip_prefix("Bearer ")) else {
            return false;
        };
        let Some(kid) = key_of(token) else { return false };
        let Ok(keys) = self.keys.with(&kid).await else { return false };
        may_read(token, &keys, GATES, (self.clock)())
    }

    /// Tells another replica what it does not know.
    pub(super) fn tell_sibling(&self, asked: &[u8]) -> Answer {
        let Ok(wanted) = serde_json::from_slice::<Wanted>(asked) else {
            return text(StatusCode::BAD_REQUEST, "not understood");
        };
        let (records, more) = self.records.newer(&wanted.known, ANSWER_BYTES);
        let told = serde_json::to_string(&Told { records, more }).unwrap_or_default();
        answer(StatusCode::OK, "application/json", told)
    }
}

fn missing(of: &str, why: &str) -> MissingRecords {
    MissingRecords { of: of.to_owned(), why: why.to_owned() }
}
