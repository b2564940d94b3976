//! Why a registry did not give what it was asked for, in words that give nothing away.
//!
//! Addresses are left out: those of blobs may be signed, and so are as good as credentials.

use std::io;

use oci_client::errors::{DigestError, OciDistributionError as Failure};
use waybill_core::chain::Chain;

/// The longest text of a registry's own that we repeat.
const LONGEST: usize = 300;

pub(super) fn of(failure: Failure) -> String {
    match failure {
        Failure::UnauthorizedError { .. } => UNAUTHORIZED.into(),
        Failure::AuthenticationFailure(said) => {
            format!("it does not accept the credentials: {}", shortened(&said))
        }
        Failure::RegistryError { envelope, .. } => {
            let said: Vec<_> = envelope
                .errors
                .iter()
                .map(|error| format!("{:?} {}", error.code, error.message).trim().to_owned())
                .collect();
            shortened(&said.join("; "))
        }
        Failure::ServerError { code, message, .. } => {
            let said = shortened(&message);
            if said.is_empty() { format!("HTTP {code}") } else { format!("HTTP {code}: {said}") }
        }
        Failure::RequestError(error) => shortened(&Chain(&error.without_url()).to_string()),
        Failure::IoError(error) => of_stream(&error),
        other => shortened(&Chain(&other).to_string()),
    }
}

/// Whether all came, and is not what it ought to be.
pub(super) fn is_wrong_digest(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<DigestError>())
}

/// Of a connection that broke. The outermost text holds the address, what caused it does not.
pub(super) fn of_stream(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.source()) {
        Some(cause) => format!("the connection broke: {}", shortened(&Chain(cause).to_string())),
        None if error.get_ref().is_some() => "the connection broke".into(),
        None => format!("the connection broke: {error}"),
    }
}

const UNAUTHORIZED: &str =
    "it wants other credentials; perhaps the image is private, or there is no such image";

/// One line of somebody else's text.
fn shortened(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let plain = line.chars().filter(|c| !c.is_control());
    let mut short: String = plain.take(LONGEST).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_left_out_and_long_texts_cut() {
        let url = "https://x/?signature=hunter2".to_owned();
        let said = of(Failure::UnauthorizedError { url: url.clone() });
        assert!(!said.contains("hunter2"), "{said}");
        let message = format!("a\n\u{1b}[31m{}", "b".repeat(1000));
        let said = of(Failure::ServerError { code: 500, url, message });
        assert!(said.starts_with("HTTP 500: a [31mbbb") && said.ends_with('…'), "{said}");
        assert!(!said.contains("hunter2") && said.chars().count() < 320, "{said}");
    }
}
