#!/usr/bin/env bash
# Builds a static binary for this machine's architecture.
#
#   packaging/build-musl.sh            target/<arch>-unknown-linux-musl/release/pcload
#
# Needs rustup and a C compiler for musl (Debian: musl-tools; Alpine: musl-dev):
# the TLS library holds some C and assembly, the allocator is C.
set -euo pipefail
cd "$(dirname "$0")/.."

arch=$(uname -m)
target=$arch-unknown-linux-musl
if ! rustup target list --installed | grep -qx "$target"; then
    rustup target add "$target"
fi
if ! command -v musl-gcc >/dev/null && ! command -v "$arch-linux-musl-gcc" >/dev/null \
    && ! ldd --version 2>&1 | grep -qi musl; then
    echo "no C compiler for musl: install musl-tools (Debian) or musl-dev (Alpine)" >&2
    exit 1
fi

cargo build --release --locked --target "$target"
binary=target/$target/release/pcload
if ! file "$binary" 2>/dev/null | grep -Eq 'static(ally|-pie) linked'; then
    echo "warning: cannot tell whether $binary is static (is \`file\` installed?)" >&2
fi
ls -l "$binary"
