//! What the wrapper asks the agent of its node, and the answer: one line of JSON each way.
//!
//! Values are in memory that is wiped, and no `Debug` shows one.

use std::fmt;

use serde::{Deserialize, Serialize};
use waybill_core::secret::SecretBytes;

use super::{Reference, decode_base64url, encode_base64url};

/// How long the wrapper waits for an answer, in seconds.
pub const SOCKET_SECONDS: u64 = 10;

/// The longest line that either side reads.
pub const SOCKET_LINE_BYTES: usize = 16 << 20;

/// The question: values for the references of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedValues {
    /// 1.
    pub version: u32,
    /// The life of the pod.
    pub uid: String,
    /// The container.
    pub container: String,
    /// Which start of the container this is, where the runtime says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What its variables refer to.
    pub references: Vec<AskedReference>,
}

/// One variable and what it refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedReference {
    /// The variable.
    pub name: String,
    /// The ProviderClass.
    pub class: String,
    /// The key.
    pub key: String,
}

impl AskedReference {
    /// The question for `reference`, which stands in the variable `name`.
    pub fn new(name: &str, reference: &Reference) -> Self {
        let (class, key) = (reference.class().as_str(), reference.key());
        Self { name: name.to_owned(), class: class.to_owned(), key: key.to_owned() }
    }
}

impl AskedValues {
    /// The line, with its line break.
    pub fn to_line(&self) -> Vec<u8> {
        line(self)
    }

    /// Reads a line; one of another version is not understood.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let asked: Self = serde_json::from_slice(line).map_err(|_| LineError)?;
        if asked.version == VERSION { Ok(asked) } else { Err(LineError) }
    }

    /// The version that is written here.
    pub const VERSION: u32 = VERSION;
}

/// The answer.
#[derive(Debug)]
pub enum Answer {
    /// A value for each reference that was asked for.
    Values(Vec<AnsweredValue>),
    /// Why there are none. The text is fixed and goes to the user.
    Refused {
        /// The text.
        error: String,
        /// Whether it may be otherwise in a moment.
        retry: bool,
    },
}

impl Answer {
    /// The line, with its line break, in memory that is wiped.
    pub fn to_line(&self) -> SecretBytes {
        let wire = match self {
            Self::Values(values) => Wire {
                version: VERSION,
                values: Some(
                    values
                        .iter()
                        .map(|value| WireValue {
                            name: value.name.clone(),
                            value: encode_base64url(value.value.expose()),
                        })
                        .collect(),
                ),
                error: None,
                retry: false,
            },
            Self::Refused { error, retry } => {
                Wire { version: VERSION, values: None, error: Some(error.clone()), retry: *retry }
            }
        };
        SecretBytes::from(line(&wire))
    }

    /// Reads a line: exactly one of values and error.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let mut wire: Wire = serde_json::from_slice(line).map_err(|_| LineError)?;
        match (wire.version, wire.values.take(), wire.error.take()) {
            (VERSION, Some(values), None) => {
                let values = values.iter().map(|value| {
                    let bytes = decode_base64url(&value.value).map_err(|_| LineError)?;
                    Ok(AnsweredValue { name: value.name.clone(), value: bytes.into() })
                });
                Ok(Self::Values(values.collect::<Result<_, _>>()?))
            }
            (VERSION, None, Some(error)) => Ok(Self::Refused { error, retry: wire.retry }),
            _ => Err(LineError),
        }
    }
}

/// The value of one variable.
pub struct AnsweredValue {
    /// The variable.
    pub name: String,
    /// Its value.
    pub value: SecretBytes,
}

impl fmt::Debug for AnsweredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnsweredValue({:?}, {} bytes)", self.name, self.value.len())
    }
}

/// A line that the other side cannot have meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of the agent's socket is not understood")]
pub struct LineError;

const VERSION: u32 = 1;

fn line(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(message).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[derive(Serialize, Deserialize)]
struct Wire {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    values: Option<Vec<WireValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    retry: bool,
}

#[derive(Serialize, Deserialize)]
struct WireValue {
    name: String,
    value: String,
}

/// The encoded value is as good as the value.
impl Drop for WireValue {
    fn drop(&mut self) {
        drop(SecretBytes::from(std::mem::take(&mut self.value).into_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_question_is_one_line_of_these_names() {
        let reference = Reference::parse("waybill{db/pass word}").unwrap().unwrap();
        let mut asked = AskedValues {
            version: AskedValues::VERSION,
            uid: "u".to_owned(),
            container: "main".to_owned(),
            attempt: None,
            references: vec![AskedReference::new("PASSWORD", &reference)],
        };
        let expected = concat!(
            r#"{"version":1,"uid":"u","container":"main","references":"#,
            r#"[{"name":"PASSWORD","class":"db","key":"pass word"}]}"#,
            "\n"
        );
        assert_eq!(asked.to_line(), expected.as_bytes());
        assert_eq!(AskedValues::parse(&asked.to_line()).unwrap(), asked);
        asked.attempt = Some(2);
        assert_eq!(AskedValues::parse(&asked.to_line()).unwrap(), asked);
        asked.version = 2;
        assert_eq!(AskedValues::parse(&asked.to_line()), Err(LineError));
    }

    #[test]
    fn an_answer_is_one_line_of_these_names() {
        let values =
            vec![AnsweredValue { name: "A".to_owned(), value: SecretBytes::copy_of(b"hunter2") }];
        let line = Answer::Values(values).to_line();
        assert_eq!(
            line.expose(),
            b"{\"version\":1,\"values\":[{\"name\":\"A\",\"value\":\"aHVudGVyMg\"}]}\n"
        );
        let refused = Answer::Refused { error: "no".to_owned(), retry: true }.to_line();
        assert_eq!(refused.expose(), b"{\"version\":1,\"error\":\"no\",\"retry\":true}\n");
    }

    #[test]
    fn an_answer_with_both_or_neither_is_not_understood() {
        let lines = [
            r#"{"version":1}"#,
            r#"{"version":1,"values":[],"error":"x"}"#,
            r#"{"version":2,"values":[]}"#,
            r#"{"version":1,"values":[{"name":"A","value":"*"}]}"#,
            "",
        ];
        for line in lines {
            assert!(Answer::parse(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn debug_output_never_shows_a_value() {
        let values =
            vec![AnsweredValue { name: "A".to_owned(), value: SecretBytes::copy_of(b"hunter2") }];
        assert_eq!(
            format!("{:?}", Answer::Values(values)),
            "Values([AnsweredValue(\"A\", 7 bytes)])"
        );
    }

    proptest! {
        #[test]
        fn values_of_any_bytes_arrive(name: String, bytes: Vec<u8>) {
            let values = vec![AnsweredValue { name: name.clone(), value: SecretBytes::copy_of(&bytes) }];
            let line = Answer::Values(values).to_line();
            let Ok(Answer::Values(values)) = Answer::parse(line.expose()) else { panic!("not understood") };
            prop_assert_eq!(&values[0].name, &name);
            prop_assert_eq!(values[0].value.expose(), &bytes[..]);
            prop_assert_eq!(line.expose().iter().filter(|byte| **byte == b'\n').count(), 1);
        }
    }
}
