//! What the kernel's text says of a process: who listens on a port, who its
//! parent is, which flags and variables it was started with. It reads text and
//! opens nothing; a value that cannot be read is absent.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::probe::{EngineRecord, Fact, FactSource};

/// State of a listening socket in `/proc/net/tcp` (`TCP_LISTEN`).
const LISTENING: &str = "0A";

/// Flags whose presence makes a process the one that was configured.
const FLAGS: &[(&str, &[&str])] = &[
    ("block_size", &["--block-size"]),
    ("max_model_len", &["--max-model-len"]),
    ("retention_interval", &["--prefix-cache-retention-interval"]),
    ("data_parallel_size", &["--data-parallel-size", "-dp"]),
];

/// The deprecated spelling of the retention interval.
const RETENTION_VARIABLE: &str = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL";

/// A process as far as it could be read. Its `Debug` says what it is and keeps
/// arguments and environment to itself: there may be keys among them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its command line, one argument each.
    pub arguments: Vec<String>,
    /// Its environment, `NAME=value` each.
    pub environment: Vec<String>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("pid", &self.pid)
            .field("arguments", &self.arguments.len())
            .field("environment", &self.environment.len())
            .finish()
    }
}

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    /// Address it is bound to.
    pub(super) address: IpAddr,
    /// Port.
    pub(super) port: u16,
    /// Inode, by which a process's file descriptors name it.
    pub(super) inode: u64,
}

/// The listening sockets of `/proc/net/tcp` or `/proc/net/tcp6`.
pub(super) fn listeners(table: &str) -> Vec<Listener> {
    table.lines().filter_map(listener).collect()
}

fn listener(line: &str) -> Option<Listener> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    let listening = *fields.get(3)? == LISTENING;
    Some(Listener {
        address: address_of(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
    .filter(|_| listening)
}

/// Addresses stand there as 32-bit words in the machine's byte order.
fn address_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for (index, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(index * 8)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

/// Inodes of the sockets that answer at `host` and `port`: those bound to the
/// address itself, else those bound to all addresses.
pub(super) fn sockets_at(listeners: &[Listener], host: IpAddr, port: u16) -> Vec<u64> {
    let at = |wanted: &dyn Fn(IpAddr) -> bool| -> Vec<u64> {
        let found = listeners
            .iter()
            .filter(|listener| listener.port == port && wanted(listener.address.to_canonical()));
        found.map(|listener| listener.inode).collect()
    };
    let exact = at(&|address| address == host);
    if exact.is_empty() {
        at(&|address| address.is_unspecified())
    } else {
        exact
    }
}

/// The parent's id out of `/proc/<pid>/stat`: the second field after the name,
/// which may itself hold blanks and parentheses.
pub(super) fn parent_of(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// `/proc/<pid>/cmdline` or `environ`: texts that end in a zero byte.
pub(super) fn texts_of(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    let texts = bytes.split(|byte| *byte == 0);
    texts
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect()
}

impl Process {
    /// Whether its command line carries a flag that is looked for.
    pub fn carries_flags(&self) -> bool {
        FLAGS.iter().any(|(_, names)| self.flag(names).is_some())
    }

    /// Value of a flag, `--flag value` or `--flag=value`; of several the last,
    /// as the engine takes it. An underscore may stand for a hyphen.
    fn flag(&self, names: &[&str]) -> Option<&str> {
        let is_named = |text: &str| names.contains(&text.replace('_', "-").as_str());
        let mut value = None;
        let mut arguments = self.arguments.iter().peekable();
        while let Some(argument) = arguments.next() {
            match argument.split_once('=') {
                Some((name, text)) if is_named(name) => value = Some(text),
                None if is_named(argument) => value = arguments.peek().map(|next| next.as_str()),
                _ => {}
            }
        }
        value
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let mut variables = self.environment.iter();
        variables.find_map(|text| text.strip_prefix(name)?.strip_prefix('='))
    }

    /// Adds to `record` what it was started with: flag first, then the
    /// environment.
    pub fn offer_to(&self, record: &mut EngineRecord) {
        for (fact, names) in FLAGS {
            if let Some(value) = self.flag(names).and_then(count) {
                record.offer(fact, Fact::new(value, FactSource::Flag));
            }
        }
        if let Some(value) = self.variable(RETENTION_VARIABLE).and_then(count) {
            record.offer(
                "retention_interval",
                Fact::new(value, FactSource::Environment),
            );
        }
    }
}

/// A count as vLLM's command line takes it: digits, or a decimal number with
/// `k`, `m`, `g` (powers of 1,000) or `K`, `M`, `G` (powers of 1,024). Source:
/// vLLM's `human_readable_int`.
fn count(text: &str) -> Option<u64> {
    if let Ok(count) = text.parse() {
        return Some(count);
    }
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit: u64 = match unit {
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    if let Ok(count) = digits.parse::<u64>() {
        return count.checked_mul(unit);
    }
    // Decimals go with powers of 1,000 only.
    let (whole, decimals) = digits.split_once('.')?;
    let digits = u32::try_from(decimals.len()).ok()?;
    let part: u64 = decimals.parse().ok()?;
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let part = part.checked_mul(unit)? / 10_u64.checked_pow(digits)?;
    unit.is_multiple_of(1_000)
        .then(|| whole.checked_add(part))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:46A3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 51234 1 0000000000000000 100 0 0 10 0
   1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 51235 1 0000000000000000 100 0 0 10 0
   2: 0100007F:46A3 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 51236 1 0000000000000000 20 4 30 10 -1
";
    const TABLE6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:46A3 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 61234 1 0000000000000000 100 0 0 10 0
   1: 00000000000000000000000000000000:1F91 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 61235 1 0000000000000000 100 0 0 10 0
";

    fn process(arguments: &[&str], environment: &[&str]) -> Process {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Process {
            pid: 7,
            arguments: own(arguments),
            environment: own(environment),
        }
    }

    #[test]
    fn a_process_keeps_its_keys_to_itself() {
        let process = process(&["vllm", "--api-key", "sk-1"], &["HF_TOKEN=hf-2"]);
        let text = format!("{process:?}");
        assert!(text.contains('7') && !text.contains("sk-1") && !text.contains("hf-2"));
    }

    fn facts(process: &Process) -> EngineRecord {
        let mut record = EngineRecord::default();
        process.offer_to(&mut record);
        record
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_port_is_found_by_its_address_first() {
        let mut all = listeners(TABLE);
        assert_eq!(all.len(), 2, "a connection is no listener");
        all.extend(listeners(TABLE6));
        let four: IpAddr = Ipv4Addr::LOCALHOST.into();
        let six: IpAddr = Ipv6Addr::LOCALHOST.into();
        assert_eq!(sockets_at(&all, four, 0x46a3), [51_234]);
        assert_eq!(sockets_at(&all, six, 0x46a3), [61_234]);
        // Bound to all addresses; an IPv6 one takes IPv4 as well.
        assert_eq!(sockets_at(&all, four, 8_080), [51_235]);
        assert_eq!(sockets_at(&all, four, 8_081), [61_235]);
        assert!(sockets_at(&all, four, 9_999).is_empty());
        assert!(listeners("nonsense\n\n 0: zz:1 a 0A").is_empty());
    }

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent_of("12 (vllm) S 5 12 12 0 -1"), Some(5));
        assert_eq!(parent_of("12 (a ) b (c) S 99 1 1"), Some(99));
        assert_eq!(parent_of("12 (cut"), None);
    }

    #[test]
    fn flags_come_in_both_spellings_and_the_last_one_wins() {
        let engine = process(
            &[
                "vllm",
                "serve",
                "m",
                "--block-size",
                "32",
                "--max-model-len=32k",
                "--block-size=128",
                "--data_parallel_size",
                "2",
                "--prefix-cache-retention-interval",
                "13056",
            ],
            &["VLLM_PREFIX_CACHE_RETENTION_INTERVAL=1"],
        );
        let record = facts(&engine);
        let flag = |value: u64| Fact::new(value, FactSource::Flag);
        assert_eq!(record.get("block_size"), &flag(128));
        assert_eq!(record.get("max_model_len"), &flag(32_000));
        assert_eq!(record.get("data_parallel_size"), &flag(2));
        assert_eq!(record.get("retention_interval"), &flag(13_056));
    }

    #[test]
    fn the_environment_is_second_and_the_unreadable_is_unknown() {
        let engine = process(
            &["vllm", "serve", "--max-model-len", "auto", "--block-size"],
            &["PATH=/bin", "VLLM_PREFIX_CACHE_RETENTION_INTERVAL=13056"],
        );
        let record = facts(&engine);
        let interval = Fact::new(13_056, FactSource::Environment);
        assert_eq!(record.get("retention_interval"), &interval);
        for unknown in ["max_model_len", "block_size", "data_parallel_size"] {
            assert_eq!(record.get(unknown), &Fact::UNKNOWN, "{unknown}");
        }
        // A shell that holds the command in one argument carries no flags.
        assert!(!process(&["sh", "-c", "vllm serve --block-size 16"], &[]).carries_flags());
        assert!(process(&["python", "-m", "vllm", "-dp", "2"], &[]).carries_flags());
    }

    #[test]
    fn counts_are_read_as_the_engine_reads_them() {
        for (text, expected) in [
            ("4096", Some(4_096)),
            ("1k", Some(1_000)),
            ("1K", Some(1_024)),
            ("25.6k", Some(25_600)),
            ("2m", Some(2_000_000)),
            ("1.5K", None),
            ("-1", None),
            ("", None),
            ("é", None),
            ("auto", None),
        ] {
            assert_eq!(count(text), expected, "{text}");
        }
    }

    #[test]
    fn texts_end_in_zero_bytes() {
        assert_eq!(texts_of(b"a\0--b\0\0c\0"), ["a", "--b", "", "c"]);
        assert!(texts_of(b"").is_empty());
    }
}
