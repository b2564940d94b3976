//! Public keys on a stock cluster: gate's for signatures, nodes' for sealing.

use serde::{Deserialize, Serialize};

/// A JSON Web Key Set with the keys of gate, as `keys.json` on a node and `/keys` of gate hold it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySet {
    /// The keys. Those of other kinds than ours are passed over.
    pub keys: Vec<PublicKey>,
}

impl KeySet {
    /// The P-256 key called `kid`.
    pub fn find(&self, kid: &str) -> Option<&PublicKey> {
        self.keys.iter().find(|key| key.kid == kid && key.kty == "EC" && key.crv == "P-256")
    }
}

/// One key of the set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PublicKey {
    /// Its kind: `EC` for ours.
    pub kty: String,
    /// Its curve: `P-256` for ours.
    pub crv: String,
    /// Its name, which the header of a token gives.
    pub kid: String,
    /// One coordinate, in base64url without padding.
    pub x: String,
    /// The other.
    pub y: String,
    /// What it is for: `sig`.
    #[serde(rename = "use")]
    pub usage: String,
    /// How it signs: `ES256`.
    pub alg: String,
}

impl PublicKey {
    /// A key of gate, by its name and the coordinates of its point.
    pub fn es256(kid: &str, x: &[u8; 32], y: &[u8; 32]) -> Self {
        Self {
            kty: "EC".to_owned(),
            crv: "P-256".to_owned(),
            kid: kid.to_owned(),
            x: super::encode_base64url(x),
            y: super::encode_base64url(y),
            usage: "sig".to_owned(),
            alg: "ES256".to_owned(),
        }
    }

    /// The point as SEC 1 writes it without compression: `04`, x, y.
    pub fn sec1(&self) -> Option<[u8; 65]> {
        let mut point = [4; 65];
        let (x, y) = point.get_mut(1..)?.split_at_mut(32);
        for (part, text) in [(x, &self.x), (y, &self.y)] {
            let bytes = super::decode_base64url(text).ok()?;
            part.copy_from_slice(bytes.first_chunk::<32>().filter(|_| bytes.len() == 32)?);
        }
        Some(point)
    }
}

/// What a client gets to know about the node of a pod, to seal variables for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SealingKey {
    /// `SealingKey`.
    pub kind: String,
    /// `exec.waybill.dev/v1`.
    pub api_version: String,
    /// The node.
    pub node: String,
    /// The name of its key.
    pub kid: String,
    /// The X25519 public key, in base64url without padding.
    pub key: String,
    /// The life of the pod that was asked about.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn a_key_of_gate_is_a_json_web_key() {
        let key = PublicKey::es256("k1", &[1; 32], &[2; 32]);
        let x = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
        let y = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI";
        let json = json!({
            "kty": "EC", "crv": "P-256", "kid": "k1", "x": x, "y": y, "use": "sig", "alg": "ES256"
        });
        assert_eq!(to_value(&key).unwrap(), json);
        let point = key.sec1().unwrap();
        assert_eq!((point[0], &point[1..33], &point[33..]), (4, &[1; 32][..], &[2; 32][..]));
    }

    #[test]
    fn foreign_and_broken_keys_are_passed_over() {
        let set: KeySet = from_value(json!({"keys": [
            {"kty": "RSA", "kid": "k", "n": "x", "e": "AQAB"},
            {"kty": "EC", "crv": "P-256", "kid": "k", "x": "AQ", "y": "AQ"},
        ]}))
        .unwrap();
        assert_eq!(set.find("other"), None);
        assert_eq!(set.find("k").unwrap().kty, "EC");
        assert_eq!(set.find("k").unwrap().sec1(), None);
    }

    #[test]
    fn a_sealing_key_has_these_names() {
        let key = SealingKey {
            kind: "SealingKey".to_owned(),
            api_version: "exec.waybill.dev/v1".to_owned(),
            node: "n".to_owned(),
            kid: "k".to_owned(),
            key: "AQ".to_owned(),
            pod_uid: "u".to_owned(),
        };
        let json = json!({
            "kind": "SealingKey", "apiVersion": "exec.waybill.dev/v1", "node": "n", "kid": "k", "key": "AQ",
            "podUID": "u",
        });
        assert_eq!(to_value(&key).unwrap(), json);
    }
}
