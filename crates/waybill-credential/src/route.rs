//! The way to a server: straight, or through the proxy of a configuration.

use std::task::{Context, Poll};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::future::BoxFuture;
use http::{HeaderValue, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{
        HttpConnector,
        proxy::{SocksV5, Tunnel},
    },
    rt::TokioIo,
};
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use crate::ClientError;

/// Where SOCKS proxies listen if nothing else is said.
const SOCKS_PORT: u16 = 1080;

/// Makes connections to servers, on which nothing has been said yet.
#[derive(Clone)]
pub struct Route(Way);

#[derive(Clone)]
enum Way {
    Straight(HttpConnector),
    /// Through a proxy that is told of the server by `CONNECT`.
    Tunnel(Box<Tunnel<HttpsConnector<HttpConnector>>>),
    Socks(SocksV5<HttpConnector>),
}

impl Route {
    /// Through `proxy`, if there is one. `tls` is for proxies that speak TLS themselves; as in client-go it is that
    /// for the server.
    pub(crate) fn new(
        proxy: Option<&Uri>,
        tls: &ClientConfig,
        tcp: HttpConnector,
    ) -> Result<Self, ClientError> {
        let Some(proxy) = proxy else { return Ok(Self(Way::Straight(tcp))) };
        let unusable =
            || ClientError::Proxy { scheme: proxy.scheme_str().unwrap_or("").to_owned() };
        match proxy.scheme_str() {
            Some("http" | "https") => {
                let https = HttpsConnectorBuilder::new()
                    .with_tls_config(tls.clone())
                    .https_or_http()
                    .enable_http1()
                    .wrap_connector(tcp);
                let mut tunnel = Tunnel::new(proxy.clone(), https);
                if let Some(user) = user(proxy) {
                    let basic = format!("Basic {}", STANDARD.encode(user));
                    let basic = HeaderValue::try_from(basic).map_err(|_| unusable())?;
                    tunnel = tunnel.with_auth(basic);
                }
                Ok(Self(Way::Tunnel(Box::new(tunnel))))
            }
            Some("socks5" | "socks5h") => {
                let mut socks = SocksV5::new(with_port(proxy).ok_or_else(unusable)?, tcp);
                if let Some(user) = user(proxy) {
                    let user = String::from_utf8(user).map_err(|_| unusable())?;
                    let (name, password) = user.split_once(':').unwrap_or((&user, ""));
                    socks = socks.with_auth(name.to_owned(), password.to_owned());
                }
                Ok(Self(Way::Socks(socks)))
            }
            _ => Err(unusable()),
        }
    }
}

/// Name and password for the proxy, which stand before an `@`.
fn user(proxy: &Uri) -> Option<Vec<u8>> {
    let (user, _) = proxy.authority()?.as_str().rsplit_once('@')?;
    Some(percent_decode_str(user).collect())
}

fn with_port(proxy: &Uri) -> Option<Uri> {
    if proxy.port().is_some() {
        return Some(proxy.clone());
    }
    let authority = format!("{}:{SOCKS_PORT}", proxy.host()?);
    Uri::builder().scheme("socks5").authority(authority).path_and_query("/").build().ok()
}

impl Service<Uri> for Route {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.0 {
            Way::Straight(tcp) => tcp.poll_ready(cx).map_err(Into::into),
            Way::Tunnel(tunnel) => tunnel.poll_ready(cx).map_err(Into::into),
            Way::Socks(socks) => socks.poll_ready(cx).map_err(Into::into),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match &mut self.0 {
            Way::Straight(tcp) => {
                let connecting = tcp.call(server);
                Box::pin(async { Ok(MaybeHttpsStream::Http(connecting.await?)) })
            }
            Way::Tunnel(tunnel) => {
                let connecting = tunnel.call(server);
                Box::pin(async { Ok(connecting.await?) })
            }
            Way::Socks(socks) => {
                let connecting = socks.call(server);
                Box::pin(async { Ok(MaybeHttpsStream::Http(connecting.await?)) })
            }
        }
    }
}
