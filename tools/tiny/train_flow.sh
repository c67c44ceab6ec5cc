#!/usr/bin/env bash
# Trains both transformers of duet-tiny, on two GPUs side by side or on one GPU one after the other, and exports them.
#
#   train_flow.sh STATE MINUTES [options of flow.py]      STATE: folder for states, encoded clips and logs
#
# MINUTES is the whole training of each, in the three stages of flow.py: a third on short clips, 45 % on whole ones,
# the rest guided. Call it again with the same STATE to go on after a stop. Starts from the transformers that
# models/duet-tiny has, if any. Clips and prompts are encoded by several processes side by side, whole clips beside the
# training on short ones; a stage prepares itself while the one before it trains.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
state=$1 minutes=$2
shift 2
more=("$@")
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../models/duet-tiny
[[ $minutes =~ ^[0-9]+(\.[0-9]+)?$ && $minutes != 0 ]] || { echo "train_flow.sh: MINUTES $minutes: must be a number above 0"; exit 2; }
last=$(($({ nvidia-smi --list-gpus 2>/dev/null || true; } | wc -l) - 1))
[ "$last" -ge 0 ] || { echo "train_flow.sh: no GPU"; exit 1; }
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
trap 'exit 143' TERM
mkdir -p "$state/cache" "$state/1" "$state/2" "$state/3"

declare -A folder=([fl2va]=FL2VA [ref2va]=Ref2VA) gpu=([fl2va]=0 [ref2va]=$last) wordings=([fl2va]=2 [ref2va]=1)
short=(--frames 22 --clips 16384 --parts 4)
whole=(--clips 5120 --parts 2)

# flow GPU LOG PARTITION options...; a stop of its shell stops the training.
flow() {
    local device=$1 log=$2 partition=$3 child
    shift 3
    CUDA_VISIBLE_DEVICES=$device python3 "$here/flow.py" --partition "$partition" --model "$root/FL2VA" \
        --wordings "${wordings[$partition]}" --cache "$state/cache" "$@" "${more[@]}" >>"$state/$log.log" 2>&1 &
    child=$!
    trap 'kill $child 2>/dev/null; exit 1' TERM
    wait $child || { echo "train_flow.sh: $log failed; see $state/$log.log"; return 1; }
}

# wait_all PID...: waits for all, fails if one did.
wait_all() {
    local bad=0 pid
    for pid; do wait "$pid" || bad=1; done
    return $bad
}

encode_short() {
    local pids=() part
    for part in 0 1 2 3; do
        flow "$last" "prompts_short_ref2va_$part" ref2va "${short[@]}" --state "$state" --prepare prompts --part $part &
        pids+=($!)
    done
    flow 0 videos_short fl2va "${short[@]}" --state "$state" --prepare videos & pids+=($!)
    flow 0 prompts_short_fl2va fl2va "${short[@]}" --state "$state" --prepare prompts &
    pids+=($!)
    wait_all "${pids[@]}"
}

encode_whole() {
    local pids=()
    flow 0 videos_0 fl2va "${whole[@]}" --state "$state" --prepare videos --part 0 & pids+=($!)
    flow "$last" videos_1 fl2va "${whole[@]}" --state "$state" --prepare videos --part 1 & pids+=($!)
    flow 0 prompts_fl2va fl2va "${whole[@]}" --state "$state" --prepare prompts & pids+=($!)
    flow "$last" prompts_ref2va ref2va "${whole[@]}" --state "$state" --prepare prompts & pids+=($!)
    wait_all "${pids[@]}" && touch "$state/cache/whole"
}

# stage N PARTITION SHARE options...: SHARE of MINUTES, in percent
stage() {
    local number=$1 partition=$2 share=$3 length
    shift 3
    length=$(awk -v m="$minutes" -v s="$share" 'BEGIN { print m * s / 100 }')
    flow "${gpu[$partition]}" "$number/flow_$partition" "$partition" --state "$state/$number" --compile --graphs \
        --rows 80000 --train-minutes "$length" --run-minutes 1000 "$@"
}

# started N PARTITION PID: waits until that training knows its number of steps, or has ended.
started() {
    while kill -0 "$3" 2>/dev/null && ! grep -qE "training is|resumed|complete" "$state/$1/flow_$2.log" 2>/dev/null; do
        sleep 1
    done
}

train() {
    local partition=$1 start=() a b c
    trap 'kill $(jobs -p) 2>/dev/null; exit 143' TERM
    [ -e "$root/${folder[$partition]}/transformer/config.json" ] && start=(--init "$root/${folder[$partition]}/transformer")
    stage 1 "$partition" 33 "${short[@]}" "${start[@]}" --end-rate 0.5 & a=$!
    started 1 "$partition" $a
    while [ ! -e "$state/cache/whole" ]; do
        kill -0 "$whole_pid" 2>/dev/null || [ -e "$state/cache/whole" ] || { kill $a; return 1; }
        sleep 1
    done
    stage 2 "$partition" 45 "${whole[@]}" --after "$state/1" --lr 1.5e-3 --end-rate 0.3 & b=$!
    wait $a || { kill $b; return 1; }
    started 2 "$partition" $b
    stage 3 "$partition" 22 "${whole[@]}" --after "$state/2" --lr 4.5e-4 --guide 0.5 & c=$!
    wait $b || { kill $c; return 1; }
    wait $c
}

encode_short
rm -f "$state/cache/whole"
encode_whole & whole_pid=$!
if [ "$last" -gt 0 ]; then
    train fl2va & a=$!
    train ref2va & b=$!
    wait_all $a $b
else
    train fl2va
    train ref2va
fi
wait $whole_pid
for partition in fl2va ref2va; do
    python3 "$here/flow.py" --partition "$partition" --state "$state/3" --device cpu --export "$root/${folder[$partition]}"
done
python3 "$here/assemble.py" "$root"
