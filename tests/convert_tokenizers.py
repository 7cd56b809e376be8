#!/usr/bin/env python3
"""Writes a tokenizer.json for a tokenizer that is published in another format.

    python3 tests/convert_tokenizers.py tokenizer.model FOLDER   # SentencePiece BPE
    python3 tests/convert_tokenizers.py tekken.json FOLDER       # Mistral's Tekken

Needs nothing but Python. Both formats name tokens in order of priority and leave
out the merges; a merge is each pair of tokens that make a token, the pairs of
the token of highest priority first. SentencePiece models as Llama 2 and Mistral
v0.1 have them: dummy prefix, byte fallback, BOS.
"""

import base64
import json
import pathlib
import struct
import sys


def special(identifier, content):
    return {
        "id": identifier, "content": content, "single_word": False, "lstrip": False,
        "rstrip": False, "normalized": False, "special": True,
    }


def template(identifier, content):
    """A post-processor that puts one token in front."""
    def front(kind):
        return [{"SpecialToken": {"id": content, "type_id": kind}}]

    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": front(0) + [first],
        "pair": front(0) + [first] + front(1) + [second],
        "special_tokens": {content: {"id": content, "ids": [identifier], "tokens": [content]}},
    }


def bpe(vocabulary, merges, **settings):
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": False, "vocab": vocabulary, "merges": merges,
    }
    return model | settings


def splits(token, rank):
    """Pairs of tokens that make `token`, those of the lowest ranks first."""
    pairs = [(token[:at], token[at:]) for at in range(1, len(token))]
    pairs = [pair for pair in pairs if pair[0] in rank and pair[1] in rank]
    return sorted(pairs, key=lambda pair: (rank[pair[0]], rank[pair[1]]))


# --- SentencePiece ----------------------------------------------------------


def fields(data):
    """Number and value of each field of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7)
        if size is None:
            size = varint()
        yield key >> 3, data[at : at + size]
        at += size


def from_sentencepiece(data):
    pieces = []
    for number, value in fields(data):
        if number == 1:
            piece = dict(fields(value))
            score = struct.unpack("<f", piece.get(2, b"\0\0\0\0"))[0]
            pieces.append((piece[1].decode(), score, piece.get(3, 1)))
    vocabulary = {text: place for place, (text, _, _) in enumerate(pieces)}
    merges = []
    for text, score, kind in pieces:
        if kind == 1:
            merges.extend((pair, score) for pair in splits(text, vocabulary))
    merges.sort(key=lambda merge: (-merge[1], -len(merge[0][0]), -len(merge[0][1])))
    space = "▁"
    return {
        "added_tokens": [special(vocabulary[t], t) for t in ("<unk>", "<s>", "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": space},
            {"type": "Replace", "pattern": {"String": " "}, "content": space},
        ]},
        "pre_tokenizer": None,
        "post_processor": template(vocabulary["<s>"], "<s>"),
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": space}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": bpe(vocabulary, [list(pair) for pair, _ in merges], unk_token="<unk>",
                     fuse_unk=True, byte_fallback=True),
    }


# --- Tekken -----------------------------------------------------------------


def byte_letters():
    """The letters that byte-level BPE writes bytes with."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(256 + place) for place, byte in enumerate(others)
    }


def from_tekken(data):
    tekken = json.loads(data)
    config = tekken["config"]
    specials = config["default_num_special_tokens"]
    count = config["default_vocab_size"] - specials
    letters = byte_letters()
    rank = {base64.b64decode(e["token_bytes"]): e["rank"] for e in tekken["vocab"][:count]}

    def written(token):
        return "".join(letters[byte] for byte in token)

    names = [f"<SPECIAL_{place}>" for place in range(specials)]
    names[:3] = ["<unk>", "<s>", "</s>"]
    vocabulary = {name: place for place, name in enumerate(names)}
    vocabulary |= {written(token): specials + place for token, place in rank.items()}
    merges = []
    for token in sorted(rank, key=rank.get):
        merges.extend(splits(token, rank))
    return {
        "added_tokens": [special(place, name) for place, name in enumerate(names)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": config["pattern"]}, "behavior": "Isolated",
             "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False},
        ]},
        "post_processor": template(1, "<s>"),
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                    "use_regex": True},
        "model": bpe(vocabulary, [[written(a), written(b)] for a, b in merges],
                     ignore_merges=True),
    }


def main():
    source, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    convert = from_tekken if source.suffix == ".json" else from_sentencepiece
    tokenizer = {"version": "1.0", "truncation": None, "padding": None}
    tokenizer |= convert(source.read_bytes())
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(tokenizer, ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
