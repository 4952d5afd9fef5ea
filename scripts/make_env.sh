#!/usr/bin/env bash
# Create a virtual environment from a lock file, once; called by `make env`.
#   scripts/make_env.sh PYTHON VENV LOCK
# The stamp in the environment holds what it was installed from: it is a no-op while the lock,
# pyproject.toml and the place of the work tree are the same. An interrupted installation has no
# stamp, and the next call goes on with it.
set -euo pipefail
python=$1 venv=$2 lock=$3

version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true; }

if [ ! -f "$lock" ]; then
    echo "The lock file $lock does not exist. Use LOCK=requirements/cpu.lock or gpu.lock." >&2
    exit 2
fi
stamp="$venv/.installed-from"
# A rename by "touch -d" or a fresh checkout changes times, not contents: hashes decide.
wanted=$(cat "$lock" pyproject.toml <(pwd -P) | cksum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi
if [ "$(version "$venv/bin/python")" != 3.11 ]; then
    if [ "$(version "$python")" != 3.11 ]; then
        cat >&2 <<TEXT
Python 3.11 was not found as "$python".
Install it (Debian and Ubuntu: apt install python3.11 python3.11-venv; macOS: brew install
python@3.11; anywhere: pyenv install 3.11), or name it: make env PYTHON=/path/to/python3.11
TEXT
        exit 2
    fi
    echo "Creating $venv with $("$python" --version)"
    "$python" -m venv "$venv"
fi
# Two -q: pip then prints errors only. A heartbeat shows that it is still at work.
pip=("$venv/bin/python" -m pip --disable-pip-version-check -qq)
count=$(grep -c '^[A-Za-z0-9]' "$lock")
echo "Installing $count packages from $lock (3 to 5 minutes, 3.5 GB)"
rm -f "$stamp"
heartbeat() {
    while sleep 20 >/dev/null 2>&1; do
        echo "  … $SECONDS s, $(find "$venv"/lib/*/site-packages -maxdepth 1 -name '*.dist-info' |
            wc -l) of about $count packages in place"
    done
}
heartbeat &
beat=$!
trap 'kill "$beat" 2>/dev/null || true' EXIT
if ! "${pip[@]}" install --no-deps -r "$lock"; then
    cat >&2 <<TEXT
The packages of $lock could not be installed; pip's message is above.
If it did not find torch: the CPU build comes from PyTorch's own package index. Add that index to
pip's configuration (pip config set global.extra-index-url …, see README.md) and run make env again.
TEXT
    exit 2
fi
"${pip[@]}" install --no-deps --no-build-isolation -e .
kill "$beat" 2>/dev/null || true
echo "$wanted" >"$stamp"
echo "The environment is ready in $venv"
