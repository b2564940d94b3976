//! Through proxies: every kind, with a name and a password, and with certificates of the plugin at the far end.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use waybill_credential::ClientError;

use crate::{
    certificates::Authority,
    support::{Plugin, answer, serve},
};

/// What a proxy was asked for, in its order.
type Asked = Arc<Mutex<Vec<String>>>;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Starts a proxy that speaks as `scheme` says.
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn proxy(scheme: &'static str, tls: Option<ServerConfig>) -> (SocketAddr, Asked) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    let tls = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let (log, tls) = (Arc::clone(&log), tls.clone());
            tokio::spawn(async move {
                let mut stream: Box<dyn Stream> = match tls {
                    Some(tls) => Box::new(tls.accept(tcp).await.unwrap()),
                    None => Box::new(tcp),
                };
                let target = match scheme {
                    "socks5" => socks(&mut stream, &log).await,
                    _ => tunnel(&mut stream, &log).await,
                };
                let mut server = TcpStream::connect(target).await.unwrap();
                // Either end may close when it likes.
                let _ = copy_bidirectional(&mut stream, &mut server).await;
            });
        }
    });
    (address, asked)
}

/// `CONNECT`, as in RFC 9110.
async fn tunnel(stream: &mut Box<dyn Stream>, asked: &Asked) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let head = String::from_utf8(head).unwrap();
    let user = head.lines().find(|line| line.to_lowercase().starts_with("proxy-authorization: "));
    let target = head.split(' ').nth(1).unwrap().to_owned();
    let user = user.map(|line| line["proxy-authorization: ".len()..].to_owned());
    asked.lock().unwrap().push(format!("{target} {}", user.unwrap_or_default()));
    target
}

/// SOCKS 5 with a name and a password, as in RFC 1928 and RFC 1929, to IPv4 addresses.
async fn socks(stream: &mut Box<dyn Stream>, asked: &Asked) -> String {
    let text = async |length: usize, stream: &mut Box<dyn Stream>| {
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await.unwrap();
        bytes
    };
    assert_eq!(stream.read_u8().await.unwrap(), 5);
    let methods = stream.read_u8().await.unwrap();
    assert!(text(methods.into(), stream).await.contains(&2), "a password is offered");
    stream.write_all(&[5, 2]).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), 1);
    let length = stream.read_u8().await.unwrap();
    let name = text(length.into(), stream).await;
    let length = stream.read_u8().await.unwrap();
    let password = text(length.into(), stream).await;
    stream.write_all(&[1, 0]).await.unwrap();
    assert_eq!(text(4, stream).await, [5, 1, 0, 1], "connect to an IPv4 address");
    let ip = text(4, stream).await;
    let target =
        format!("{}.{}.{}.{}:{}", ip[0], ip[1], ip[2], ip[3], stream.read_u16().await.unwrap());
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    let [name, password] = [name, password].map(|it| String::from_utf8(it).unwrap());
    asked.lock().unwrap().push(format!("{target} {name}:{password}"));
    target
}

/// CRED-25, CRED-50: a plugin's certificate reaches a server that demands one, whatever stands between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_certificate_of_a_plugin_goes_through_every_kind_of_proxy_cred_25_50() {
    // "me:p@ss", percent-encoded where a URL demands it.
    for (scheme, user) in
        [("http", "Basic bWU6cEBzcw=="), ("https", "Basic bWU6cEBzcw=="), ("socks5", "me:p@ss")]
    {
        let authority = Authority::new();
        let plugin = Plugin::answering();
        let server = serve(Some(authority.server()), |_, _| answer(200)).await;
        let open = (scheme == "https").then(|| authority.open_server());
        let (address, asked) = proxy(scheme, open).await;
        plugin.answer(&authority.issue("jane"), None);
        let mut config = authority.config(&plugin, server);
        config.proxy_url = Some(format!("{scheme}://me:p%40ss@{address}").parse().unwrap());
        plugin.client_of(config).apiserver_version().await.unwrap();
        assert_eq!(*asked.lock().unwrap(), [format!("{server} {user}")], "{scheme}");
        assert_eq!(plugin.runs(), 1);
    }
}

/// CRED-50: a proxy that nobody can use is named before anything runs.
#[tokio::test]
async fn an_unknown_kind_of_proxy_is_an_error_cred_50() {
    let plugin = Plugin::answering();
    let mut config = plugin.config("https://127.0.0.1:1");
    config.proxy_url = Some("gopher://127.0.0.1:70".parse().unwrap());
    let taken = plugin.registry.take_plugin("u", &mut config, &plugin.options).unwrap();
    let error = waybill_credential::client_builder_with(config, taken).err().unwrap();
    assert!(matches!(&error, ClientError::Proxy { scheme } if scheme == "gopher"), "{error}");
    assert_eq!(plugin.runs(), 0);
}
