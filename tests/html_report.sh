#!/usr/bin/env bash
# Makes every kind of HTML report against the simulated server and opens each in
# headless Chromium at 1440, 800 and 390 pixels, light, dark and printed.
#
#   tests/html_report.sh OUT_DIR [PCLOAD]
#
# Fails on a console message, a request for anything but the page itself, a page
# wider than its window, a table that hides columns on a wide screen, a label
# outside its chart, a wrong number of charts, or a value that is not that of the
# JSON it was made of. Leaves reports and screenshots in OUT_DIR. Installs Debian's
# chromium where there is none. Not part of
# `cargo test`.
set -euo pipefail

out=$(realpath -m "${1:?usage: html_report.sh OUT_DIR [PCLOAD]}")
here=$(dirname "$(realpath "$0")")
pcload=$(realpath "${2:-$here/../target/release/pcload}")
if ! command -v chromium >/dev/null; then
    apt-get update -qq && apt-get install -y -qq chromium >/dev/null
fi
rm -rf "$out"
mkdir -p "$out"
cd "$out"

server=
stop() { [ -z "$server" ] || kill "$server" 2>/dev/null || true; server=; }
trap stop EXIT

# A simulated server with these options; sets `url`.
serve() {
    stop
    rm -f sim.json
    "$pcload" sim --port 0 "$@" >sim.json &
    server=$!
    until [ -s sim.json ] 2>/dev/null; do sleep 0.1; done
    url=$(sed 's/.*"url":"\([^"]*\)".*/\1/' sim.json)
}

# Exit 1 is an answer, too.
answer() { "$@" || [ $? -eq 1 ]; }

"$pcload" demo --quiet --out demo >demo.json
run=$(sed -n 's/.*"run": "\(.*\)",/\1/p' demo.json)
manifest=$(echo "$run"/../../*.manifest.json)
"$pcload" report --quiet --manifest "$manifest" --html run.html >/dev/null
cp "$run/analysis.json" run.json

# The same load on a server whose pool is small, and on one that fails.
for kind in pressed failing; do
    case $kind in
        pressed) serve --data-parallel-size 2 --num-gpu-blocks 200 --model simulated-model ;;
        failing) serve --data-parallel-size 2 --model simulated-model --fault-cut-stream 0.2 ;;
    esac
    sed -e "s|http://127.0.0.1:[0-9]*|$url|" -e "s|./outputs/demo|./outputs/$kind|" \
        demo/scenario.json >"demo/$kind.json"
    "$pcload" run --quiet --scenario "demo/$kind.json" --html "$kind.html" >"$kind.json"
done

# Ten thousand requests, as fast as they come.
serve --pace flood --data-parallel-size 2 --model simulated-model
sed -e "s|http://127.0.0.1:[0-9]*|$url|" -e "s|./outputs/demo|./outputs/large|" \
    -e 's|"count": 160|"count": 10000|' -e 's|"value": 512|"value": 64|' \
    -e 's|"min": 16|"min": 2|' -e 's|"max": 48|"max": 6|' -e 's|"count": 4|"count": 40|' \
    -e 's|"batch_size": 8|"batch_size": 64|' -e 's|"target_hit_rate": 0.6|"target_hit_rate": 0.4|' \
    demo/scenario.json >demo/large.json
"$pcload" run --quiet --scenario demo/large.json --html large.html >large.json

pressed=$(echo demo/outputs/pressed_*/result/runs/1)
"$pcload" compare --quiet "$run" "$pressed" --html compare.html >compare.json

serve
answer "$pcload" probe single --quiet --url "$url" --tokens 8000 --turns 5 \
    --arm healthy --out single.json --html single.html >/dev/null
answer "$pcload" probe alternation --quiet --url "$url" --tokens 6000 --rounds 4 --with-control \
    --arm healthy --out healthy.json --html healthy.html >/dev/null
serve --num-gpu-blocks 1200
answer "$pcload" probe dose --quiet --url "$url" --tokens 6000 --find-knee --resolution 1000 \
    --arm "19,200 tokens of pool" --out dose.json --html dose.html >/dev/null
serve --num-gpu-blocks 1800
answer "$pcload" probe dose --quiet --url "$url" --tokens 6000 --find-knee --resolution 1000 \
    --arm "28,800 tokens of pool" --out dose2.json --html dose2.html >/dev/null
serve --hybrid-block 480 --num-gpu-blocks 2000 --interleaving-loss
answer "$pcload" probe alternation --quiet --url "$url" --tokens 6000 --rounds 4 --with-control \
    --arm "loses when interleaved" --out lost.json --html lost.html >/dev/null
serve --hybrid-block 480 --num-gpu-blocks 2000 --answers stale
answer "$pcload" probe needle --quiet --url "$url" --tokens 6000 --interleave 2000 \
    --arm "restores a stale state" --out needle.json --html needle.html >/dev/null
"$pcload" compare --quiet lost.json healthy.json --html compare-probes.html >compare-probes.json
"$pcload" compare --quiet dose.json dose2.json --html compare-doses.html >compare-doses.json
stop

python3 "$here/html_report.py" "$out"
