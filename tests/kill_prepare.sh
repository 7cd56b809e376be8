#!/usr/bin/env bash
# Kills `pcload prepare` at random moments and checks what it leaves: never a set
# that `validate` accepts wrongly, and always a next `prepare` that succeeds.
#
#     tests/kill_prepare.sh PCLOAD [ROUNDS]
#
# PCLOAD is the program, ROUNDS the number of kills (20). Works in a temporary
# folder, which it removes. A set that `validate` accepts must also pass
# `validate --deep`, whose tokenizer and theory know nothing of the kill.
set -euo pipefail
pcload="$(realpath "${1:?usage: kill_prepare.sh PCLOAD [ROUNDS]}")"
rounds="${2:-20}"
assets="$(cd "$(dirname "$0")/../assets/demo" && pwd)"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cp -r "$assets/tokenizer" "$assets/corpus.jsonl" .
cat > scenario.json <<'JSON'
{"run": {"run_id": "kill", "output_dir": "./out/kill"},
 "tokenizer": {"path": "./tokenizer"}, "corpus": {"path": "./corpus.jsonl"},
 "requests": {"count": 1500, "input_length": {"mode": "fixed", "value": 512}},
 "prefix_cache": {"mode": "warmup", "groups": {"count": 3}},
 "service": {"dp_size": 2}}
JSON

begin=$(date +%s%N)
"$pcload" prepare --quiet --scenario scenario.json > first.json
whole=$((($(date +%s%N) - begin) / 1000000))
rm -rf out
echo "one prepare takes $whole ms"

complete=0 incomplete=0 nothing=0
for round in $(seq "$rounds"); do
  overwrite=$([ $((round % 2)) = 0 ] && echo --overwrite || true)
  "$pcload" prepare --quiet $overwrite --scenario scenario.json > killed.json 2> killed.err &
  child=$!
  after=$((RANDOM * RANDOM % (whole + 50)))
  sleep "$((after / 1000)).$(printf %03d $((after % 1000)))"
  kill -KILL "$child" 2> kill.err || true
  wait "$child" 2> kill.err || true
  manifests=$(find out -name '*.manifest.json' 2> kill.err || true)
  [ -n "$manifests" ] || nothing=$((nothing + 1))
  for manifest in $manifests; do
    if "$pcload" validate --manifest "$manifest" > valid.json 2> valid.err; then
      complete=$((complete + 1))
      "$pcload" validate --deep --manifest "$manifest" > valid.json
    else
      incomplete=$((incomplete + 1))
      grep -q 'ERROR: ARTIFACTS_INCOMPLETE\|ERROR: ARTIFACT_MISSING' valid.err ||
        { echo "round $round, after $after ms:"; cat valid.err; exit 1; }
    fi
  done
  next="$("$pcload" prepare --quiet --scenario scenario.json)"
  next="$(echo "$next" | sed 's/.*"manifest": "\([^"]*\)".*/\1/')"
  "$pcload" validate --deep --manifest "$next" > valid.json
  [ -z "$(find out -name '.*.tmp-*' -newer "$next")" ] || { echo "round $round: litter"; exit 1; }
  [ $((round % 4)) != 0 ] || rm -rf out
done
echo "$rounds kills: $nothing left nothing, $incomplete sets said that they are incomplete," \
  "$complete were complete and pass validate --deep; every next prepare succeeded"
