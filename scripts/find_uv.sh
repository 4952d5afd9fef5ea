# shellcheck shell=bash
# To be sourced: sets $uv, the command on PATH or else the pinned one, which pip fetches into .tools/uv,
# and exports pip's configuration (indexes, find-links, certificates) as uv's.
#   . scripts/find_uv.sh PYTHON
# PYTHON runs pip: the interpreter of a virtual environment.
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
    uv=.tools/uv/bin/uv
    if ! "$uv" --version >/dev/null 2>&1; then
        "$1" -m venv .tools/uv
        .tools/uv/bin/python -m pip --disable-pip-version-check -qq install -r requirements/uv.txt
    fi
fi
settings=$("$1" scripts/uv_settings.py)
eval "$settings"
