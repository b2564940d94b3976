//! What a driver answered, judged before anything of it is used. Pure.
//!
//! A response that is not what was asked for counts as a whole: no value of it is used (CSI-05).

use std::mem::take;

use waybill_core::{env::value::EnvValue, secret::SecretBytes};
use waybill_proto::csi::{EnvVarQuery, EnvVarResult};

use super::{
    error::{CsiError, shown},
    limits::Limits,
};

/// What came of one query.
#[derive(Debug)]
pub(super) enum Answer {
    Value(EnvValue),
    /// The driver says why there is no value.
    Refused(String),
}

/// Reads `results`, one for each of `queries` and in their order. All of them are wiped, whatever they are.
pub(super) fn read(
    driver: &str,
    queries: &[EnvVarQuery],
    results: Vec<EnvVarResult>,
    limits: &Limits,
) -> Result<Vec<Answer>, CsiError> {
    let results: Vec<_> = results.into_iter().map(Received::from).collect();
    let malformed = |why: String| CsiError::Malformed { driver: driver.to_owned(), why };
    if results.len() != queries.len() {
        let (found, wanted) = (results.len(), queries.len());
        return Err(malformed(format!("{found} results for {wanted} queries")));
    }
    check_sizes(&results, limits)?;
    let pairs = queries.iter().zip(results).enumerate();
    pairs
        .map(|(at, (query, result))| {
            result.judge(query).map_err(|why| malformed(format!("results[{at}]: {why}")))
        })
        .collect()
}

struct Received {
    name: String,
    value: SecretBytes,
    error: String,
}

impl From<EnvVarResult> for Received {
    fn from(mut result: EnvVarResult) -> Self {
        Self {
            name: take(&mut result.name),
            value: take(&mut result.value).into(),
            error: take(&mut result.error),
        }
    }
}

impl Received {
    fn judge(self, query: &EnvVarQuery) -> Result<Answer, &'static str> {
        if self.name != query.name {
            return Err("it has another name than the query");
        }
        if !self.error.is_empty() {
            // What it says is not passed on: it may be about the value.
            return match self.value.is_empty() {
                true => Ok(Answer::Refused(shown(&self.error))),
                false => Err("it has both a value and an error"),
            };
        }
        let bytes = self.value.expose();
        if std::str::from_utf8(bytes).is_err() {
            return Err("its value is not UTF-8");
        }
        let value = EnvValue::secret(bytes.to_vec()).map_err(|_| "its value contains NUL")?;
        Ok(Answer::Value(value))
    }
}

/// OP-44: the limit of the payload is for the sum of names and values.
fn check_sizes(results: &[Received], limits: &Limits) -> Result<(), CsiError> {
    let mut sum = 0_usize;
    for result in results {
        let bytes = result.value.len();
        if bytes > limits.value_bytes {
            let what = format!("the value of {:?}", shown(&result.name));
            return Err(CsiError::Oversize { what, bytes, limit: limits.value_bytes });
        }
        sum = sum.saturating_add(bytes).saturating_add(result.name.len());
    }
    if sum > limits.payload_bytes {
        let what = "the response of the CSI driver".to_owned();
        return Err(CsiError::Oversize { what, bytes: sum, limit: limits.payload_bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CANARY: &str = "hunter2";

    fn queries(names: &[&str]) -> Vec<EnvVarQuery> {
        let query = |name: &&str| EnvVarQuery { name: (*name).to_owned(), ..Default::default() };
        names.iter().map(query).collect()
    }

    fn result(name: &str, value: &[u8], error: &str) -> EnvVarResult {
        EnvVarResult { name: name.to_owned(), value: value.to_vec(), error: error.to_owned() }
    }

    fn limits(payload_bytes: usize, value_bytes: usize) -> Limits {
        Limits {
            rpc_timeout: Duration::ZERO,
            payload_bytes,
            value_bytes,
            in_flight: 1,
            in_flight_of_class: false,
        }
    }

    fn read_all(
        names: &[&str],
        results: Vec<EnvVarResult>,
        limits: &Limits,
    ) -> Result<Vec<Answer>, CsiError> {
        read("d", &queries(names), results, limits)
    }

    #[track_caller]
    fn check_malformed(names: &[&str], results: Vec<EnvVarResult>, why: &str) {
        let error = read_all(names, results, &limits(1000, 1000)).unwrap_err();
        assert_eq!(error.to_string(), format!("malformed response from CSI driver \"d\": {why}"));
        assert_eq!(error.error_type().as_str(), "malformed_response");
        assert!(!error.to_string().contains(CANARY) && !error.is_retriable());
    }

    /// CSI-05
    #[test]
    fn a_response_is_one_result_for_each_query_in_order_csi_05() {
        let one = || result("A", CANARY.as_bytes(), "");
        let two = || result("B", b"", "");
        let all = read_all(&["A", "B"], vec![one(), two()], &limits(1000, 1000)).unwrap();
        assert!(matches!(&all[0], Answer::Value(value) if value.is_secret() && value.len() == 7));
        assert!(matches!(&all[1], Answer::Value(value) if value.is_empty()));
        check_malformed(&["A", "B"], vec![one()], "1 results for 2 queries");
        check_malformed(&["A"], vec![one(), two()], "2 results for 1 queries");
        let other = "results[0]: it has another name than the query";
        check_malformed(&["A", "B"], vec![two(), one()], other);
        check_malformed(&["a"], vec![one()], other);
        let both = vec![result("A", CANARY.as_bytes(), "about hunter2")];
        check_malformed(&["A"], both, "results[0]: it has both a value and an error");
        let many = (0..10_000).map(|_| one()).collect();
        check_malformed(&["A"], many, "10000 results for 1 queries");
    }

    /// CSI-31
    #[test]
    fn values_are_text_without_nul_csi_31() {
        check_malformed(
            &["A"],
            vec![result("A", b"hunter2\xff", "")],
            "results[0]: its value is not UTF-8",
        );
        let nul = vec![result("B", b"x", ""), result("A", b"hunter2\0", "")];
        check_malformed(&["B", "A"], nul, "results[1]: its value contains NUL");
    }

    #[test]
    fn an_error_of_one_variable_is_its_own() {
        let results = vec![result("A", b"", "no\nkey"), result("B", b"v", "")];
        let all = read_all(&["A", "B"], results, &limits(1000, 1000)).unwrap();
        assert!(matches!(&all[0], Answer::Refused(text) if text == "no\\nkey"));
        assert!(matches!(all[1], Answer::Value(_)));
    }

    /// CSI-33, CSI-40
    #[test]
    fn one_byte_over_a_limit_is_refused_csi_33_csi_40() {
        let value = |bytes: usize| vec![result("A", &vec![b'x'; bytes], "")];
        assert!(read_all(&["A"], value(10), &limits(1000, 10)).is_ok());
        let error = read_all(&["A"], value(11), &limits(1000, 10)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the value of \"A\" has 11 bytes, and at most 10 are allowed"
        );
        assert_eq!(error.error_type().as_str(), "oversize");
        let pair = || vec![result("A", b"123456789", ""), result("B", b"123456789", "")];
        assert!(read_all(&["A", "B"], pair(), &limits(20, 10)).is_ok());
        let error = read_all(&["A", "B"], pair(), &limits(19, 10)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the response of the CSI driver has 20 bytes, and at most 19 are allowed"
        );
        assert!(!error.is_retriable() && !error.is_excusable());
    }
}
