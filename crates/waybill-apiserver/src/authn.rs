//! Who makes a request.

mod cache;
pub(crate) mod certificate;
mod digest;
pub(crate) mod front_proxy;
pub(crate) mod jwt;
pub(crate) mod service_account;
pub(crate) mod token_file;
pub(crate) mod token_request;

use jiff::Timestamp;

/// Key of the extra that names a credential without being one.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// A list as Go's `%q` prints it.
fn go_list(items: &[String]) -> String {
    let quoted: Vec<_> = items.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

/// A time as `metav1.Time` has it: in UTC, to the second.
fn rfc3339(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
