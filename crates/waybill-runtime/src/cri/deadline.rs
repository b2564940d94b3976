//! The time that a client gives a call.
//!
//! tonic ends a call whose time is over as cancelled. gRPC has a code of its own for it, and clients tell one from the other: who cancelled
//! has lost interest, who ran out of time may ask again. tonic polls what is inside before it looks at its own clock, and ours is
//! started first, so the answer here is the one that is given.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::timeout;
use tonic::{
    Status,
    body::Body,
    codegen::http::{HeaderMap, Request, Response},
};
use tower::{Layer, Service};

/// Gives services deadlines.
#[derive(Clone)]
pub(super) struct Deadlines;

impl<S> Layer<S> for Deadlines {
    type Service = WithDeadline<S>;

    fn layer(&self, service: S) -> WithDeadline<S> {
        WithDeadline(service)
    }
}

/// A service whose calls end when their time is over.
#[derive(Clone)]
pub(super) struct WithDeadline<S>(S);

impl<S> Service<Request<Body>> for WithDeadline<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let limit = limit(request.headers());
        let call = self.0.call(request);
        match limit {
            None => Box::pin(call),
            Some(limit) => {
                // Its clock runs from here on.
                let call = timeout(limit, call);
                Box::pin(async move {
                    let over = |_| {
                        let reason = "the call did not end within the time that its client gave it";
                        Ok(Status::deadline_exceeded(reason).into_http())
                    };
                    call.await.unwrap_or_else(over)
                })
            }
        }
    }
}

/// How long a call may take: up to eight digits and a unit. `None`, if it may take as long as it does.
fn limit(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u32 = number.parse().ok().filter(|_| number.len() <= 8)?;
    match unit {
        "H" => Some(Duration::from_secs(3600 * u64::from(number))),
        "M" => Some(Duration::from_secs(60 * u64::from(number))),
        "S" => Some(Duration::from_secs(number.into())),
        "m" => Some(Duration::from_millis(number.into())),
        "u" => Some(Duration::from_micros(number.into())),
        "n" => Some(Duration::from_nanos(number.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future};

    use super::*;

    fn request(limit: &str) -> Request<Body> {
        Request::builder().header("grpc-timeout", limit).body(Body::empty()).unwrap()
    }

    #[test]
    fn limits_are_read_as_clients_write_them() {
        let check = |text: &str| limit(request(text).headers());
        assert_eq!(check("5S"), Some(Duration::from_secs(5)));
        assert_eq!(check("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(check("999986u"), Some(Duration::from_micros(999_986)));
        for bad in ["", "S", "5", "5x", "-5S", "999999999S"] {
            assert_eq!(check(bad), None, "{bad:?}");
        }
    }

    /// Clients were told that they had cancelled the call.
    #[tokio::test]
    async fn a_call_whose_time_is_over_exceeded_its_deadline() {
        let silent = tower::service_fn(|_: Request<Body>| {
            future::pending::<Result<Response<Body>, Infallible>>()
        });
        let answer = Deadlines.layer(silent).call(request("1m")).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "4");
    }
}
