//! Opening connections to the service: addresses, TCP, TLS, an explicit proxy.
//! It refuses to know what is sent, and never looks at the environment: a proxy
//! is used only where one is asked for.
#![allow(clippy::disallowed_methods, reason = "edge: opens sockets")]

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::clock::RunClock;
use super::socket::{StampCell, StampedRead, StampedTcp};
use super::stamping::KernelStamping;
use super::target::Target;
use super::wire::HttpVersion;
use crate::measure::LiveHistogram;

/// Longest answer of a proxy to `CONNECT`, in bytes.
const PROXY_HEAD_BYTES_MAX: usize = 8 << 10;

/// Last bytes of the loopback addresses that connections come from when the
/// ports of the first one are used up.
const LOOPBACK_SOURCES: std::ops::RangeInclusive<u8> = 2..=9;

/// Where control requests to a loopback service come from in that case: an
/// address whose ports the load leaves alone.
pub(super) const CONTROL_SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 10);

/// HTTP/2 in the TLS handshake (RFC 9113, 3.3).
const ALPN_HTTP2: &[u8] = b"h2";

/// An open transport and the cell in which it tells its stamps.
#[derive(Debug)]
pub struct Wire<Io> {
    /// Bytes in and out.
    pub io: Io,
    /// Stamps of its reads.
    pub cell: Arc<StampCell>,
}

/// Opens transports to one service. TCP in use, a pipe in tests.
pub trait Connector: Send + Sync + 'static {
    /// The transport.
    type Io: Read + Write + Unpin + Send + 'static;

    /// Opens one; the caller bounds the time.
    fn connect(&self) -> impl Future<Output = io::Result<Wire<Self::Io>>> + Send;
}

/// Why the service cannot be addressed at all.
#[derive(Debug, thiserror::Error)]
pub enum ConnectorError {
    /// Its name has no address.
    #[error("cannot resolve `{host}`: {source}")]
    Resolve {
        /// Host name.
        host: String,
        /// The resolver's words.
        source: io::Error,
    },
    /// It cannot be a server's name in a certificate.
    #[error("`{host}` is not a name a certificate can be checked for")]
    ServerName {
        /// Host name.
        host: String,
    },
    /// Further root certificates that are none.
    #[error("the root certificates cannot be used: {reason}")]
    Roots {
        /// What is wrong with them.
        reason: String,
    },
    /// A proxy that is not plain HTTP.
    #[error("the proxy must be an `http` URL")]
    ProxyScheme,
}

/// How connections are opened, besides where to.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Which HTTP is spoken.
    pub version: HttpVersion,
    /// HTTP proxy to tunnel through.
    pub proxy: Option<Target>,
    /// Root certificates trusted besides the public ones, PEM.
    pub roots_pem: Option<Bytes>,
}

/// Opens TCP connections, with TLS where the URL asks for it.
pub struct ServiceConnector {
    addresses: Vec<SocketAddr>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Request of a tunnel through the proxy whose addresses are above.
    tunnel: Option<String>,
    version: HttpVersion,
    clock: RunClock,
    /// Keeps the kernel's receive times on; `None` where there are none.
    stamping: Option<KernelStamping>,
    own_lag: Arc<LiveHistogram>,
}

impl ServiceConnector {
    /// Resolves the service (or the proxy) once, before any clock that counts
    /// is running.
    pub async fn resolve(
        target: &Target,
        options: &ConnectOptions,
        clock: RunClock,
        own_lag: Arc<LiveHistogram>,
    ) -> Result<Self, ConnectorError> {
        let proxy = options.proxy.as_ref();
        if proxy.is_some_and(|proxy| proxy.tls) {
            return Err(ConnectorError::ProxyScheme);
        }
        let peer = proxy.unwrap_or(target);
        let addresses: Vec<SocketAddr> = tokio::net::lookup_host((peer.host.as_str(), peer.port))
            .await
            .map_err(|source| ConnectorError::Resolve {
                host: peer.host.clone(),
                source,
            })?
            .collect();
        let tls = if target.tls {
            Some((tls_connector(options)?, server_name(&target.host)?))
        } else {
            None
        };
        Ok(Self {
            addresses,
            tls,
            tunnel: proxy.map(|proxy| tunnel_request(target, proxy)),
            version: options.version,
            clock,
            // TLS hides the socket, and HTTP/2 collects frames of several reads
            // before it hands them out: stamps are taken at the read.
            stamping: if target.tls || options.version == HttpVersion::Http2 {
                None
            } else {
                KernelStamping::switch_on().await
            },
            own_lag,
        })
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, ConnectorError> {
    ServerName::try_from(host.to_owned()).map_err(|_| ConnectorError::ServerName {
        host: host.to_owned(),
    })
}

fn tls_connector(options: &ConnectOptions) -> Result<TlsConnector, ConnectorError> {
    let mut roots = rustls::RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    if let Some(pem) = &options.roots_pem {
        add_roots(&mut roots, pem)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    if options.version == HttpVersion::Http2 {
        config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
    }
    Ok(TlsConnector::from(Arc::new(config)))
}

fn add_roots(roots: &mut rustls::RootCertStore, pem: &[u8]) -> Result<(), ConnectorError> {
    let wrong = |reason: String| ConnectorError::Roots { reason };
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| wrong(error.to_string()))?;
    }
    if roots.len() == before {
        return Err(wrong("no PEM certificate in them".to_owned()));
    }
    Ok(())
}

fn tunnel_request(target: &Target, proxy: &Target) -> String {
    let host = if target.host.contains(':') {
        format!("[{}]:{}", target.host, target.port)
    } else {
        format!("{}:{}", target.host, target.port)
    };
    let authorization = proxy
        .basic_authorization()
        .map(|value| format!("Proxy-Authorization: {value}\r\n"))
        .unwrap_or_default();
    format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n")
}

/// Asks the proxy for a tunnel and reads its answer, byte by byte so that
/// nothing behind it is lost.
async fn open_tunnel(stream: &mut TcpStream, request: &str) -> io::Result<()> {
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= PROXY_HEAD_BYTES_MAX {
            return Err(io::Error::other("the proxy's answer is too long"));
        }
        head.push(stream.read_u8().await?);
    }
    let granted = head.starts_with(b"HTTP/1.") && head.get(8..10) == Some(b" 2");
    if !granted {
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or(&[]);
        let line = String::from_utf8_lossy(line).into_owned();
        return Err(io::Error::other(format!("the proxy answered `{line}`")));
    }
    Ok(())
}

/// Connects to the first address that answers. A loopback service is tried from
/// further source addresses once the ports of the usual one (some 28,000 on
/// Linux) are used up.
async fn dial(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let refused = match TcpStream::connect(addresses).await {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => error,
        other => return other,
    };
    let loopback = addresses
        .iter()
        .find(|address| address.is_ipv4() && address.ip().is_loopback());
    let Some(peer) = loopback else {
        return Err(refused);
    };
    for source in LOOPBACK_SOURCES.map(|last| Ipv4Addr::new(127, 0, 0, last)) {
        match dial_from(source, *peer).await {
            Err(error) if is_used_up(&error) => {}
            other => return other,
        }
    }
    Err(refused)
}

async fn dial_from(source: Ipv4Addr, peer: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    socket.connect(peer).await
}

/// Whether no port of the source address was left.
pub(super) fn is_used_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse
    )
}

impl Connector for ServiceConnector {
    type Io = ServiceIo;

    async fn connect(&self) -> io::Result<Wire<ServiceIo>> {
        let mut stream = dial(&self.addresses).await?;
        stream.set_nodelay(true)?;
        if let Some(request) = &self.tunnel {
            open_tunnel(&mut stream, request).await?;
        }
        let Some((connector, name)) = &self.tls else {
            let own_lag = self.stamping.as_ref().map(|_| Arc::clone(&self.own_lag));
            let io = StampedTcp::new(stream, self.clock.clone(), own_lag);
            return Ok(Wire {
                cell: io.cell(),
                io: ServiceIo::Plain(io),
            });
        };
        let stream = connector.connect(name.clone(), stream).await?;
        let agreed = stream.get_ref().1.alpn_protocol();
        if self.version == HttpVersion::Http2 && agreed != Some(ALPN_HTTP2) {
            return Err(io::Error::other("the server does not offer HTTP/2"));
        }
        let io = StampedRead::new(stream, self.clock.clone());
        Ok(Wire {
            cell: io.cell(),
            io: ServiceIo::Tls(Box::new(io)),
        })
    }
}

/// A connection to a service.
#[derive(Debug)]
pub enum ServiceIo {
    /// Plain TCP, stamped by the kernel.
    Plain(StampedTcp),
    /// TLS, stamped when the plain text is read.
    Tls(Box<StampedRead<TlsStream<TcpStream>>>),
}

impl Read for ServiceIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, cursor),
            Self::Tls(io) => Pin::new(io).poll_read(cx, cursor),
        }
    }
}

impl Write for ServiceIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, bytes),
            Self::Tls(io) => Pin::new(io).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, slices),
            Self::Tls(io) => Pin::new(io).poll_write_vectored(cx, slices),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "edge: loopback sockets")]

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_loopback_service_can_be_reached_from_further_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = listener.local_addr().unwrap();
        for last in LOOPBACK_SOURCES {
            let source = Ipv4Addr::new(127, 0, 0, last);
            let Ok(stream) = dial_from(source, peer).await else {
                eprintln!("skipped: this platform has one loopback address");
                return;
            };
            let (_, seen) = listener.accept().await.unwrap();
            assert_eq!(seen.ip(), source);
            drop(stream);
        }
    }

    #[tokio::test]
    async fn a_refusal_is_no_reason_to_try_from_elsewhere() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = listener.local_addr().unwrap();
        drop(listener);
        let error = dial(&[peer]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(!is_used_up(&error));
    }
}
