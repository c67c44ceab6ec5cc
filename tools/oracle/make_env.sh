#!/usr/bin/env bash
# Make the oracle's virtual environment outside the tree (torch alone takes about 6 GB; no GPU is used).
#
#     make_env.sh [DIR]         default: $DUET_ORACLE_ENV, else ${XDG_CACHE_HOME:-~/.cache}/duet-oracle
#
# Prints the path of its Python as the last line. Packages come from whatever index pip is configured for. Running it
# again is cheap: the environment is kept as long as requirements.txt has not changed.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
env=${1:-${DUET_ORACLE_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/duet-oracle}}
tree=$(git -C "$here" rev-parse --show-toplevel 2>/dev/null || true)
case "$(realpath -m "$env")/" in
"${tree:-/nonexistent}"/*) echo "error: $env is inside the tree" >&2; exit 2 ;;
esac

stamp="$env/requirements.txt"
if ! cmp -s "$here/requirements.txt" "$stamp"; then
    python3 -m venv "$env"
    "$env/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2
    cp "$here/requirements.txt" "$stamp"
fi
echo "$env/bin/python"
