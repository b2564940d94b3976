//! The server: an address of this machine alone, connections with limits, an orderly end.

use std::{
    convert::Infallible,
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::pin,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use waybill_stream::open_connections::{
    ACCEPT_PAUSE, MostConnections, OpenConnection, OpenConnections,
};

use super::{access::Access, feed::Feed, request::PageService};
use crate::TraceSource;

/// Where the page is if nobody says so. It is always the same, so that a link to a finding works for the next one who serves the page.
const PORT: u16 = 7434;

/// One browser has up to six; the rest is for its neighbours on this machine.
const CONNECTIONS: MostConnections = MostConnections { known: 96, strangers: 32 };

/// How long a browser may take for the headers of a request, and stay without one.
const HEADERS: Duration = Duration::from_secs(30);

/// How much of a request is read ahead; browsers send some 2 KB of headers.
const BUFFER: usize = 16 << 10;

/// How long answers may go on after the server was told to stop.
const GRACE: Duration = Duration::from_secs(2);

/// Where to serve: on this machine, and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAddress(SocketAddr);

/// What is no address for the page.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageAddressError {
    /// It is none at all.
    #[error("expected an address of this machine such as 127.0.0.1:7434, or a port")]
    Form,
    /// Others could reach it.
    #[error(
        "{0} can be reached from elsewhere, and the page has no TLS: serve it on 127.0.0.1, and reach it with `ssh -L 7434:127.0.0.1:7434 NODE`"
    )]
    NotLoopback(IpAddr),
}

impl Default for PageAddress {
    fn default() -> Self {
        Self((Ipv4Addr::LOCALHOST, PORT).into())
    }
}

impl fmt::Display for PageAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PageAddress {
    type Err = PageAddressError;

    /// `127.0.0.1:7434`, `[::1]:7434`, `localhost:7434`, or the address or the port alone.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.replacen("localhost", "127.0.0.1", 1);
        let address = if let Ok(port) = numbers.parse::<u16>() {
            (Ipv4Addr::LOCALHOST, port).into()
        } else if let Ok(address) = numbers.parse::<IpAddr>() {
            (address, PORT).into()
        } else {
            numbers.parse::<SocketAddr>().map_err(|_| PageAddressError::Form)?
        };
        if address.ip().is_loopback() {
            Ok(Self(address))
        } else {
            Err(PageAddressError::NotLoopback(address.ip()))
        }
    }
}

/// The page, served.
pub struct PageServer {
    listener: TcpListener,
    address: SocketAddr,
    service: Arc<PageService>,
}

impl PageServer {
    /// Takes the address. `clock` tells what time it is.
    pub async fn bind(
        address: PageAddress,
        source: Arc<dyn TraceSource>,
        clock: fn() -> Timestamp,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address.0).await?;
        let address = listener.local_addr()?;
        let service = PageService {
            source,
            feed: Feed::new(),
            access: Access::default(),
            cookie: format!("waybill-trace-{}", address.port()),
            clock,
            stop,
        };
        Ok(Self { listener, address, service: Arc::new(service) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A link that opens the page once, in one browser; earlier ones that nobody used work no longer. `query` is what it shows.
    pub fn new_link(&self, query: &str) -> io::Result<String> {
        let token = self.service.access.new_link().map_err(io::Error::other)?;
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        Ok(format!("http://{}/{query}#{token}", self.address))
    }

    /// Serves until it is told to stop. Whoever asks meanwhile gets an answer; streams of changes end.
    pub async fn serve(&self) {
        let stop = &self.service.stop;
        let open = OpenConnections::new(CONNECTIONS);
        let mut connections = JoinSet::new();
        let follow = self.service.feed.follow(self.service.source.as_ref());
        let accept = async {
            loop {
                while connections.try_join_next().is_some() {}
                match self.listener.accept().await {
                    Ok((stream, _)) => {
                        connections.spawn(serve(stream, open.open(), Arc::clone(&self.service)));
                    }
                    Err(error) => {
                        // Out of file descriptors, most likely: give others time to close some.
                        tracing::warn!(%error, "a connection could not be accepted");
                        open.make_room();
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = follow => {}
            () = accept => {}
        }
        let drained = async { while connections.join_next().await.is_some() {} };
        // Whatever is left then ends with the set.
        let _ = timeout(GRACE, drained).await;
    }
}

async fn serve(stream: TcpStream, open: OpenConnection, service: Arc<PageService>) {
    // Without it answers are only slower.
    let _ = stream.set_nodelay(true);
    let stop = service.stop.clone();
    let open = Arc::new(open);
    let counted = Arc::clone(&open);
    let respond = service_fn(move |request| {
        let (service, open) = (Arc::clone(&service), Arc::clone(&counted));
        async move {
            let answered = service.answer(request).await;
            if answered.is_known {
                open.note_known();
            }
            Ok::<_, Infallible>(answered.response)
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), respond);
    let mut serving = pin!(serving);
    tokio::select! {
        served = serving.as_mut() => {
            if let Err(error) = served {
                tracing::debug!(%error, "a connection broke off");
            }
        }
        () = open.pushed_out() => {}
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = timeout(GRACE, serving).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_on_this_machine_alone() {
        let parse = |text: &str| text.parse::<PageAddress>().map(|address| address.to_string());
        for (text, address) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("127.0.0.1", "127.0.0.1:7434"),
            ("[::1]:80", "[::1]:80"),
            ("::1", "[::1]:7434"),
            ("localhost:80", "127.0.0.1:80"),
            ("localhost", "127.0.0.1:7434"),
            ("0", "127.0.0.1:0"),
            ("9000", "127.0.0.1:9000"),
        ] {
            assert_eq!(parse(text), Ok(address.to_owned()), "{text}");
        }
        for text in ["0.0.0.0:7434", "10.0.0.1", "[::]:7434", "192.168.1.2:80"] {
            assert!(matches!(parse(text), Err(PageAddressError::NotLoopback(_))), "{text}");
        }
        for text in ["", "evil.example:80", "99999", "127.0.0.1:x", "localhost.evil.example:80"] {
            assert_eq!(parse(text), Err(PageAddressError::Form), "{text}");
        }
    }
}
