"""Runs an AISBench configuration template and writes what it defines as plain data.

usage: template.py TEMPLATE OUT

Classes become dotted names, so that the result needs no import. A model with an
API key gets it out of the environment instead.
"""
import os
import runpy
import sys
import types

template, out = sys.argv[1:]
key = os.environ.get("PCLOAD_AISBENCH_KEY")


def plain(value):
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str) and key:
        return value.replace(key, "[removed]")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (type, types.FunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    raise SystemExit(f"the template holds a {type(value).__name__}, which cannot be written down")


def keyless(model):
    if model.pop("api_key", ""):
        model["type"] = "pcload_aisbench.keyed_" + model["type"].encode().hex()
    return model


names = {
    name: plain(value)
    for name, value in runpy.run_path(template).items()
    if not name.startswith("_") and isinstance(value, (dict, list, tuple, str))
}
missing = [name for name in ("datasets", "models") if not isinstance(names.get(name), list)]
if missing:
    raise SystemExit(f"the template defines no list `{missing[0]}`")
names["models"] = [keyless(model) for model in names["models"]]
with open(out, "w", encoding="utf-8") as file:
    file.write("# Written by pcload from a template; do not edit.\n")
    for name, value in names.items():
        file.write(f"{name} = {ascii(value)}\n")
