#!/usr/bin/env python3
"""Recompute latencies from the raw stamps of a run and compare them with its analysis.

usage: recompute_latency.py RECORDS.jsonl ANALYSIS.json

Independent of pcload: plain Python, its own reading of the definitions.
Prints one line a statistic and exits with 1 when any differs.

TTFT = first content stamp - send; E2EL = last chunk with a choice - send;
TPOT = (E2EL - TTFT) / (output tokens - 1), absent below 2 output tokens or
without a stamp after the first content; ITL = gaps between content stamps,
pooled. Percentiles: linear interpolation between closest ranks. Only
successful requests of the measure phase count.
"""
import json
import math
import sys


def percentile(values, percent):
    values = sorted(values)
    place = (len(values) - 1) * percent / 100
    low, high = math.floor(place), math.ceil(place)
    return values[low] + (values[high] - values[low]) * (place - low)


def main(records_path, analysis_path):
    series = {"ttft_ms": [], "e2el_ms": [], "tpot_ms": [], "itl_ms": []}
    with open(records_path, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row["outcome"]["status"] != "success" or row["phase"] != "measure":
                continue
            send, stamps, end = row["t_send_ns"], row["content_ns"], row["last_choice_ns"]
            tokens = (row["usage"] or {}).get("completion_tokens", row["counted_output_tokens"])
            if end is not None:
                series["e2el_ms"].append((end - send) / 1e6)
            if stamps and row["streamed"]:
                series["ttft_ms"].append((stamps[0] - send) / 1e6)
                if tokens is not None and tokens >= 2 and end > stamps[0]:
                    series["tpot_ms"].append((end - stamps[0]) / 1e6 / (tokens - 1))
            series["itl_ms"] += [(b - a) / 1e6 for a, b in zip(stamps, stamps[1:])]
    with open(analysis_path, encoding="utf-8") as file:
        latency = json.load(file)["pcload"]["latency"]
    wrong = 0
    for name, values in series.items():
        # Pooled ITL percentiles come from a histogram of three significant digits.
        tolerance = 2e-3 if name == "itl_ms" else 1e-9
        stated = latency[name]
        expected = {"count": len(values)}
        if values:
            expected |= {"mean": sum(values) / len(values), "min": min(values), "max": max(values)}
            expected |= {f"p{p}": percentile(values, p) for p in (50, 90, 99)}
        for key, value in expected.items():
            same = stated[key] is not None and math.isclose(stated[key], value, rel_tol=tolerance, abs_tol=1e-3 if name == "itl_ms" else 1e-9)
            wrong += not same
            print(f"{'ok   ' if same else 'WRONG'} {name}.{key}: stated {stated[key]} recomputed {value}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
