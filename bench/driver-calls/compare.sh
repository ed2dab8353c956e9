#!/usr/bin/env bash
# Runs driver_calls natively and under tally-run, one right after the other, and prints the two side by side.
#
#   bench/driver-calls/compare.sh [--smoke] [--driver cuda|sim] [--output FILE.md] [--json-dir DIR] [--only SUBSTRING]
#
# In a bundle (bench/compare.sh) and in the repository (after `cmake --build --preset release`). With --driver sim, or
# without a GPU, there is no native run to compare with: only the column under tally-run is printed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [[ -x $here/driver_calls ]]; then
  program=$here/driver_calls tally_run=$here/../bin/tally-run
else
  build=${TALLY_BUNDLE:-$here/../../build/release}
  program=$build/bench/driver_calls tally_run=$build/bin/tally-run
fi

driver=auto
output=
json_dir=
options=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --smoke) options+=(--smoke) ;;
    --only) options+=(--only "${2:?--only needs a text}"); shift ;;
    --driver) driver=${2:?--driver needs cuda or sim}; shift ;;
    --output) output=${2:?--output needs a file}; shift ;;
    --json-dir) json_dir=${2:?--json-dir needs a folder}; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "compare.sh: unknown option '$1'; see compare.sh --help" >&2; exit 2 ;;
  esac
  shift
done
for file in "$program" "$tally_run"; do
  [[ -x $file ]] || { echo "compare.sh: $file is missing: build it, or run the copy in a bundle" >&2; exit 1; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/tally-compare.XXXXXX")
trap 'rm -rf "$work"' EXIT
native=()
if [[ $driver != sim ]] && nvidia-smi -L >/dev/null 2>&1; then
  echo "natively:" >&2
  timeout 900 "$program" "${options[@]}" --json "$work/native.json" >&2
  native=("$work/native.json")
fi
echo "under tally-run ($driver):" >&2
timeout 900 "$tally_run" --embedded --driver "$driver" "$program" "${options[@]}" --json "$work/tally.json" >&2
if [[ -n $json_dir ]]; then
  mkdir -p "$json_dir"
  cp "$work"/*.json "$json_dir/"
fi
python3 "$here/compare.py" "$work/tally.json" "${native[@]}" | if [[ -n $output ]]; then tee "$output"; else cat; fi
