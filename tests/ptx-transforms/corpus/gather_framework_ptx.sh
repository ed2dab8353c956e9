#!/usr/bin/env bash
# Gathers the PTX that Triton, TorchInductor and XLA make while the programs of tests/frameworks run.
#
#   tests/ptx-transforms/corpus/gather_framework_ptx.sh OUTPUT [REGEX]    REGEX: only programs with such names
#   SECONDS_AT_MOST=55 JOBS=6 ...                                         what is compiled by then is kept
#
# On a machine with a GPU and the packages. Each program runs once, without Tally, with caches of its own, so that
# everything is compiled afresh; JOBS of them at a time. OUTPUT gets every different text as DIGEST.ptx, and sources.tsv:
# digest, compiler, program. OUTPUT.tar.gz has all of it, the smallest texts first, up to 30 MB of text. Then:
#
#   build/release/bin/ptx-corpus --assemble /usr/local/cuda/bin/ptxas OUTPUT/triton/*.ptx     (and .../xla/*.ptx)
set -euo pipefail
[[ $# -ge 1 && $1 != -h && $1 != --help ]] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit $((${#} == 0 ? 2 : 0)); }
mkdir -p "$1/triton" "$1/xla"
output=$(cd "$1" && pwd)
wanted=${2:-^(triton_|torch_compile|torch_flex|jax_|flax_)}
programs=$(cd "$(dirname "$0")/../../frameworks/programs" && pwd)
ends_at=$((SECONDS + ${SECONDS_AT_MOST:-1200}))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run_one PROGRAM
run_one() {
  local name folder left
  name=$(basename "$1" .py)
  folder="$work/$name"
  left=$((ends_at - SECONDS))
  ((left > 0)) || { echo "$name: no time left"; return 0; }
  mkdir -p "$folder/triton" "$folder/inductor" "$folder/xla"
  if (cd "$programs" && TRITON_CACHE_DIR="$folder/triton" TRITON_ALWAYS_COMPILE=1 TORCHINDUCTOR_CACHE_DIR="$folder/inductor" \
      XLA_PYTHON_CLIENT_PREALLOCATE=false XLA_FLAGS="--xla_dump_to=$folder/xla" timeout -k 5 "$left" python3 "$1") > "$folder/log" 2>&1; then
    echo "$name: ran"
  else
    echo "$name: failed or had no more time (what it compiled before is kept): $(tail -n 1 "$folder/log")"
  fi
}

# keep COMPILER PROGRAM FOLDER: copies the texts below a folder, each once.
keep() {
  local file digest
  while IFS= read -r -d '' file; do
    digest=$(sha256sum "$file" | cut -c1-16)
    cp -n "$file" "$output/$1/$digest.ptx"
    printf '%s\t%s\t%s\n' "$digest" "$1" "$2" >> "$output/sources.tsv"
  done < <(find "$3" -name '*.ptx' -size +0 -print0 2> /dev/null)
}

for program in "$programs"/*.py; do
  [[ $(basename "$program" .py) =~ $wanted ]] || continue
  while (($(jobs -rp | wc -l) >= ${JOBS:-6})); do wait -n || true; done
  run_one "$program" &
done
wait
for folder in "$work"/*/; do
  name=$(basename "$folder")
  keep triton "$name" "$folder/triton"
  keep triton "$name" "$folder/inductor"
  keep xla "$name" "$folder/xla"
done
touch "$output/sources.tsv"
sort -u -o "$output/sources.tsv" "$output/sources.tsv"
(cd "$output" && { echo sources.tsv; find triton xla -name '*.ptx' -printf '%s %p\n' | sort -n |
  awk '{ sum += $1; if (sum <= 30000000) print $2 }'; } | tar czf "$output.tar.gz" -T -)
echo "$(find "$output/triton" -name '*.ptx' | wc -l) texts of Triton, $(find "$output/xla" -name '*.ptx' | wc -l) of XLA; $output.tar.gz"
