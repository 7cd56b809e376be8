"""Says, as one line of JSON, which AISBench this Python has."""
import importlib.metadata
import importlib.util
import json

found = importlib.util.find_spec("ais_bench") is not None
try:
    version = importlib.metadata.version("ais_bench_benchmark") if found else None
except importlib.metadata.PackageNotFoundError:
    version = None
plugin = False
if found and importlib.util.find_spec("ais_bench_prefix_cache") is not None:
    try:
        from ais_bench_prefix_cache.datasets import PrefixCacheDataset
        from ais_bench_prefix_cache.models import VLLMPrefixCacheAPI
        from ais_bench_prefix_cache.openicl.icl_inferencer import PrefixCacheGenInferencer
        plugin = True
    except Exception:
        plugin = False
print(json.dumps({"found": found, "version": version, "plugin": plugin}))
