#!/usr/bin/env bash
# Makes .venv with the locked packages and Strobe itself. Run again, it does nothing until the lock changes, and
# finishes what was interrupted. With a word, 'libero', it makes .venv-libero from requirements/libero.txt instead. With
# 'next' and a LeRobot (a wheel, a folder, anything that pip takes), it makes .venv-next: the same lock, that LeRobot.
# NEWER names packages that are newer there than the lock and LeRobot allow: NEWER='torch==2.15.* torchvision'.
# Written for bash 3.2, which is what macOS has.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv${1:+-$1}
lock=requirements/${1:-lock}.txt
lerobot=
if [ "${1:-}" = next ]; then
    lock=requirements/lock.txt
    lerobot=${2:-}
    if [ -z "$lerobot" ]; then
        echo "Name the LeRobot to test against: make test-next LEROBOT=WHEEL (or a folder, or a git+ address)" >&2
        exit 2
    fi
fi
stamp=$venv/.strobe-ready
unfinished=$venv/.strobe-unfinished
plugins="packages/lerobot_policy_act_relative_rtc packages/lerobot_policy_strobe packages/lerobot_camera_strobe packages/strobe_zoo packages/strobe_servos packages/strobe_viz packages/strobe_ray"
editable="-e ."
inputs="$lock requirements/uv.txt pyproject.toml scripts/env.sh"
for plugin in $plugins; do
    editable="$editable -e $plugin"
    inputs="$inputs $plugin/pyproject.toml"
done
# shellcheck disable=SC2086 # a list of files, without spaces in their names
newer=
[ "${1:-}" = next ] && newer=${NEWER:-}
inputs="$(cat $inputs | cksum)${lerobot:+ $lerobot}${newer:+ $newer}"

if [ -x $venv/bin/python ] && [ "$(cat $stamp 2>/dev/null)" = "$inputs" ]; then
    exit 0
fi

say() {
    echo "$1" >&2
    exit 2
}

if [ "$(uname -s) $(uname -m)" = "Darwin x86_64" ]; then
    say "PyTorch is no longer built for Macs with Intel processors: take a Mac with Apple silicon, or Linux."
fi
# Packages, and what is unpacked while they are installed. A full disk leaves errors of many kinds.
needed_gb=9
free_gb=$(df -Pk . | awk 'NR == 2 { print int($4 / 1024 / 1024) }')
if [ ! -x $venv/bin/python ] && [ "${free_gb:-$needed_gb}" -lt $needed_gb ]; then
    say "The packages need $needed_gb GB, and $free_gb GB are free here: make room, then run this again."
fi

# A version manager's shim may be on PATH and still fail, so a candidate is believed only once it has run.
fits() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 12) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in python3.12 python3.13 python3 \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12*/bin/python "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.13*/bin/python; do
        if fits "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

make_venv() {
    local python
    if command -v uv >/dev/null && uv venv --quiet --clear --seed --python '>=3.12,<3.14' $venv 2>/dev/null; then
        return
    fi
    if ! python=$(find_python); then
        say "No Python 3.12 or 3.13 found: install uv (https://docs.astral.sh/uv) or Python 3.12, then run this again."
    fi
    echo "Making $venv with $("$python" --version) ($python)"
    "$python" -m venv --clear $venv
}

# uv installs in seconds what pip takes minutes for. Where there is none, the pinned one goes into the environment.
find_uv() {
    if command -v uv >/dev/null; then
        uv=uv
    else
        uv=$venv/bin/uv
        $uv --version >/dev/null 2>&1 ||
            $venv/bin/python -m pip install --quiet --force-reinstall --require-hashes -r requirements/uv.txt || uv=
    fi
}

install() {
    if [ -n "$uv" ]; then
        # As pip does by itself: LeRobot's imports take twice as long from source, in every process that starts.
        "$uv" pip install --compile-bytecode --python $venv/bin/python "$@"
    else
        $venv/bin/python -m pip install --quiet "$@"
    fi
}

fits $venv/bin/python || make_venv
find_uv

# An interrupted installation leaves packages that look whole and are not: install every one of them afresh.
again=
if [ -e $unfinished ]; then
    if [ -n "$uv" ]; then again=--reinstall; else again=--force-reinstall; fi
fi
rm -f $stamp
touch $unfinished

install $again --require-hashes -r $lock ||
    say "The packages could not be installed (above is why). Without a connection nothing can be fetched; behind a proxy set HTTPS_PROXY; then run this again: it goes on where it stopped."
# shellcheck disable=SC2086
install --no-deps --no-build-isolation $editable
if [ -n "$lerobot" ]; then install --no-deps "$lerobot"; fi
# shellcheck disable=SC2086 # a list of requirements
if [ -n "$newer" ]; then install --upgrade $newer; fi

rm -f $unfinished
echo "$inputs" >$stamp
echo "$venv is ready"
