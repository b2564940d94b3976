//! A whole driver: greetings for pods. The guide for authors explains it.
//!
//! `cargo run -p waybill-csi --example greeting -- /tmp/greeting/csi.sock`

use std::{env, error::Error, time::Duration};

use waybill_core::secret::SecretBytes;
use waybill_csi::{
    driver::{Answer, Call, Driver, FetchError, Hints, Query, Sharing},
    server::{Config, Server},
};

/// Knows how to say hello in a few languages.
pub(crate) struct Greeting;

impl Driver for Greeting {
    fn name(&self) -> &str {
        "greeting.example.com"
    }

    fn backend(&self) -> &'static str {
        "greeting"
    }

    fn hints(&self) -> Hints {
        Hints { rpc_timeout: Some(Duration::from_secs(1)), ..Hints::default() }
    }

    // The pod's name is in the answer, so that no other pod may have it.
    fn sharing(&self) -> Sharing {
        Sharing::Pod
    }

    async fn fetch(&self, call: &Call, queries: &[Query]) -> Result<Vec<Answer>, FetchError> {
        // What is wrong with the class is wrong for all keys.
        let mark = call.required("mark")?;
        Ok(queries.iter().map(|query| greet(query, &call.pod.name, mark)).collect())
    }
}

/// The greeting for one key: `english`, `german`, `latin`.
fn greet(query: &Query, pod: &str, mark: &str) -> Answer {
    let word = match query.key.as_str() {
        "english" => "hello",
        "german" => "hallo",
        "latin" => "salve",
        key => return Err(FetchError::not_found(format!("nobody speaks {key:?} here"))),
    };
    Ok(SecretBytes::from(format!("{word}, {pod}{mark}").into_bytes()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1);
    let socket = arguments.next().ok_or("usage: greeting SOCKET [REGISTRATION-DIR]")?;
    let mut config = Config::new(socket);
    config.registration_dir = arguments.next().map(Into::into);
    let mut server = Server::start(Greeting, config).await?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result?,
        reason = server.failed() => return Err(reason.into()),
    }
    server.stop().await;
    Ok(())
}
