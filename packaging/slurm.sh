#!/usr/bin/env bash
# A vLLM server and a benchmark against it on one node.
#
#   sbatch packaging/slurm.sh scenario.json
#
# The scenario's service is http://127.0.0.1:8000 with a reset_url; its model is
# $MODEL, its dp_size 1. Relative paths are meant from the scenario's folder.
#SBATCH --job-name=pcload
#SBATCH --nodes=1
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --time=02:00:00
#SBATCH --output=pcload-%j.log
set -euo pipefail

scenario=${1:?usage: sbatch slurm.sh SCENARIO}
model=${MODEL:-Qwen/Qwen2.5-7B-Instruct}
ready_seconds=${READY_SECONDS:-900}

VLLM_SERVER_DEV_MODE=1 vllm serve "$model" --host 127.0.0.1 --port 8000 \
    --enable-prefix-caching --enable-prompt-tokens-details --block-size 16 \
    >"vllm-${SLURM_JOB_ID:-local}.log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT

deadline=$((SECONDS + ready_seconds))
until curl --silent --fail --max-time 5 --output /dev/null http://127.0.0.1:8000/health; do
    kill -0 "$server" 2>/dev/null || { echo "the server ended before it was ready" >&2; exit 1; }
    [ "$SECONDS" -lt "$deadline" ] || { echo "no server after $ready_seconds s" >&2; exit 1; }
    sleep 2
done

pcload doctor --scenario "$scenario"
pcload run --strict --scenario "$scenario" >"analysis-${SLURM_JOB_ID:-local}.json"
