//! Finds the process that serves a port of this machine: socket to process,
//! and from there up to the ancestor that carries the engine's flags. It never
//! looks at the environment of pcload itself, and never takes an ancestor that
//! pcload shares: a common launcher's flags are not the engine's.

#![allow(clippy::disallowed_methods, reason = "edge: reads /proc")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::process::{Process, listeners, parent_of, sockets_at, texts_of};

/// Largest file of `/proc` that is read.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Ancestors that are followed at most.
const ANCESTORS_MAX: usize = 32;

/// A view of `/proc`.
#[derive(Clone, Debug)]
pub struct ProcFiles {
    root: PathBuf,
    /// Whose ancestors are not taken.
    own_pid: u32,
}

impl ProcFiles {
    /// This machine's own.
    pub fn of_this_machine() -> Self {
        Self::new("/proc", std::process::id())
    }

    /// The files below `root`, seen by process `own_pid`.
    pub fn new(root: impl Into<PathBuf>, own_pid: u32) -> Self {
        Self {
            root: root.into(),
            own_pid,
        }
    }

    /// The engine that answers at one of `hosts` and `port`: the nearest
    /// process with flags, from the listening one upwards, else that one
    /// itself. `None` when it cannot be found or may not be read.
    pub fn engine_at(&self, hosts: &[IpAddr], port: u16) -> Option<Process> {
        let tables = ["net/tcp", "net/tcp6"].map(|name| self.text(Path::new(name)));
        let open: Vec<_> = tables
            .iter()
            .flatten()
            .flat_map(|text| listeners(text))
            .collect();
        let inodes: BTreeSet<u64> = hosts
            .iter()
            .flat_map(|host| sockets_at(&open, *host, port))
            .collect();
        let serving = self.holders(&inodes);
        let configured = serving.iter().find_map(|pid| self.configured(*pid));
        configured.or_else(|| serving.first().and_then(|pid| self.process(*pid)))
    }

    /// Processes that hold one of these sockets, lowest id first.
    fn holders(&self, inodes: &BTreeSet<u64>) -> Vec<u32> {
        if inodes.is_empty() {
            return Vec::new();
        }
        let names: BTreeSet<String> = inodes
            .iter()
            .map(|inode| format!("socket:[{inode}]"))
            .collect();
        let holds = |pid: &u32| {
            let entries = fs::read_dir(self.root.join(format!("{pid}/fd")));
            entries.into_iter().flatten().flatten().any(|entry| {
                let link = fs::read_link(entry.path());
                link.is_ok_and(|link| names.contains(link.to_string_lossy().as_ref()))
            })
        };
        let mut pids = self.pids();
        pids.retain(holds);
        pids
    }

    fn pids(&self) -> Vec<u32> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let mut pids: Vec<u32> = entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        pids.sort_unstable();
        pids
    }

    /// `pid` or its nearest ancestor that carries flags.
    fn configured(&self, pid: u32) -> Option<Process> {
        let own: BTreeSet<u32> = self.line(self.own_pid).into_iter().collect();
        let line = self.line(pid).into_iter().enumerate();
        let candidates = line.take_while(|(steps, pid)| *steps == 0 || !own.contains(pid));
        candidates
            .filter_map(|(_, pid)| self.process(pid))
            .find(Process::carries_flags)
    }

    /// `pid`, its parent, and so on.
    fn line(&self, pid: u32) -> Vec<u32> {
        let parent = |pid: &u32| {
            let stat = self.text(Path::new(&format!("{pid}/stat")))?;
            parent_of(&stat).filter(|parent| *parent > 0)
        };
        std::iter::successors(Some(pid), parent)
            .take(ANCESTORS_MAX)
            .collect()
    }

    /// What can be read of a process; its environment may be forbidden while
    /// its command line is not.
    fn process(&self, pid: u32) -> Option<Process> {
        let read = |name: &str| self.bytes(Path::new(&format!("{pid}/{name}")));
        Some(Process {
            pid,
            arguments: texts_of(&read("cmdline")?),
            environment: texts_of(&read("environ").unwrap_or_default()),
        })
    }

    fn text(&self, name: &Path) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(name)?).into_owned())
    }

    fn bytes(&self, name: &Path) -> Option<Vec<u8>> {
        let file = fs::File::open(self.root.join(name)).ok()?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::unix::fs::symlink;

    use super::*;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// A process of a made-up `/proc`.
    fn add(root: &Path, pid: u32, parent: u32, arguments: &str, socket: Option<u64>) {
        let folder = root.join(pid.to_string());
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::write(folder.join("stat"), format!("{pid} (p) S {parent} 1")).unwrap();
        fs::write(folder.join("cmdline"), arguments.replace(' ', "\0") + "\0").unwrap();
        fs::write(folder.join("environ"), format!("ME={pid}\0")).unwrap();
        if let Some(inode) = socket {
            symlink(format!("socket:[{inode}]"), folder.join("fd/5")).unwrap();
        }
    }

    fn machine() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("net")).unwrap();
        let word = u32::from_ne_bytes([127, 0, 0, 1]);
        let line = format!("0: {word:08X}:1F90 00000000:0000 0A 0:0 00:0 0 0 0 77 1");
        fs::write(folder.path().join("net/tcp"), line).unwrap();
        folder
    }

    #[test]
    fn parents_are_followed_to_the_process_with_flags() {
        let folder = machine();
        let root = folder.path();
        add(root, 1, 0, "init", None);
        add(root, 20, 1, "vllm serve m --block-size 32", None);
        add(root, 30, 20, "VLLM::ApiServer_0", Some(77));
        let engine = ProcFiles::new(root, 99).engine_at(&[HOST], 8_080).unwrap();
        assert_eq!(engine.pid, 20);
        assert_eq!(engine.environment, ["ME=20"]);
        assert_eq!(ProcFiles::new(root, 99).engine_at(&[HOST], 8_081), None);
    }

    #[test]
    fn without_flags_anywhere_the_listening_process_is_it() {
        let folder = machine();
        let root = folder.path();
        add(root, 20, 1, "sh -c x", None);
        add(root, 30, 20, "server", Some(77));
        let engine = ProcFiles::new(root, 99).engine_at(&[HOST], 8_080).unwrap();
        assert_eq!((engine.pid, engine.carries_flags()), (30, false));
    }

    #[test]
    fn the_flags_of_a_common_launcher_are_not_the_engine_s() {
        let folder = machine();
        let root = folder.path();
        add(root, 10, 1, "bench --max-model-len 4096", None);
        add(root, 30, 10, "server", Some(77));
        add(root, 99, 10, "pcload probe single", None);
        let engine = ProcFiles::new(root, 99).engine_at(&[HOST], 8_080).unwrap();
        assert_eq!(engine.pid, 30);
    }

    #[test]
    fn nothing_readable_is_nothing_known() {
        let folder = machine();
        assert_eq!(
            ProcFiles::new(folder.path(), 99).engine_at(&[HOST], 8_080),
            None
        );
        let missing = ProcFiles::new(folder.path().join("none"), 99);
        assert_eq!(missing.engine_at(&[HOST], 8_080), None);
    }
}
