#!/bin/sh
# Stands in for a Python with AISBench: answers the probe, "runs" AISBench by
# writing result files, and prints their time points. FAKE says how it behaves.
set -u
here=$(dirname "$0")
mode=$(cat "$here/mode")

if [ "$1" = "-c" ]; then
    case $2 in
    *importlib.metadata*)
        case $mode in
        no-package) echo '{"found": false, "version": null, "plugin": false}' ;;
        no-python) echo 'not Python'; exit 1 ;;
        *) echo '{"found": true, "version": "3.1.20260630", "plugin": false}' ;;
        esac ;;
    *sqlite3*)
        # The details of this stand-in hold their time points themselves.
        sed -n 's/^{"id": \([0-9]*\), "success": \([a-z]*\), .*"time_points": \(\[[^]]*\]\).*/{"id": \1, "success": \2, "time_points": \3}/p' "$3" ;;
    esac
    exit 0
fi

echo "$@" >"$here/args"
env >"$here/env"
echo "words of the child"
config=$3
while [ $# -gt 0 ]; do
    [ "$1" = "--work-dir" ] && work=$2
    shift
done
# Without Python: the names are in the configuration.
model=$(sed -n 's/.*models.*("abbr", "\([^"]*\)").*/\1/p' "$config")
data=$(sed -n 's/^datasets = \[dict(\[("abbr", "\([^"]*\)").*/\1/p' "$config")
out=$work/20260101_120000/performances/$model
mkdir -p "$out" "$work/20260101_120000/configs"
cp "$config" "$work/20260101_120000/configs/"

now=$(cut -d' ' -f1 /proc/uptime)
details() {
    row=0
    while [ $row -lt "$1" ]; do
        echo "{\"id\": $row, \"success\": true, \"error_info\": \"\", \"input_tokens\": 0, \"output_tokens\": 0, \"time_points\": [$now, $now, $now, $now]}"
        row=$((row + 1))
    done
}
tables() {
    printf 'Performance Parameters,Stage,Average,N\nE2EL,total,1.0 ms,%s\n' "$1" >"$out/$data.csv"
    printf '{"Total Requests": {"total": %s}}' "$1" >"$out/$data.json"
}
rows=$(wc -l <"$(dirname "$config")/dataset.jsonl")

case $mode in
good) details "$rows" >"$out/${data}_details.jsonl"; tables "$rows" ;;
fails) mkdir "$out/tmp"; details 2 >"$out/tmp/tmp_x.jsonl"; echo "Error: why" >&2; exit 7 ;;
killed) kill -9 $$ ;;
no-results) ;;
cut) 
    { details 3; printf '{"id": 3, "succ'; } >"$out/${data}_details.jsonl"; tables "$rows" ;;
cut-table)
    details "$rows" >"$out/${data}_details.jsonl"; tables "$rows"
    printf '{"Total Requests": {"to' >"$out/$data.json" ;;
waits)
    mkdir "$out/tmp"; details 3 >"$out/tmp/tmp_x.jsonl"
    trap 'details 3 >"$out/${data}_details.jsonl"; tables 3; exit 0' INT
    mkfifo "$here/pipe"
    echo "the child waits" >&2
    while :; do read -r _ <"$here/pipe" || :; done ;;
esac
