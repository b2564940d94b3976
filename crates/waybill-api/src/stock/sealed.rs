//! Variables that a client seals for the node of a pod, so that nobody between them reads a value.
//!
//! HPKE in base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20Poly1305. Names stay readable for
//! deny lists; they, the pod and the container are bound by the additional data. Opening is the wrapper's.

use serde::{Deserialize, Serialize};
use waybill_core::env::{
    limits::{EXEC_BYTES, EXEC_ENTRIES},
    name::{EnvName, EnvNameError, NameRules},
};

use super::{RESERVED_NAMES, decode_base64url, encode_base64url};

/// How the word begins that carries sealed variables.
pub const SEALED_PREFIX: &str = "waybill-sealed:";

/// The `info` of HPKE.
pub const SEALED_INFO: &[u8] = b"waybill exec variables v1";

/// How long a sealed word is good, in seconds: a client's look at its key, and the way to the node.
pub const SEALED_SECONDS: i64 = 300;

/// Sealed variables, as the word carries them. Neither time nor seal has been looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedVariables {
    /// The node's key.
    pub kid: String,
    /// The life of the pod.
    pub uid: String,
    /// The container.
    pub container: String,
    /// The names, in the order of the values.
    pub names: Vec<String>,
    /// When the word ends, in seconds since 1970.
    pub expires_at: i64,
    /// The encapsulated key of HPKE.
    pub encapsulated: Vec<u8>,
    /// The sealed values.
    pub ciphertext: Vec<u8>,
}

impl SealedVariables {
    /// Reads a word with its prefix, and judges its names as those of any exec session.
    pub fn parse(word: &str) -> Result<Self, SealedError> {
        let text = word.strip_prefix(SEALED_PREFIX).ok_or(SealedError::Form)?;
        if text.len() > WORD_BYTES {
            return Err(SealedError::Long);
        }
        let json = decode_base64url(text).map_err(|_| SealedError::Form)?;
        let wire: Wire = serde_json::from_slice(&json).map_err(|_| SealedError::Form)?;
        if wire.v != VERSION {
            return Err(SealedError::Version);
        }
        let sealed = Self {
            kid: wire.kid,
            uid: wire.uid,
            container: wire.container,
            names: wire.names,
            expires_at: wire.exp,
            encapsulated: decode_base64url(&wire.enc).map_err(|_| SealedError::Form)?,
            ciphertext: decode_base64url(&wire.ct).map_err(|_| SealedError::Form)?,
        };
        // One content has one word, so that nobody makes another of it that would count as new.
        if sealed.to_word() != word {
            return Err(SealedError::Form);
        }
        sealed.check_names()?;
        Ok(sealed)
    }

    /// The word that [`Self::parse`] reads.
    pub fn to_word(&self) -> String {
        let wire = Wire {
            v: VERSION,
            kid: self.kid.clone(),
            uid: self.uid.clone(),
            container: self.container.clone(),
            names: self.names.clone(),
            exp: self.expires_at,
            enc: encode_base64url(&self.encapsulated),
            ct: encode_base64url(&self.ciphertext),
        };
        let json = serde_json::to_vec(&wire).unwrap_or_default();
        format!("{SEALED_PREFIX}{}", encode_base64url(&json))
    }

    /// The additional data of HPKE: JSON without spaces of all but the seal, in the order of the word.
    pub fn additional_data(&self) -> Vec<u8> {
        let bound = Bound {
            v: VERSION,
            kid: &self.kid,
            uid: &self.uid,
            container: &self.container,
            names: &self.names,
            exp: self.expires_at,
        };
        serde_json::to_vec(&bound).unwrap_or_default()
    }

    /// Names that a session may have: as gate judges them, so does the wrapper.
    pub fn check_names(&self) -> Result<(), SealedError> {
        if self.names.len() > EXEC_ENTRIES {
            return Err(SealedError::Long);
        }
        for (at, name) in self.names.iter().enumerate() {
            EnvName::parse(name, NameRules::Relaxed)
                .map_err(|source| SealedError::Name { at, source })?;
            if RESERVED_NAMES.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
                return Err(SealedError::Reserved { at });
            }
            if self.names.iter().take(at).any(|earlier| earlier == name) {
                return Err(SealedError::Twice { at });
            }
        }
        Ok(())
    }
}

const VERSION: u32 = 1;

/// The longest word: as many bytes as a session may have, their frames, names and seal, in base64 twice.
const WORD_BYTES: usize = (EXEC_BYTES + EXEC_ENTRIES * 16 + 2048) * 2;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    v: u32,
    kid: String,
    uid: String,
    container: String,
    names: Vec<String>,
    exp: i64,
    enc: String,
    ct: String,
}

#[derive(Serialize)]
struct Bound<'a> {
    v: u32,
    kid: &'a str,
    uid: &'a str,
    container: &'a str,
    names: &'a [String],
    exp: i64,
}

/// What is wrong with a sealed word. No text shows a part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealedError {
    /// It is not what a client of ours writes.
    #[error("sealed variables are not understood")]
    Form,
    /// A newer client wrote it.
    #[error("sealed variables are of a version that is not known here")]
    Version,
    /// More than a session may have.
    #[error("sealed variables are more than a session may have")]
    Long,
    /// A name that no variable may have.
    #[error("the name of sealed variable {at} is not allowed")]
    Name {
        /// Which variable, from 0.
        at: usize,
        /// What is wrong with it.
        source: EnvNameError,
    },
    /// A name that is ours.
    #[error("the name of sealed variable {at} is reserved")]
    Reserved {
        /// Which variable, from 0.
        at: usize,
    },
    /// A name that came before.
    #[error("the name of sealed variable {at} stands there twice")]
    Twice {
        /// Which variable, from 0.
        at: usize,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealed(names: &[&str]) -> SealedVariables {
        SealedVariables {
            kid: "k1".to_owned(),
            uid: "u-1".to_owned(),
            container: "main".to_owned(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
            expires_at: 1_800_000_000,
            encapsulated: vec![1; 32],
            ciphertext: vec![2, 3],
        }
    }

    /// Client and wrapper compute these bytes apart: a change is a change of the protocol.
    #[test]
    fn the_bound_bytes_are_these() {
        let expected = br#"{"v":1,"kid":"k1","uid":"u-1","container":"main","names":["A","B"],"exp":1800000000}"#;
        assert_eq!(sealed(&["A", "B"]).additional_data(), expected);
    }

    #[test]
    fn a_word_reads_as_it_was_written() {
        let variables = sealed(&["A", "b.c"]);
        let word = variables.to_word();
        assert!(word.starts_with(SEALED_PREFIX), "{word}");
        assert_eq!(SealedVariables::parse(&word), Ok(variables));
    }

    #[test]
    fn names_are_judged_as_in_any_session() {
        let check = |names: &[&str]| SealedVariables::parse(&sealed(names).to_word()).map(drop);
        assert!(matches!(check(&["A", "a=b"]), Err(SealedError::Name { at: 1, .. })));
        assert!(matches!(check(&[""]), Err(SealedError::Name { at: 0, .. })));
        assert_eq!(check(&["A", "A"]), Err(SealedError::Twice { at: 1 }));
        assert_eq!(check(&["a", "A"]), Ok(()));
        for name in ["WAYBILL_SESSION_ID", "waybill_session_id", "Kubernetes_Exec_Audit_ID"] {
            assert_eq!(check(&[name]), Err(SealedError::Reserved { at: 0 }), "{name}");
        }
        let many: Vec<_> = (0..=EXEC_ENTRIES).map(|number| format!("V{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(check(&many), Err(SealedError::Long));
        assert_eq!(check(&many[1..]), Ok(()));
    }

    #[test]
    fn the_most_that_a_session_may_have_fits_a_word() {
        let mut variables = sealed(&[]);
        let name = |number: usize| format!("{number:_>63}");
        variables.names = (0..EXEC_ENTRIES).map(name).collect();
        let names: usize = variables.names.iter().map(String::len).sum();
        variables.ciphertext = vec![0; EXEC_BYTES - names + 8 * EXEC_ENTRIES + 16];
        assert_eq!(SealedVariables::parse(&variables.to_word()), Ok(variables));
    }

    #[test]
    fn what_no_client_of_ours_writes_is_refused() {
        let json = |text: &str| format!("{SEALED_PREFIX}{}", encode_base64url(text.as_bytes()));
        for word in ["", "-", "waybill-sealed:", "waybill-sealed:*", &json("{}"), &json("[]")] {
            assert_eq!(SealedVariables::parse(word), Err(SealedError::Form), "{word}");
        }
        let newer =
            r#"{"v":2,"kid":"","uid":"","container":"","names":[],"exp":0,"enc":"","ct":""}"#;
        assert_eq!(SealedVariables::parse(&json(newer)), Err(SealedError::Version));
        let more = newer.replace(":2", ":1").replace("\"ct\":\"\"", "\"ct\":\"\",\"x\":1");
        assert_eq!(SealedVariables::parse(&json(&more)), Err(SealedError::Form));
        let long = format!("{SEALED_PREFIX}{}", "A".repeat(WORD_BYTES + 1));
        assert_eq!(SealedVariables::parse(&long), Err(SealedError::Long));
    }

    /// The node remembers what was used, and other letters for the same seal would be new to it.
    #[test]
    fn one_content_has_one_word() {
        let word = sealed(&["A"]).to_word();
        let json = decode_base64url(word.strip_prefix(SEALED_PREFIX).unwrap()).unwrap();
        let text = String::from_utf8(json).unwrap();
        let turned = text.replace(r#""v":1,"kid":"k1""#, r#""kid":"k1","v":1"#);
        for other in [format!("{text} "), turned, text.replace("[\"A\"]", r#"["\u0041"]"#)] {
            assert_ne!(other, text);
            let word = format!("{SEALED_PREFIX}{}", encode_base64url(other.as_bytes()));
            assert_eq!(SealedVariables::parse(&word), Err(SealedError::Form), "{other}");
        }
        assert!(SealedVariables::parse(&word).is_ok());
    }

    proptest! {
        #[test]
        fn no_word_panics(word in "(waybill-sealed:)?[A-Za-z0-9_-]{0,200}") {
            let _ = SealedVariables::parse(&word);
        }

        #[test]
        fn all_that_is_bound_is_in_the_bound_bytes(uid in "[a-z0-9-]{1,20}", container in ".{0,10}", exp: i64) {
            let mut changed = sealed(&["A"]);
            changed.uid = uid;
            changed.container = container;
            changed.expires_at = exp;
            let json: serde_json::Value = serde_json::from_slice(&changed.additional_data()).unwrap();
            prop_assert_eq!(&json["uid"], &changed.uid);
            prop_assert_eq!(&json["container"], &changed.container);
            prop_assert_eq!(&json["exp"], exp);
        }
    }
}
