#!/usr/bin/env bash
# Create a virtual environment from a lock file, once; called by `make env`.
#   scripts/make_env.sh PYTHON VENV LOCK
# uv installs the packages: the one on PATH, or the pinned one, which pip fetches into .tools/uv. It
# also finds or fetches Python 3.11 where the command python3.11 does not exist.
# What pip is configured with (indexes, find-links, certificates) holds for uv too.
# The stamp in the environment holds what it was installed from: it is a no-op while the lock,
# pyproject.toml and the place of the work tree are the same. An interrupted installation has no
# stamp, and the next call continues it.
set -euo pipefail
python=$1 venv=$2 lock=$3

# 3.11 from 3.11.4 on, which knows tarfile.data_filter; the whole version of any other.
version() {
    "$1" -c 'import sys; v = sys.version_info
print("3.11" if v[:2] == (3, 11) and v >= (3, 11, 4) else "%d.%d.%d" % v[:3])' 2>/dev/null || true
}

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
    found=$(version "$python")
    if [ "$found" = 3.11 ]; then
        echo "Creating $venv with $("$python" --version)"
        "$python" -m venv "$venv"
    elif [ "$python" = python3.11 ] && . scripts/find_uv.sh python3 &&
        "$uv" venv --quiet --seed --allow-existing --python '>=3.11.4,<3.12' "$venv"; then
        echo "Created $venv with $("$venv/bin/python" --version), which uv found or fetched"
    else
        cat >&2 <<TEXT
Python 3.11.4 or a later 3.11 was not found as "$python"${found:+, which is $found}. The lock files and their hashes are
those of Python 3.11. Either
  - install uv (https://docs.astral.sh/uv: pip, pipx, brew or snap have it), or python3-venv (Ubuntu
    24.04 has no python3.11: apt install python3-venv). Then make env fetches Python 3.11 by itself;
  - or install it (macOS: brew install python@3.11; anywhere: pyenv install 3.11; Debian 12 has
    3.11.2, which is too old), and name it if it is not on PATH: make env PYTHON=/path/to/python3.11
TEXT
        exit 2
    fi
fi

# The environments of uv have no pip, which other targets of the Makefile call.
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 &&
    ! "$venv/bin/python" -m ensurepip >/dev/null 2>&1; then
    echo "$venv has no pip, and its Python brings none. Remove $venv and run make env again." >&2
    exit 2
fi

# The scripts of an environment name its place: that of a tree that moved is the old one.
here=$(cd "$venv" && pwd -P)
named=$(sed -nE "s/^ *(export )?VIRTUAL_ENV=[\"']?(\/[^\"']+)[\"']?$/\2/p" "$venv/bin/activate" 2>/dev/null | head -n 1) || true
if [ -n "$named" ] && [ "$named" != "$here" ]; then
    echo "Moving $venv from $named to $here"
    { grep -lIrF -- "$named" "$venv/bin" || true; } | while read -r script; do
        OLD=$named NEW=$here perl -pi -e 's/\Q$ENV{OLD}\E/$ENV{NEW}/g' "$script"
    done
fi

. scripts/find_uv.sh "$venv/bin/python"

count=$(grep -c '^[A-Za-z0-9]' "$lock")
echo "Installing $count packages from $lock with $("$uv" --version) (one to three minutes, 4 GB)"
rm -f "$stamp"
# Without bytecode every process of a run would compile torch and vLLM again where Python may not
# write it (PYTHONDONTWRITEBYTECODE, a read-only environment).
export UV_COMPILE_BYTECODE_TIMEOUT=${UV_COMPILE_BYTECODE_TIMEOUT:-600} # a busy machine needs more than uv's 60 s
install=("$uv" pip install -q --python "$venv/bin/python" --no-deps --compile-bytecode)
if ! "${install[@]}" -r "$lock"; then
    # PyPI has no CPU build of torch; uv knows the index that has it.
    echo "Trying again with PyTorch's own index of CPU builds" >&2
    if ! grep -q '^torch==.*+cpu' "$lock" || ! "${install[@]}" --torch-backend cpu -r "$lock"; then
        cat >&2 <<TEXT
The packages of $lock could not be installed; the message above says which.
Without access to the package index, configure the one you have (pip config set
global.index-url …, or global.find-links …: both hold here too) and run make env again.
TEXT
        exit 2
    fi
fi
"${install[@]}" --no-build-isolation -e .
echo "$wanted" >"$stamp"
echo "$lock" >"$venv/.made-from" # the Makefile goes on with it; .lock is a file of uv
echo "The environment is ready in $venv after $SECONDS s"
