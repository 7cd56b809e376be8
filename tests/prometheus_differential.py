"""Reads one JSON string a line, each a line of a metrics page, with Python's
prometheus_client, and answers each with a line of JSON: the samples as
[name, labels, value], or null where it refuses."""

import json
import sys

from prometheus_client.parser import text_string_to_metric_families

for line in sys.stdin:
    text = json.loads(line)
    try:
        found = [
            [sample.name, sample.labels, repr(float(sample.value))]
            for family in text_string_to_metric_families(text + "\n")
            for sample in family.samples
        ]
    except Exception:
        found = None
    print(json.dumps(found))
