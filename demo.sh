#!/usr/bin/env bash
# Install what is missing, build duet, and make a 4.5 s clip with sound from a prompt. Prints where it is.
#
#   ./demo.sh ["a prompt of your own"]
set -euo pipefail
cd "$(dirname "$0")"
prompt=${1:-"a large red circle bounces between the walls on a navy background"}
out=out/demo.mp4
mkdir -p out

tools/setup.sh build
[ -f build/build.ninja ] || cmake --preset release >/dev/null
cmake --build --preset release

model=models/duet-tiny
if [ ! -e "$model/FL2VA/transformer/model.safetensors" ] && [ ! -e "$model/FL2VA/transformer/model.safetensors.index.json" ]; then
    model=out/random-model
    echo "demo: no trained model in models/duet-tiny; using random weights, so the clip will be coloured noise"
    [ -d "$model" ] || build/duet synth --shape tiny --layout native --partition fl2va --seed 0 --out "$model"
fi

build/duet generate --model "$model" --prompt "$prompt" --size 256x256 --seconds 4 --num-inference-steps 21 \
    --output "$out" --overwrite

# The verdict and the contact sheet need Python with numpy and the ffmpeg program: wanted, not required.
if ! tools/setup.sh test 2>/dev/null; then
    echo "demo: verdict and contact sheet skipped: python3-numpy and ffmpeg could not be installed"
else
    ffmpeg -v error -y -i "$out" -vf "select='not(mod(n,9))',scale=128:-1,tile=4x3" -frames:v 1 out/demo.png
    echo "contact sheet: $(pwd)/out/demo.png"
    if [ "$model" = models/duet-tiny ] && [ -f tools/tiny/evaluate.py ]; then
        python3 tools/tiny/evaluate.py "$out" --prompt "$prompt"
    fi
fi
echo "clip: $(pwd)/$out"
