#!/usr/bin/env bash
# Build duet and run every test that this machine can run. Ends with one line: N passed, N failed, N skipped.
#
#   ./test.sh            everything: release build, checks, tests, then the sanitizer build of the engine and its tests
#   ./test.sh quick      release build, unit tests and operation checks only
#
# DUET_H3_CONFIG may name a folder with the released model's configuration files; tests that need it skip loudly without.
set -uo pipefail
cd "$(dirname "$0")"
mode=${1:-all}
passed=0 failed=0 skipped=0
started=$(date +%s)
log_dir=$(mktemp -d "${TMPDIR:-/tmp}/duet-tests-XXXXXX")
trap 'rm -rf "$log_dir"' EXIT

# Run a step. If its last counting line is "N passed, N failed[, N skipped]" those numbers count, else its exit code counts as one test.
step() {
    local name=$1 log="$log_dir/$1.log" before after rc line
    shift
    before=$(date +%s)
    "$@" >"$log" 2>&1
    rc=$?
    after=$(date +%s)
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    if [ -n "$line" ]; then
        set -- $(echo "$line" | tr -c '0-9\n' ' ')
        passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + ${3:-0}))
        [ "$rc" -ne 0 ] && [ "$2" -eq 0 ] && failed=$((failed + 1))
    elif [ "$rc" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    printf '%-28s %4ds  %s\n' "$name" $((after - before)) "${line:-exit $rc}"
    if [ "$rc" -ne 0 ]; then
        grep -vE '^(ok|\[[0-9]+/[0-9]+\])' "$log" | tail -n 60 | sed 's/^/    /'
    else
        grep -E '^ *skip' "$log" | sort | uniq -c | sort -rn | head -n 8 | sed 's/^/    /'
        grep '^note: ' "$log" | sed 's/^/    /'
    fi
    return "$rc"
}

finish() {
    echo "time: $(($(date +%s) - started)) s"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}

have() { [ -x "$1" ]; }

tools/setup.sh test || finish
# The distribution's Python has the distribution's numpy; another one first in PATH may not.
python=python3
[ -x /usr/bin/python3 ] && /usr/bin/python3 -c 'import numpy' 2>/dev/null && python=/usr/bin/python3
werror=OFF
[ -n "${CI:-}" ] && werror=ON
step configure cmake --preset release -DDUET_WERROR=$werror || { failed=$((failed + 1)); finish; }
step build cmake --build --preset release || finish
step include_directions $python tools/check_includes.py
step repository $python tools/check_repository.py
if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then # other versions break lines elsewhere
    step format bash -c "git ls-files -z '*.c' '*.h' | xargs -0 -r clang-format --dry-run -Werror"
fi
step unit build/duet_unit
have build/duet_checkop && step checkop build/duet_checkop
step aarch64_compiles tools/check_aarch64.sh
[ "$mode" = quick ] && finish

for program in duet_parity duet_media_test duet_embed duet_fault; do
    have "build/$program" && step "$program" "build/$program"
done
for fuzz in build/fuzz_*; do
    have "$fuzz" && step "$(basename "$fuzz")" "$fuzz" "tests/fuzz/corpus/$(basename "$fuzz")"
done
[ -f tools/oracle/check_requests.py ] && step requests $python tools/oracle/check_requests.py --duet build/duet
for script in tests/tools/*_test.py; do
    [ -f "$script" ] && step "$(basename "$script" .py)" $python "$script"
done
[ -f tests/api/run.py ] && step api $python tests/api/run.py build/duet

step engine_only_build bash -c 'cmake --preset engine-only && cmake --build --preset engine-only'
have build-engine/duet_unit && step engine_only_unit build-engine/duet_unit

export DUET_TEST_SLOWDOWN=10 ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
step asan_build bash -c 'cmake --preset asan && cmake --build --preset asan' &&
    for program in duet_unit duet_checkop duet_parity; do
        have "build-asan/$program" && step "asan_${program#duet_}" "build-asan/$program"
    done
finish
