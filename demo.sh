#!/usr/bin/env bash
# Install what is missing, build duet, and make a 4.5 s clip with sound from a prompt. Prints where it is.
#
#   ./demo.sh ["a prompt of your own"]
set -euo pipefail
cd "$(dirname "$0")"
prompt=${1-"A large red circle bounces between the walls on a navy background"}
out=out/demo.mp4 sheet=out/demo.png
mkdir -p out

tools/setup.sh build
[ -f build/build.ninja ] || cmake --preset release >/dev/null
cmake --build --preset release
built=$SECONDS

model=models/duet-tiny half=models/duet-tiny/FL2VA
if [ ! -e "$half/model_index.json" ] || [ ! -e "$half/transformer/model.safetensors.index.json" ]; then
    model=out/random-model
    echo "demo: no trained model in models/duet-tiny; random weights make coloured noise"
    [ -d "$model" ] || build/duet synth --shape tiny --layout native --partition fl2va --seed 0 --out "$model"
fi

build/duet generate --model "$model" --prompt "$prompt" --size 256x256 --seconds 4 --num-inference-steps 21 \
    --output "$out" --overwrite
echo "demo: the clip was ready $((SECONDS - built)) s after the build"

# The verdict and the contact sheet need Python with numpy and the ffmpeg program: wanted, not required.
python_with_numpy() {
    local python
    for python in /usr/bin/python3 python3; do
        "$python" -c 'import numpy' 2>/dev/null && echo "$python" && return
    done
    return 1
}
python='' reason=''
if ! python=$(python_with_numpy) || ! command -v ffmpeg >/dev/null; then
    reason=$(tools/setup.sh test 2>&1 >/dev/null | tail -n 1) || true
    python=$(python_with_numpy) || true
fi

if ! command -v ffmpeg >/dev/null; then
    echo "demo: verdict and contact sheet skipped: ffmpeg could not be installed${reason:+ ($reason)}"
else
    ffmpeg -v error -nostdin -y -i "$out" -vf "select='not(mod(n,9))',scale=128:-1,tile=4x3:padding=4:margin=4:color=gray" -frames:v 1 "$sheet" &&
        echo "contact sheet: $(pwd)/$sheet"
    if [ -z "$python" ]; then
        echo "demo: verdict skipped: python3-numpy could not be installed${reason:+ ($reason)}"
    elif [ "$model" != models/duet-tiny ]; then
        echo "demo: verdict skipped: random weights follow no prompt"
    else
        "$python" tools/tiny/evaluate.py "$out" --prompt "$prompt" || echo "demo: no verdict"
    fi
fi
echo "clip: $(pwd)/$out"
