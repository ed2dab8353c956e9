# What prolog, epilog and task-prolog have in common. /etc/tally/slurm.env may set the variables in capitals.
TALLYCTL=tallyctl
JOBS=/run/tally-jobs
CLIENT_DIRECTORY=/usr/lib/tally/client
HIGH_PARTITIONS=""  # names of partitions whose jobs are high-priority, with spaces between them
JOB_MEMORY=""       # what each process of a job may hold on each GPU, like 20G; empty: as tallyd is configured
ALL_JOBS=""         # not empty: jobs that ask for no GPU get a grant, too
if [ -r "${TALLY_SLURM_CONFIG:-/etc/tally/slurm.env}" ]; then . "${TALLY_SLURM_CONFIG:-/etc/tally/slurm.env}"; fi

fail() {
  echo "tally: job ${SLURM_JOB_ID:-?}: $1" >&2
  exit 1
}

# It becomes a part of paths, as root.
JOB=${SLURM_JOB_ID:-}
case $JOB in '' | *[!0-9]*) fail "'$JOB' is no job" ;; esac
TENANT=slurm-$JOB

wants_gpu() {
  [ -n "$ALL_JOBS${SLURM_JOB_GPUS:-}${CUDA_VISIBLE_DEVICES:-}" ]
}

is_high() {
  for partition in $HIGH_PARTITIONS; do
    [ "$partition" = "${SLURM_JOB_PARTITION:-}" ] && return 0
  done
  return 1
}

end_job() {
  # Its programs end with their grant; what is not there is none to revoke.
  "$TALLYCTL" grant revoke "$TENANT" >/dev/null 2>&1 || true
  while mountpoint -q "$JOBS/$JOB/tally"; do umount -l "$JOBS/$JOB/tally" || break; done
  # Never more than the two directories: a mount that would not go is somebody's socket.
  if [ -d "$JOBS/$JOB" ]; then rmdir "$JOBS/$JOB/tally" "$JOBS/$JOB" 2>/dev/null || true; fi
}
