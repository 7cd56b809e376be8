//! Writes the page: families in order, each with its help, type and series,
//! numbers as `prometheus_client` writes them.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::cache_config::{CONFIG_0_24, CONFIG_0_32};
use super::catalogue::{CATALOGUE, Family, HttpFamily, Listed, ProcessValue};
use super::http_account::HttpAccount;
use super::number::number;
use crate::sim::config::Release;
use crate::sim::engine::{Account, Gauges, Histogram};

/// What the cache's configuration says.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Facts {
    /// Tokens of a block.
    pub(in crate::sim) block_tokens: u64,
    /// Blocks of one rank's pool, the unusable one included.
    pub(in crate::sim) pool_blocks: u32,
    /// Longest prompt and output, in tokens.
    pub(in crate::sim) max_model_len: u64,
    /// Whether prefixes are cached.
    pub(in crate::sim) prefix_caching: bool,
    /// Retention interval, 0 for none.
    pub(in crate::sim) retention_interval: u64,
}

/// Everything on a page.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Page {
    pub(in crate::sim) release: Release,
    pub(in crate::sim) model: String,
    /// A second model without traffic of ours.
    pub(in crate::sim) second_model: Option<String>,
    /// Ranks in order; `None` hides one.
    pub(in crate::sim) ranks: Vec<Option<(Account, Gauges)>>,
    pub(in crate::sim) http: HttpAccount,
    /// Requests refused for a full queue.
    pub(in crate::sim) rejected: u64,
    pub(in crate::sim) facts: Facts,
    /// When the counters began, in seconds since 1970.
    pub(in crate::sim) created: f64,
    /// Old names beside the present ones.
    pub(in crate::sim) old_names: bool,
}

/// Prometheus' kinds, in the order of the multi-process page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Gauge,
    Summary,
    Histogram,
    Counter,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Summary => "summary",
            Self::Histogram => "histogram",
            Self::Counter => "counter",
        }
    }
}

fn kind(family: &Family) -> Kind {
    match family {
        Family::Counter(..) | Family::Server(..) | Family::Process("counter", _) => Kind::Counter,
        Family::Gauge(..) | Family::CacheConfig | Family::Process(..) => Kind::Gauge,
        Family::Histogram(_) => Kind::Histogram,
        Family::Http(family) => match family {
            HttpFamily::Requests => Kind::Counter,
            HttpFamily::RequestSize | HttpFamily::ResponseSize => Kind::Summary,
            HttpFamily::Fine | HttpFamily::Coarse => Kind::Histogram,
        },
    }
}

/// The page as text.
pub(in crate::sim) fn render(page: &Page) -> String {
    let several = page.ranks.len() > 1;
    let mut families: Vec<&Listed> = CATALOGUE
        .iter()
        .filter(|listed| !(listed.recent && page.release == Release::V0_24))
        .filter(|listed| !(several && matches!(listed.family, Family::Process(..))))
        .collect();
    if several {
        families.sort_by_key(|listed| kind(&listed.family));
    }
    let mut writer = Writer {
        text: String::with_capacity(64 << 10),
        page,
        several,
    };
    for listed in families {
        writer.family(listed);
    }
    writer.text
}

struct Writer<'a> {
    text: String,
    page: &'a Page,
    several: bool,
}

impl Writer<'_> {
    fn family(&mut self, listed: &Listed) {
        let kind = kind(&listed.family);
        let (name, help) = (listed.name, listed.help);
        self.head(name, help, kind.word());
        let created = self.series(name, &listed.family);
        let old = match name {
            "vllm:prefix_cache_queries_total" => "vllm:gpu_prefix_cache_queries_total",
            "vllm:prefix_cache_hits_total" => "vllm:gpu_prefix_cache_hits_total",
            _ => "",
        };
        let has_created = !matches!(listed.family, Family::Process(..)) && kind != Kind::Gauge;
        if !self.several && has_created {
            let base = match kind {
                Kind::Counter => name.strip_suffix("_total").unwrap_or(name),
                _ => name,
            };
            let name = format!("{base}_created");
            self.head(&name, help, "gauge");
            for (labels, at) in created {
                self.line(&name, &labels, at);
            }
        }
        if self.page.old_names && !old.is_empty() {
            self.head(old, &format!("DEPRECATED: {help}"), kind.word());
            self.series(old, &listed.family);
        }
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}")
            .expect("a string takes any text");
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        writeln!(self.text, "{name}{labels} {}", number(value)).expect("a string takes any text");
    }

    /// Writes a family's series, and returns the labels of each with its
    /// birth.
    fn series(&mut self, name: &str, family: &Family) -> Vec<(String, f64)> {
        let page = self.page;
        let mut born = Vec::new();
        match family {
            Family::Counter(label, values) => {
                for &(value, read) in *values {
                    for (rank, model, account, _) in ranks(page) {
                        let labels = rank_labels(rank, model, &[(*label, value)]);
                        self.line(name, &labels, read(&account) as f64);
                        born.push((labels, page.created));
                    }
                }
            }
            Family::Gauge(label, values) => {
                for &(value, read) in *values {
                    for (rank, model, _, gauges) in ranks(page) {
                        let labels = rank_labels(rank, model, &[(*label, value)]);
                        self.line(name, &labels, read(gauges));
                    }
                }
            }
            Family::Histogram(read) => {
                for (rank, model, account, _) in ranks(page) {
                    let labels = |le: &str| rank_labels(rank, model, &[("le", le)]);
                    self.histogram(name, read(&account), labels);
                    born.push((rank_labels(rank, model, &[]), page.created));
                }
            }
            Family::Server(label, values) => {
                for (at, value) in values.iter().enumerate() {
                    let labels = labels(&[("model_name", &page.model), (label, value)]);
                    let count = if at == 0 { page.rejected } else { 0 };
                    self.line(name, &labels, count as f64);
                    born.push((labels, page.created));
                }
            }
            Family::CacheConfig => self.cache_config(name),
            Family::Process(_, values) => {
                for &(labels, value) in *values {
                    let value = match value {
                        ProcessValue::Fixed(value) => value,
                        ProcessValue::Start => page.created,
                    };
                    self.line(name, labels, value);
                }
            }
            Family::Http(family) => self.http_series(name, *family, &mut born),
        }
        born
    }

    fn http_series(&mut self, name: &str, family: HttpFamily, born: &mut Vec<(String, f64)>) {
        let http = &self.page.http;
        match family {
            HttpFamily::Requests => {
                for entry in &http.requests {
                    let (handler, method, class) = entry.key;
                    let status = format!("{class}xx");
                    let labels = labels(&[
                        ("handler", handler),
                        ("method", method),
                        ("status", &status),
                    ]);
                    self.line(name, &labels, entry.value as f64);
                    born.push((labels, entry.created));
                }
            }
            HttpFamily::RequestSize | HttpFamily::ResponseSize => {
                let requests = matches!(family, HttpFamily::RequestSize);
                for entry in &http.sizes {
                    let labels = labels(&[("handler", entry.key)]);
                    let sizes = entry.value;
                    let bytes = if requests {
                        sizes.request_bytes
                    } else {
                        sizes.response_bytes
                    };
                    self.line(&format!("{name}_count"), &labels, sizes.count as f64);
                    self.line(&format!("{name}_sum"), &labels, bytes as f64);
                    born.push((labels, entry.created));
                }
            }
            HttpFamily::Fine => {
                self.histogram(name, &http.fine, |le| labels(&[("le", le)]));
                born.push((String::new(), self.page.created));
            }
            HttpFamily::Coarse => {
                for entry in &http.coarse {
                    let (handler, method) = entry.key;
                    let labels_of =
                        |le: &str| labels(&[("handler", handler), ("le", le), ("method", method)]);
                    self.histogram(name, &entry.value, labels_of);
                    born.push((labels_of(""), entry.created));
                }
            }
        }
    }

    /// Buckets, count and sum; the multi-process form has the sum first.
    /// `labels` of no bound gives those of count and sum.
    fn histogram(&mut self, name: &str, values: &Histogram, labels: impl Fn(&str) -> String) {
        let plain = labels("");
        let sum = |writer: &mut Self| writer.line(&format!("{name}_sum"), &plain, values.sum());
        if self.several {
            sum(self);
        }
        let bucket = format!("{name}_bucket");
        for (bound, count) in values.buckets() {
            self.line(&bucket, &labels(&number(bound)), count as f64);
        }
        let count = values.count() as f64;
        self.line(&bucket, &labels("+Inf"), count);
        self.line(&format!("{name}_count"), &plain, count);
        if !self.several {
            sum(self);
        }
    }

    fn cache_config(&mut self, name: &str) {
        let facts = self.page.facts;
        let usable = u64::from(facts.pool_blocks) * facts.block_tokens;
        let values = [
            ("block_size", facts.block_tokens.to_string()),
            (
                "effective_attention_block_size",
                facts.block_tokens.to_string(),
            ),
            ("enable_prefix_caching", python_bool(facts.prefix_caching)),
            (
                "kv_cache_max_concurrency",
                number(usable as f64 / facts.max_model_len as f64),
            ),
            ("kv_cache_size_tokens", usable.to_string()),
            ("num_gpu_blocks", facts.pool_blocks.to_string()),
            (
                "prefix_cache_retention_interval",
                facts.retention_interval.to_string(),
            ),
        ];
        let defaults = match self.page.release {
            Release::V0_24 => CONFIG_0_24,
            Release::V0_32 => CONFIG_0_32,
        };
        for rank in 0..self.page.ranks.len() {
            if self.page.ranks[rank].is_none() {
                continue;
            }
            let rank = rank.to_string();
            let pairs: Vec<(&str, &str)> = defaults
                .iter()
                .map(|&(label, default)| {
                    let known = values.iter().find(|(name, _)| *name == label);
                    let value = match (label, known) {
                        ("engine", _) => rank.as_str(),
                        (_, Some((_, value))) => value,
                        (_, None) => default,
                    };
                    (label, value)
                })
                .collect();
            self.line(name, &labels(&pairs), 1.0);
        }
    }
}

/// Ranks that show, with the model each series speaks of.
fn ranks(page: &Page) -> Vec<(usize, &str, Cow<'_, Account>, Gauges)> {
    let mut all = Vec::new();
    for (rank, shown) in page.ranks.iter().enumerate() {
        if let Some((account, gauges)) = shown {
            all.push((rank, page.model.as_str(), Cow::Borrowed(account), *gauges));
        }
    }
    if let Some(second) = &page.second_model {
        let account = Account {
            queries: 1_000,
            hits: 500,
            prompt_tokens: 1_000,
            prompt_local: 500,
            ..Account::default()
        };
        let account = Cow::Owned(account);
        all.push((0, second.as_str(), account, Gauges::default()));
    }
    all
}

/// `{engine=…,model_name=…}` with more labels, in alphabetical order.
fn rank_labels(rank: usize, model: &str, more: &[(&str, &str)]) -> String {
    let rank = rank.to_string();
    let mut pairs = vec![("engine", rank.as_str()), ("model_name", model)];
    pairs.extend_from_slice(more);
    pairs.retain(|(label, _)| !label.is_empty());
    pairs.sort_unstable();
    labels(&pairs)
}

fn labels(pairs: &[(&str, &str)]) -> String {
    let escape = |value: &str| {
        value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    };
    let pairs: Vec<String> = pairs
        .iter()
        .filter(|(label, value)| !(*label == "le" && value.is_empty()))
        .map(|(label, value)| format!("{label}=\"{}\"", escape(value)))
        .collect();
    if pairs.is_empty() {
        return String::new();
    }
    format!("{{{}}}", pairs.join(","))
}

fn python_bool(value: bool) -> String {
    if value { "True" } else { "False" }.to_owned()
}
