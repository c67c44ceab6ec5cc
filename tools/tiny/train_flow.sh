#!/usr/bin/env bash
# Trains both transformers of duet-tiny, on two GPUs side by side or on one GPU one after the other, and exports them.
#
#   train_flow.sh STATE MINUTES [options of flow.py]      STATE: folder for states, encoded clips and logs
#
# MINUTES is the whole training of each; call it again with the same STATE to go on after a stop. Starts from the
# transformers that models/duet-tiny has, if any. Clips and prompts are encoded first, side by side.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
state=$1 minutes=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../models/duet-tiny
last=$(($(nvidia-smi --list-gpus | wc -l) - 1))
[ "$last" -ge 0 ] || { echo "train_flow.sh: no GPU"; exit 1; }
mkdir -p "$state/cache"

declare -A folder=([fl2va]=FL2VA [ref2va]=Ref2VA) gpu=([fl2va]=0 [ref2va]=$last)

# flow PARTITION GPU LOG options...
flow() {
    local partition=$1 device=$2 log=$3
    shift 3
    CUDA_VISIBLE_DEVICES=$device python3 "$here/flow.py" --partition "$partition" --model "$root/FL2VA" \
        --state "$state" --cache "$state/cache" "$@" >>"$state/$log.log" 2>&1 ||
        { echo "train_flow.sh: $log failed; see $state/$log.log"; return 1; }
}

# wait_all PID...: waits for all, fails if one did.
wait_all() {
    local bad=0 pid
    for pid; do wait "$pid" || bad=1; done
    return $bad
}

train() {
    local partition=$1 start=()
    shift
    [ -e "$root/${folder[$partition]}/transformer/config.json" ] && start=(--init "$root/${folder[$partition]}/transformer")
    flow "$partition" "${gpu[$partition]}" "flow_$partition" "${start[@]}" --compile --graphs \
        --train-minutes "$minutes" --run-minutes 1000 "$@"
}

flow fl2va 0 videos --prepare videos "$@" & a=$!
flow fl2va "$last" prompts_fl2va --prepare prompts "$@" & b=$!
flow ref2va "$last" prompts_ref2va --prepare prompts "$@" & c=$!
wait_all $a $b $c
if [ "$last" -gt 0 ]; then
    train fl2va "$@" & a=$!
    train ref2va "$@" & b=$!
    wait_all $a $b
else
    train fl2va "$@"
    train ref2va "$@"
fi
for partition in fl2va ref2va; do
    python3 "$here/flow.py" --partition "$partition" --state "$state" --device cpu --export "$root/${folder[$partition]}"
done
python3 "$here/assemble.py" "$root"
