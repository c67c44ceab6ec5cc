#!/usr/bin/env bash
# Compile the engine rooms for aarch64 with a cross compiler, to keep that target compiling; skips loudly without one.
set -uo pipefail
cd "$(dirname "$0")/.."
cross=aarch64-linux-gnu-gcc
command -v $cross >/dev/null || { echo "skip: no $cross (package gcc-aarch64-linux-gnu)"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
passed=0 failed=0
while read -r source; do
    if $cross -std=c11 -O1 -fsyntax-only -Wall -Wextra -Werror -Wno-sign-conversion -ffp-contract=off -D_POSIX_C_SOURCE=200809L \
        -DDUET_VERSION='"0"' -Isrc -Iinclude "$source"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done < <(find src/base src/tensor src/backend src/store src/nn src/engine -name '*.c')
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
