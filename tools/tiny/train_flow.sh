#!/usr/bin/env bash
# Trains both transformers of duet-tiny, one after the other on one GPU or side by side on two, and exports them.
#
#   train_flow.sh STATE FL2VA REF2VA [options of flow.py]    STATE: folder for states, encoded clips and logs
#
# FL2VA and REF2VA are minutes of training; 0 leaves one as it is. Each goes on from the weights of its own that
# models/duet-tiny has; FL2VA is exported as a mean of those and the new ones (`flow.py` says why). Without any, half of
# FL2VA's minutes and a third of Ref2VA's go without guidance and strays, and Ref2VA starts from FL2VA's weights: with a second
# GPU from those that models/duet-tiny has, beside FL2VA, if it has any; else from the new ones. Call it again with the same
# arguments to go on after a stop; another training takes another STATE. Options of flow.py, as --seed, go to all its calls but
# exports.
#
# Order, on one GPU: whole clips are encoded, by PROCESSES processes (6; each may take 15 GiB of a GPU), then FL2VA
# captures its graphs (which leaves the GPU idle) while the rest is encoded; Ref2VA captures its own before FL2VA is done
# and waits, or, if it goes on from its own weights, begins after FL2VA. Strays are encoded while a training without them goes on;
# with a second GPU, on the one where Ref2VA does not train.
set -euo pipefail
usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; }
[[ ${1:-} != -h && ${1:-} != --help ]] || { usage; exit 0; }
[ $# -ge 3 ] || { usage; exit 2; }
state=$1 fl2va=$2 ref2va=$3
shift 3
more=("$@")
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)/models/duet-tiny
for name in fl2va ref2va; do
    [[ ${!name} =~ ^[0-9]{1,4}(\.[0-9]+)?$ ]] || { echo "train_flow.sh: ${name^^} ${!name}: minutes, a number from 0 to 9999"; exit 2; }
done
fl2va=$(awk -v m="$fl2va" 'BEGIN { print m + 0 }') ref2va=$(awk -v m="$ref2va" 'BEGIN { print m + 0 }') # 1.0 is 1
above_0() { [[ $1 =~ [1-9] ]]; }
partitions=()
if above_0 $fl2va; then partitions+=(FL2VA); fi
if above_0 $ref2va; then partitions+=(Ref2VA); fi
[ ${#partitions[@]} -gt 0 ] || { echo "train_flow.sh: FL2VA 0, REF2VA 0: one must be above 0"; exit 2; }
above_0 $fl2va || [ -e "$root/FL2VA/transformer/config.json" ] ||
    { echo "train_flow.sh: FL2VA 0: there are no weights of it to leave as they are"; exit 2; }
[ -n "$state" ] || { echo "train_flow.sh: STATE: must be given"; exit 2; }
[[ $state != -* ]] || { echo "train_flow.sh: STATE $state: must not begin with a dash; nearest: ./$state"; exit 2; }
for option in "${more[@]}"; do
    case $option in
    -h | --help | --check* | --device* | --measure* | --short* | --prepare* | --part* | --state* | --cache* | --model* | --init* | \
        --after* | --export* | --mean* | --train-m* | --run-m*)
        echo "train_flow.sh: $option: is the script's own"
        exit 2
        ;;
    esac
done
[[ ${PROCESSES:=6} =~ ^[1-9][0-9]?$ ]] || { echo "train_flow.sh: PROCESSES $PROCESSES: a number from 1 to 99"; exit 2; }
[ ! -e "$state" ] || [ -d "$state" ] || { echo "train_flow.sh: STATE $state: must be a folder"; exit 2; }
last=$(($({ nvidia-smi --list-gpus 2>/dev/null || true; } | grep -c '^GPU ' || true) - 1))
[ "$last" -ge 0 ] || { echo "train_flow.sh: no GPU"; exit 1; }
[ ${#more[@]} -eq 0 ] || python3 "$here/flow.py" --partition ref2va --model "$root/FL2VA" --state "$state" --steps 1 "${more[@]}" --check ||
    exit 2
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [ -e "$state/began/minutes" ] && [ "$(<"$state/began/minutes")" != "$fl2va $ref2va" ]; then
    echo "train_flow.sh: STATE $state: was begun with $(<"$state/began/minutes") minutes; another training takes another STATE"
    exit 2
fi
mkdir -p "$state" 2>/dev/null && [ -w "$state" ] || { echo "train_flow.sh: STATE $state: cannot be made or written"; exit 2; }
mkdir -p "$state/cache" "$state/log" "$state/first" "$state/guided"

whole=(--clips 8192 --pairs 0.5 --bounces 3 --wordings 1)
short=(--short 12288)

# flow GPU LOG options...: starts it as a child of this very shell, so that a stop of the script stops it. $! is it.
declare -A log_of
flow() {
    CUDA_VISIBLE_DEVICES=$1 python3 "$here/flow.py" --model "$root/FL2VA" --cache "$state/cache" --parts 4 "${@:3}" \
        "${more[@]}" >"$state/log/$2" 2>&1 &
    log_of[$!]=$2
}

# wait_all PID...: waits for all, fails if one did.
wait_all() {
    local bad=0 pid
    for pid; do
        wait "$pid" || {
            bad=1
            echo "train_flow.sh: ${log_of[$pid]} failed; the last line of $state/log/${log_of[$pid]}:"
            tail -n 1 "$state/log/${log_of[$pid]}"
        }
    done
    return $bad
}

# room COUNT: waits until fewer than COUNT of `encoding` run; fails as soon as one has failed.
room() {
    local pid left
    while :; do
        left=()
        for pid in "${encoding[@]}"; do
            if kill -0 "$pid" 2>/dev/null; then left+=("$pid"); else wait_all "$pid" || return 1; fi
        done
        encoding=("${left[@]}")
        [ ${#encoding[@]} -ge "$1" ] || return 0
        sleep 0.2
    done
}

# encode GPUS NAME...: the parts of all that is named and not yet encoded, by processes side by side, on so many GPUs in turn.
declare -A encoded
encode() {
    local name part number=0 gpus=$1
    local most=$(((PROCESSES * gpus + last) / (last + 1))) # PROCESSES are for all GPUs
    shift
    encoding=()
    for name; do
        [ -z "${encoded[$name]:-}" ] || continue
        encoded[$name]=1
        local -n options=prepare_$name
        for part in 0 1 2 3; do
            room $most || return 1
            flow $((number++ % gpus)) "$name-$part" "${options[@]}" --state "$state" --part $part
            encoding+=($!)
        done
    done
    wait_all "${encoding[@]}"
}
all=$((last + 1)) one=1
prepare_videos=(--partition fl2va "${whole[@]}" --prepare videos)
prepare_strays=(--partition fl2va "${whole[@]}" --prepare strays)
prepare_prompts_fl2va=(--partition fl2va "${whole[@]}" --prepare prompts)
prepare_prompts_ref2va=(--partition ref2va "${whole[@]}" --prepare prompts)
prepare_short_videos=(--partition ref2va "${short[@]}" --prepare videos)
prepare_short_strays=(--partition ref2va "${short[@]}" --prepare strays)
prepare_short_prompts=(--partition ref2va "${short[@]}" --prepare prompts)

# train GPU LOG PARTITION STATE MINUTES options...
train() {
    local device=$1 log=$2 partition=$3 to=$4 minutes=$5
    shift 5
    flow "$device" "$log" --partition "$partition" --state "$state/$to" "${whole[@]}" --compile --graphs --rows 80000 \
        --log-every 20 --train-minutes "$minutes" --run-minutes 1000 "$@"
}
guided=(--guide 0.6 --astray 0.3)

# until_near LOG MINUTES PID: waits until a training that has begun has about 90 s left, or has ended.
until_near() {
    while kill -0 "$3" 2>/dev/null && ! grep -qE "captured|complete" "$state/log/$1" 2>/dev/null; do sleep 1; done
    local left
    left=$(awk -v m="$2" 'BEGIN { printf "%d", 60 * m - 90 }')
    while kill -0 "$3" 2>/dev/null && [ $((left--)) -gt 0 ]; do sleep 1; done
}

if above_0 $fl2va; then # it begins as soon as it can
    encode $all videos prompts_fl2va
else
    encode $all prompts_ref2va short_prompts videos short_videos
fi
# The weights to go on from are kept: the exports below take their place.
if [ ! -e "$state/began" ]; then
    rm -rf "$state/began.part"
    for partition in FL2VA Ref2VA; do
        [ ! -e "$root/$partition/transformer/config.json" ] || {
            mkdir -p "$state/began.part/$partition"
            cp "$root/$partition"/transformer/* "$state/began.part/$partition"
        }
    done
    mkdir -p "$state/began.part"
    echo "$fl2va $ref2va" >"$state/began.part/minutes"
    mv "$state/began.part" "$state/began"
fi
had= had_ref2va=
[ ! -e "$state/began/FL2VA" ] || had=$state/began/FL2VA
[ ! -e "$state/began/Ref2VA" ] || had_ref2va=$state/began/Ref2VA
first=() second=()
if ! above_0 $fl2va; then
    :
elif [ -n "$had" ]; then
    encode $all strays
    train 0 fl2va fl2va guided "$fl2va" "${guided[@]}" --lr 1.2e-3 --init "$had"
    first=($!)
else
    half=$(awk -v m="$fl2va" 'BEGIN { print m / 2 }')
    train 0 fl2va_first fl2va first "$half" --lr 2e-3 --end-rate 0.3
    first=($!)
    encode $all strays
    train 0 fl2va fl2va guided "$half" "${guided[@]}" --lr 1.2e-3 --after "$state/first"
    first+=($!)
fi
! above_0 $ref2va || encode $all prompts_ref2va short_prompts short_videos
if ! above_0 $ref2va; then
    :
elif [ -n "$had_ref2va" ]; then
    encode $all strays short_strays
    if [ "$last" -eq 0 ]; then
        wait_all "${first[@]}"
        first=()
    fi
    train "$last" ref2va ref2va guided "$ref2va" "${guided[@]}" "${short[@]}" --lr 1.2e-3 --init "$had_ref2va"
    second=($!)
else
    from=(--after "$state/guided" --after-partition fl2va)
    if [ -n "$had" ] && { [ "$last" -gt 0 ] || [ ${#first[@]} -eq 0 ]; }; then
        from=(--init "$had")
    elif [ "$last" -eq 0 ]; then
        until_near fl2va "$fl2va" "${first[-1]}"
    fi
    part=$(awk -v m="$ref2va" 'BEGIN { print m * 0.35 }')
    train "$last" ref2va_first ref2va first "$part" "${short[@]}" --lr 2e-3 --end-rate 0.3 "${from[@]}"
    second=($!)
    encode $one strays short_strays
    part=$(awk -v m="$ref2va" 'BEGIN { print m * 0.65 }')
    train "$last" ref2va ref2va guided "$part" "${guided[@]}" "${short[@]}" --lr 2e-3 --after "$state/first"
    second+=($!)
fi
wait_all "${first[@]}"
wait_all "${second[@]}"
for partition in "${partitions[@]}"; do
    mean=()
    [ $partition = Ref2VA ] || [ -z "$had" ] || mean=(--mean "$had")
    python3 "$here/flow.py" --partition "${partition,,}" --state "$state/guided" --device cpu --export "$root/$partition" "${mean[@]}"
done
python3 "$here/assemble.py" "$root"
