#!/usr/bin/env bash
# Gathers the PTX that Triton, TorchInductor and XLA make while the programs of tests/frameworks run.
#
#   tests/ptx-transforms/corpus/gather_framework_ptx.sh OUTPUT [REGEX]    REGEX: only programs with such names
#
# On a machine with a GPU and the packages. Each program runs once, without Tally, with caches of its own, so that
# everything is compiled afresh. OUTPUT gets every different text as DIGEST.ptx, and sources.tsv: digest, compiler, program. Then:
#
#   build/release/bin/ptx-corpus --assemble /usr/local/cuda/bin/ptxas OUTPUT/triton/*.ptx     (and .../xla/*.ptx)
set -euo pipefail
[[ $# -ge 1 && $1 != -h && $1 != --help ]] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit $((${#} == 0 ? 2 : 0)); }
mkdir -p "$1/triton" "$1/xla"
output=$(cd "$1" && pwd)
wanted=${2:-^(triton_|torch_compile|torch_flex|jax_|flax_)}
programs=$(cd "$(dirname "$0")/../../frameworks/programs" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# keep COMPILER PROGRAM FOLDER: copies the texts below a folder, each once.
keep() {
  local file digest
  find "$3" -name '*.ptx' -size +0 -print0 | while IFS= read -r -d '' file; do
    digest=$(sha256sum "$file" | cut -c1-16)
    cp -n "$file" "$output/$1/$digest.ptx"
    printf '%s\t%s\t%s\n' "$digest" "$1" "$2" >> "$output/sources.tsv"
  done
}

failed=0
for program in "$programs"/*.py; do
  name=$(basename "$program" .py)
  [[ $name =~ $wanted ]] || continue
  folder="$work/$name"
  mkdir -p "$folder/triton" "$folder/inductor" "$folder/xla"
  if (cd "$programs" && TRITON_CACHE_DIR="$folder/triton" TRITON_ALWAYS_COMPILE=1 TORCHINDUCTOR_CACHE_DIR="$folder/inductor" \
      XLA_FLAGS="--xla_dump_to=$folder/xla" timeout 300 python3 "$program") > "$folder/log" 2>&1; then
    echo "$name: ran"
  else
    echo "$name: failed (what it compiled before is kept): $(tail -n 1 "$folder/log")"
    failed=$((failed + 1))
  fi
  keep triton "$name" "$folder/triton"
  keep triton "$name" "$folder/inductor"
  keep xla "$name" "$folder/xla"
done
sort -u -o "$output/sources.tsv" "$output/sources.tsv" 2> /dev/null || true
echo "$(find "$output/triton" -name '*.ptx' | wc -l) texts of Triton, $(find "$output/xla" -name '*.ptx' | wc -l) of XLA, $failed programs failed"
