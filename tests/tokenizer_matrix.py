#!/usr/bin/env python3
"""Checks prepared prompts with nothing of pcload: only a tokenizer and counting.

    pip install tokenizers
    python3 tests/tokenizer_matrix.py TOKENIZER_JSON MANIFEST FULL_JSONL   # one set
    python3 tests/tokenizer_matrix.py --folder FOLDER                      # many

FULL_JSONL and MANIFEST are what `pcload prepare` writes. `--folder` takes what
the matrix test leaves behind (a `*.manifest.json` beside each `*.full.jsonl`,
the tokenizer named in the manifest):

    PCLOAD_TOKENIZERS=/tmp/tokenizers PCLOAD_MATRIX_OUT=/tmp/matrix \
        cargo test --test tokenizer_matrix && \
        python3 tests/tokenizer_matrix.py --folder /tmp/matrix

For every row:
  * the text has exactly the planned number of tokens, none of them special;
  * it begins with the ids that all requests of its group begin with, and their
    digest is the manifest's;
  * the seed stands right behind the prefix: its ids have the row's digest;
  * the first block that is not shared as a whole is like that of no other row,
    like that of no warm-up item, and like no block of any prefix. Blocks are cut
    as the server cuts them, with and without the special tokens in front.
Exit status 1 if anything is wrong.
"""

import hashlib
import json
import pathlib
import sys

from tokenizers import Tokenizer


def sha256(value):
    return hashlib.sha256(str(value).encode()).hexdigest()


class DataSet:
    def __init__(self, tokenizer, manifest, rows):
        self.tokenizer = tokenizer
        self.manifest = manifest
        self.rows = rows
        self.size = manifest["tokenizer"]["block_size"]
        plain = tokenizer.encode("a b", add_special_tokens=False).ids
        framed = tokenizer.encode("a b", add_special_tokens=True).ids
        self.front = next(
            at for at in range(len(framed)) if framed[at : at + len(plain)] == plain
        )
        self.special = {
            number for number, token in tokenizer.get_added_tokens_decoder().items()
            if token.special and not token.content.startswith("<0x")
        }
        self.prefixes = {}
        self.faults = []

    def say(self, where, what):
        self.faults.append(f"{where}: {what}")

    def encode(self, where, text):
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        if self.special & set(ids):
            self.say(where, "a special token")
        return ids

    def learn_prefix(self, group, ids):
        """Keeps the longest prefix seen of a group; all must agree."""
        known = self.prefixes.get(group, [])
        shorter, longer = sorted([known, ids], key=len)
        if longer[: len(shorter)] != shorter:
            self.say(group, "two requests with different prefixes")
        self.prefixes[group] = longer

    def check(self):
        sent = []
        for row in self.rows:
            where = row["request_id"]
            ids = self.encode(where, row["question"])
            shared, seed = row["shared_prefix_tokens"], row["seed_tokens"]
            if not len(ids) == row["actual_input_tokens"] == row["target_input_tokens"]:
                self.say(where, f"{len(ids)} tokens, not {row['target_input_tokens']}")
            if shared + seed + row["natural_suffix_tokens"] != len(ids):
                self.say(where, "prefix, seed and suffix are not the whole")
            self.learn_prefix(row["group_id"], ids[:shared])
            if sha256(tuple(ids[shared : shared + seed])) != row["seed_sha256"]:
                self.say(where, "no seed behind the prefix")
            if shared % self.size:
                self.say(where, "a prefix that is no whole number of blocks")
            sent.append((where, ids, shared))
        for item in self.manifest["warmup"]["plan"]:
            where = item["request_id"]
            ids = self.encode(where, item["prompt"])
            if len(ids) != item["input_tokens"]:
                self.say(where, f"{len(ids)} tokens, not {item['input_tokens']}")
            self.learn_prefix(item["group_id"], ids[: item["shared_prefix_tokens"]])
            sent.append((where, ids, item["shared_prefix_tokens"]))
        self.check_digests()
        for front in {0, self.front}:
            self.check_blocks(front, sent)

    def check_digests(self):
        for name, group in self.manifest["groups"].items():
            ids = self.prefixes.get(name, [])
            if len(ids) < group["max_shared_prefix_tokens"]:
                self.say(name, "no request with the longest prefix")
            # A prefix of one block that nobody shares is not in any prompt.
            elif len(ids) == group["canonical_prefix_tokens"]:
                if sha256(ids) != group["canonical_prefix_sha256"]:
                    self.say(name, "another digest of the prefix")

    def check_blocks(self, front, sent):
        """`front` tokens that are the same everywhere stand before each text."""
        size, pad = self.size, [-1] * front
        canonical, first, seen = set(), set(), {}
        for name, ids in self.prefixes.items():
            ids = pad + ids
            blocks = [tuple(ids[at : at + size]) for at in range(0, len(ids), size)]
            blocks = [block for block in blocks if len(block) == size]
            canonical.update(blocks)
            if blocks and blocks[0] in first:
                self.say(name, "the first block of another group")
            first.update(blocks[:1])
        for where, ids, shared in sent:
            start = (front + shared) // size * size
            block = tuple((pad + ids)[start : start + size])
            if len(block) < size:
                self.say(where, "no whole block behind the prefix")
            if block in canonical:
                self.say(where, "a block of a prefix behind its own prefix")
            if block in seen:
                self.say(where, f"the first block of {seen[block]}")
            seen[block] = where


def check(tokenizer, manifest_path, full_path):
    manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
    tokenizer = tokenizer or Tokenizer.from_file(manifest["tokenizer"]["path"])
    with full_path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    data = DataSet(tokenizer, manifest, rows)
    data.check()
    verdict = "ok" if not data.faults else "WRONG"
    print(f"{verdict}: {full_path.name}: {len(rows)} rows, {len(manifest['warmup']['plan'])} "
          f"warm-up items, blocks of {data.size}, {data.front} special in front")
    for fault in data.faults[:10]:
        print("   ", fault)
    return not data.faults


def main():
    if sys.argv[1:2] == ["--folder"]:
        folder = pathlib.Path(sys.argv[2])
        manifests = sorted(folder.glob("*.manifest.json"))
        tokenizers, good = {}, bool(manifests)
        for path in manifests:
            name = json.loads(path.read_text(encoding="utf-8"))["tokenizer"]["path"]
            if name not in tokenizers:
                tokenizers = {name: Tokenizer.from_file(name)}
            full = path.with_name(path.name.replace(".manifest.json", ".full.jsonl"))
            good &= check(tokenizers[name], path, full)
        sys.exit(0 if good else 1)
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    tokenizer, manifest, full = sys.argv[1:]
    tokenizer = Tokenizer.from_file(tokenizer)
    sys.exit(0 if check(tokenizer, pathlib.Path(manifest), pathlib.Path(full)) else 1)


if __name__ == "__main__":
    main()
