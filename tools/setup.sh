#!/usr/bin/env bash
# Install what is missing to build, run and test duet on Debian 12 or Ubuntu 24.04. Asks nothing; needs root or sudo.
# Usage: tools/setup.sh build | test | ci
# ci: also what some tests skip without: another architecture's compiler, another shell.
set -euo pipefail

build_packages=(gcc g++ make cmake ninja-build pkg-config libc6-dev libjansson-dev libutf8proc-dev
    libavcodec-dev libavformat-dev libavutil-dev libswscale-dev libswresample-dev)
test_packages=(python3 python3-numpy ffmpeg)
ci_packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross zsh)

want=("${build_packages[@]}" "${test_packages[@]}")
[ "${1:-test}" != build ] || want=("${build_packages[@]}")
[ "${1:-test}" != ci ] || want+=("${ci_packages[@]}")

missing=()
for package in "${want[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: need root or sudo to install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -qq update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
