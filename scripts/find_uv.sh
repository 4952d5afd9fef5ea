# shellcheck shell=bash
# To be sourced: sets $uv, the command on PATH or else the pinned one, which pip fetches into .tools/uv,
# and exports pip's configuration (indexes, find-links, certificates) as uv's. Fails where there is none.
#   . scripts/find_uv.sh PYTHON
# PYTHON runs pip: the interpreter of a virtual environment, or any other.
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
    uv=.tools/uv/bin/uv
    "$uv" --version >/dev/null 2>&1 || {
        "$1" -m venv --clear .tools/uv &&
            .tools/uv/bin/python -m pip --disable-pip-version-check -qq install -r requirements/uv.txt
    }
fi && settings=$("$1" scripts/uv_settings.py) && eval "$settings"
