//! Opening connections to the service: addresses, TCP, TLS, an explicit proxy.
//! It refuses to know what is sent, and never looks at the environment: a proxy
//! is used only where one is asked for.
#![allow(clippy::disallowed_methods, reason = "edge: opens sockets")]

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::clock::RunClock;
use super::socket::{StampCell, StampedRead, StampedTcp};
use super::stamping::KernelStamping;
use super::target::Target;
use crate::measure::LiveHistogram;

/// Longest answer of a proxy to `CONNECT`, in bytes.
const PROXY_HEAD_BYTES_MAX: usize = 8 << 10;

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
    /// A proxy that is not plain HTTP.
    #[error("the proxy must be an `http` URL")]
    ProxyScheme,
}

/// Opens TCP connections, with TLS where the URL asks for it.
pub struct ServiceConnector {
    addresses: Vec<SocketAddr>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Request of a tunnel through the proxy whose addresses are above.
    tunnel: Option<String>,
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
        proxy: Option<&Target>,
        clock: RunClock,
        own_lag: Arc<LiveHistogram>,
    ) -> Result<Self, ConnectorError> {
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
            Some((tls_connector(), server_name(&target.host)?))
        } else {
            None
        };
        Ok(Self {
            addresses,
            tls,
            tunnel: proxy.map(|proxy| tunnel_request(target, proxy)),
            clock,
            // TLS hides the socket, so its stamps are taken at the read.
            stamping: if target.tls {
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

fn tls_connector() -> TlsConnector {
    let roots = rustls::RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
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

impl Connector for ServiceConnector {
    type Io = ServiceIo;

    async fn connect(&self) -> io::Result<Wire<ServiceIo>> {
        let mut stream = TcpStream::connect(self.addresses.as_slice()).await?;
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
