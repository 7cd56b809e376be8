"""Classes that pcload adds to the stock AISBench package (3.1).

Written beside the configuration of a run and found through PYTHONPATH. What
must not stand in a file comes through the environment: AISBench writes its
whole configuration, API key included, into its results.
"""
import asyncio
import copy
import importlib
import os

from ais_bench.benchmark.models import VLLMCustomAPI
from ais_bench.benchmark.openicl.icl_inferencer import GenInferencer

ROUTE = ("dp_rank", "group_id", "lane_sequence")


class RoutedAPI(VLLMCustomAPI):
    """Asks for a row's data-parallel rank in a header."""

    async def get_request_body(self, input_data, max_out_len, output, dp_rank=None,
                               group_id=None, lane_sequence=None, **rest):
        body = await super().get_request_body(input_data, max_out_len, output, **rest)
        output.dp_rank, output.group_id, output.lane_sequence = dp_rank, group_id, lane_sequence
        return body

    def routed(self, output):
        if getattr(output, "dp_rank", None) is None:
            return self
        caller = copy.copy(self)
        caller.headers = {**self.headers, "X-data-parallel-rank": str(output.dp_rank)}
        return caller

    async def stream_infer(self, request_body, output):
        await VLLMCustomAPI.stream_infer(self.routed(output), request_body, output)

    async def text_infer(self, request_body, output):
        await VLLMCustomAPI.text_infer(self.routed(output), request_body, output)


class LaneInferencer(GenInferencer):
    """Sends the requests of a lane one after the other.

    Waiting takes up one of AISBench's slots, and the order holds within one
    worker process.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lanes = {}

    def get_data_list(self, retriever):
        items = super().get_data_list(retriever)
        for item, row in zip(items, retriever.dataset_reader.dataset["test"]):
            item.update({key: row.get(key) for key in ROUTE})
        return items

    async def do_request(self, data, token_bucket, session):
        sequence = data.get("lane_sequence")
        if sequence is None:
            return await super().do_request(data, token_bucket, session)
        lane = self.lanes.setdefault((data["group_id"], data["dp_rank"]), [0, asyncio.Condition()])
        async with lane[1]:
            await lane[1].wait_for(lambda: lane[0] == sequence)
        try:
            return await super().do_request(data, token_bucket, session)
        finally:
            async with lane[1]:
                lane[0] += 1
                lane[1].notify_all()


def __getattr__(name):
    """`keyed_<hex of a dotted class name>`: that model class, with the API key and
    the address of this run out of the environment."""
    if not name.startswith("keyed_"):
        raise AttributeError(name)
    module, _, attribute = bytes.fromhex(name[len("keyed_"):]).decode().rpartition(".")
    base = globals().get(attribute) if module == __name__ else None
    base = base or getattr(importlib.import_module(module), attribute)

    class Keyed(base):
        def __init__(self, *args, **kwargs):
            key = os.environ.get("PCLOAD_AISBENCH_KEY")
            if key:
                kwargs["api_key"] = key
            super().__init__(*args, **kwargs)
            self.url = os.environ.get("PCLOAD_AISBENCH_URL") or self.url

    Keyed.__name__ = Keyed.__qualname__ = name
    Keyed.__module__ = __name__
    globals()[name] = Keyed
    return Keyed
