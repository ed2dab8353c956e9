#!/usr/bin/env bash
# Runs every program of the bundle three ways and compares: natively on this machine's GPU, under tally-run on the GPU,
# and under tally-run on the software driver. Needs nothing but the bundle that tools/bundle makes.
#
#   tests/gpu/run_all.sh [--output FILE.md] [--logs DIRECTORY] [--timeout SECONDS] [--only REGEX] [--skip native,gpu,sim]
#
# --logs keeps what each program printed: some say there what the driver does where it is free to do as it likes.
# Prints a Markdown table (checksum per way, same or not, wall time) with the machine's description on top. Exit status
# 1 if a checksum differs or is missing, except for programs that refused_programs.txt names. Without a GPU only the
# software driver runs and checksums are compared with expected_checksums.txt.
set -uo pipefail
bundle=$(cd "$(dirname "$0")/../.." && pwd)

output=
logs=
timeout_s=60
only=.
skip=
while [[ $# -gt 0 ]]; do
  case "$1" in
    --output) output=${2:?--output needs a file}; shift ;;
    --logs) logs=${2:?--logs needs a folder}; shift ;;
    --timeout) timeout_s=${2:?--timeout needs seconds}; shift ;;
    --only) only=${2:?--only needs a regular expression}; shift ;;
    --skip) skip=${2:?--skip needs a list}; shift ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run_all.sh: unknown option '$1'; see run_all.sh --help" >&2; exit 2 ;;
  esac
  shift
done

# In the repository the same script serves a build folder: TALLY_BUNDLE=build/release.
bundle=${TALLY_BUNDLE:-$bundle}
tally_run=$bundle/bin/tally-run
lists=$bundle/tests/programs
[[ -f $lists/expected_checksums.txt ]] || lists=$(cd "$(dirname "$0")/../programs" && pwd)
[[ -x $tally_run ]] || { echo "run_all.sh: no $tally_run; unpack the bundle or set TALLY_BUNDLE" >&2; exit 2; }

work=$(mktemp -d "${TMPDIR:-/tmp}/tally-run-all.XXXXXX")
trap 'if [[ -n $logs ]]; then mkdir -p "$logs" && cp "$work"/*.* "$logs"; fi; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

if [[ -n $output ]]; then
  mkdir -p "$(dirname "$output")"
  exec > >(tee "$output")
  tee_pid=$!
fi

has_gpu=false
if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then has_gpu=true; fi
wants() { [[ ,$skip, != *,$1,* ]] && { [[ $1 == sim ]] || $has_gpu; }; }

expected() { awk -v name="$1" '$1 == name {print $2}' "$lists/expected_checksums.txt"; }
refusal() { awk -v name="$1" '$1 == name {$1 = ""; print substr($0, 2)}' "$lists/refused_programs.txt"; }

# way NAME PROGRAM COMMAND...: runs it, leaves $checksum (or a word that says what happened) and $seconds.
way() {
  local name=$1 program=$2 log=$work/$2.$1.log began ended status
  shift 2
  began=$(date +%s%N)
  timeout --kill-after=5 "$timeout_s" "$@" >"$log" 2>"$log.err" </dev/null
  status=$?
  ended=$(date +%s%N)
  seconds=$(awk -v ns=$((ended - began)) 'BEGIN {printf "%.2f", ns / 1e9}')
  checksum=$(grep -oE '^checksum: [0-9a-f]{16} OK$' "$log" | tail -1 | cut -d' ' -f2)
  if [[ $status -eq 124 || $status -eq 137 ]]; then
    checksum=timeout
  elif [[ $status -ne 0 || -z $checksum ]]; then
    checksum=failed
  fi
  if [[ ${#checksum} -ne 16 ]]; then
    {
      echo "--- $program, $name: exit status $status"
      tail -60 "$log"
      tail -5 "$log.err"
    } >>"$work/failures"
  fi
}

echo "# Test programs: native, tally-run on the GPU, tally-run on the software driver"
echo
echo "* when: $(date -u '+%Y-%m-%d %H:%M UTC')"
[[ -f $bundle/VERSION ]] && echo "* what: $(head -1 "$bundle/VERSION")"
if $has_gpu; then
  nvidia-smi -L | sed -E 's/ \(UUID.*//; s/^/* /'
  echo "* driver: $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)"
else
  echo "* GPU: none (the columns native and GPU are empty)"
fi
echo "* CPU: $(nproc) x $(awk -F': ' '/model name/ {print $2; exit}' /proc/cpuinfo)"
echo "* kernel: $(uname -sr), $(. /etc/os-release 2>/dev/null && echo "$PRETTY_NAME"), glibc $(ldd --version 2>/dev/null | awk 'NR==1 {print $NF}')"
echo
echo "| program | checksum | native (s) | tally-run, GPU (s) | tally-run, software (s) | same |"
echo "|---|---|---:|---:|---:|---|"

total=0
same=0
refused=0
for path in "$bundle"/programs/*; do
  program=$(basename "$path")
  [[ -f $path && -x $path && $program =~ $only ]] || continue
  total=$((total + 1))
  want=$(expected "$program")
  native=- native_s= gpu=- gpu_s= sim=- sim_s=
  if wants native; then way native "$program" "$path"; native=$checksum native_s=$seconds; fi
  if wants gpu; then way gpu "$program" "$tally_run" --embedded --driver cuda "$path"; gpu=$checksum gpu_s=$seconds; fi
  if wants sim; then way sim "$program" "$tally_run" --embedded --driver sim "$path"; sim=$checksum sim_s=$seconds; fi
  verdict=yes
  for got in "$native" "$gpu" "$sim"; do [[ $got == - || $got == "$want" ]] || verdict=NO; done
  # A refused program must still be right natively.
  reason=$(refusal "$program")
  if [[ $verdict == NO && -n $reason && ($native == - || $native == "$want") ]]; then
    verdict="refused: $reason"
    refused=$((refused + 1))
  fi
  [[ $verdict == yes ]] && same=$((same + 1))
  cell() { if [[ $1 == - ]]; then echo "-"; elif [[ $1 == "$want" ]]; then echo "$2"; else echo "$2 ($1)"; fi; }
  echo "| $program | ${want:-unknown} | $(cell "$native" "$native_s") | $(cell "$gpu" "$gpu_s") | $(cell "$sim" "$sim_s") | $verdict |"
done

echo
wrong=$((total - same - refused))
echo "**$total programs: $same the same everywhere, $refused refused by name, $wrong wrong.**"
if [[ -s $work/failures ]]; then
  echo
  echo '```'
  cat "$work/failures"
  echo '```'
fi
if [[ -n $output ]]; then
  exec >&-
  wait "$tee_pid"
fi
[[ $total -gt 0 && $wrong -eq 0 ]]
