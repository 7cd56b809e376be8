//! What the HTTP face counts of itself, as vLLM's `FastAPI` instrumentation
//! does: by handler, method and class of status, in order of appearance.

use crate::sim::engine::Histogram;

const FINE: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
    7.5, 10.0, 30.0, 60.0,
];
const COARSE: &[f64] = &[0.1, 0.5, 1.0];

/// One finished exchange.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Exchange {
    /// Route pattern, or `none` for an unknown path.
    pub(in crate::sim) handler: &'static str,
    /// Method, upper case.
    pub(in crate::sim) method: &'static str,
    /// Status.
    pub(in crate::sim) status: u16,
    /// `content-length` of the request, 0 where absent.
    pub(in crate::sim) request_bytes: u64,
    /// `content-length` of the response, 0 where absent.
    pub(in crate::sim) response_bytes: u64,
    /// From head to end, in seconds.
    pub(in crate::sim) seconds: f64,
    /// Wall time of its end, in seconds since 1970.
    pub(in crate::sim) ended: f64,
}

/// A series and when it first appeared.
#[derive(Clone, Debug)]
pub(super) struct Entry<K, V> {
    pub(super) key: K,
    pub(super) value: V,
    pub(super) created: f64,
}

/// Count and sum of a summary.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub(super) count: u64,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
}

/// All exchanges so far. Probes of health and metrics are left out, as the
/// real server leaves them out.
#[derive(Clone, Debug)]
pub(in crate::sim) struct HttpAccount {
    /// By handler, method, class of status (`2xx`).
    pub(super) requests: Vec<Entry<(&'static str, &'static str, u16), u64>>,
    /// By handler.
    pub(super) sizes: Vec<Entry<&'static str, Sizes>>,
    /// All together.
    pub(super) fine: Histogram,
    /// By handler and method.
    pub(super) coarse: Vec<Entry<(&'static str, &'static str), Histogram>>,
}

/// Handlers that are not counted.
const SILENT: [&str; 6] = [
    "/metrics",
    "/health",
    "/load",
    "/ping",
    "/version",
    "/server_info",
];

impl Default for HttpAccount {
    fn default() -> Self {
        Self {
            requests: Vec::new(),
            sizes: Vec::new(),
            fine: Histogram::new(FINE),
            coarse: Vec::new(),
        }
    }
}

impl HttpAccount {
    /// Counts an exchange.
    pub(in crate::sim) fn record(&mut self, exchange: Exchange) {
        if SILENT.contains(&exchange.handler) {
            return;
        }
        let (handler, method, created) = (exchange.handler, exchange.method, exchange.ended);
        let class = exchange.status / 100;
        *entry(&mut self.requests, (handler, method, class), created, || 0) += 1;
        let sizes = entry(&mut self.sizes, handler, created, Sizes::default);
        sizes.count += 1;
        sizes.request_bytes += exchange.request_bytes;
        sizes.response_bytes += exchange.response_bytes;
        self.fine.observe(exchange.seconds);
        entry(&mut self.coarse, (handler, method), created, || {
            Histogram::new(COARSE)
        })
        .observe(exchange.seconds);
    }
}

fn entry<K: PartialEq, V>(
    entries: &mut Vec<Entry<K, V>>,
    key: K,
    created: f64,
    fresh: impl FnOnce() -> V,
) -> &mut V {
    let at = entries.iter().position(|entry| entry.key == key);
    let at = at.unwrap_or_else(|| {
        let value = fresh();
        entries.push(Entry {
            key,
            value,
            created,
        });
        entries.len() - 1
    });
    &mut entries[at].value
}
