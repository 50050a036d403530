#!/usr/bin/env bash
# All measurements that need a GPU, most valuable first; writes docs/gpu.md.
#
#   scripts/bench/gpu_day.sh FOLDER                   # every stage that is not finished
#   scripts/bench/gpu_day.sh FOLDER first throughput  # these stages
#   scripts/bench/gpu_day.sh FOLDER --pretend         # small networks, no GPU: runs every line, writes FOLDER/gpu.md
#
# Each stage is a process of at most nine minutes (MINUTES). Results are appended to FOLDER/STAGE.jsonl one by one, so the
# same command resumes where it was stopped; errors are rows too, and --retry measures them again. TRL_PYTHON is the Python
# of an environment with trl==1.12.0, for the comparison of PPO and GRPO.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=${1:?usage: gpu_day.sh FOLDER [STAGE ...] [--pretend] [--retry]}
shift
stages=() flags=()
for word in "$@"; do
  case $word in --*) flags+=("$word") ;; *) stages+=("$word") ;; esac
done
export PYTHONPATH=$root/src${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-python3}
if [ ${#stages[@]} -eq 0 ]; then
  mapfile -t stages < <("$python" "$here/gpu_day.py" --list) || exit 1
fi
minutes=${MINUTES:-9}
for stage in "${stages[@]}"; do
  # the limit of the process ends a measurement that hangs; it is then a row with an error
  timeout --kill-after=10 $((minutes * 60)) "$python" "$here/gpu_day.py" "$folder" --only "$stage" \
    --minutes "$minutes" ${TRL_PYTHON:+--trl-python "$TRL_PYTHON"} ${flags[@]+"${flags[@]}"} || echo "stage $stage: exit code $?"
done
exec "$python" "$here/gpu_day.py" "$folder" --write ${flags[@]+"${flags[@]}"}
