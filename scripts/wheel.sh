#!/usr/bin/env bash
# Builds the sdist, and from it the wheel, into dist/, looks into both, and tries the wheel from an empty folder, in an
# environment that has LeRobot and its packages but not this checkout. Nothing is downloaded: that environment's packages
# are links to .venv's.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
python=$root/.venv/bin/python
work=$(mktemp -d)
left=$root/src/strobe_lab.egg-info # setuptools' notes of the last build, from which it would take files that are gone
trap 'rm -rf "$work" "$left"' EXIT
unset PYTHONPATH
say() { echo "wheel: $*"; }

rm -rf dist "$left"
mkdir -p dist
# The wheel is made of the sdist, in a folder of its own: of a checkout's build/ it would take files that are gone.
"$python" -c "from setuptools.build_meta import build_sdist; build_sdist('dist')" >"$work/build.log" 2>&1 ||
    { cat "$work/build.log" >&2; exit 1; }
tar -xzf dist/*.tar.gz -C "$work"
(cd "$work"/strobe_lab-* && "$python" -c "from setuptools.build_meta import build_wheel; build_wheel('$root/dist')") \
    >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
"$python" scripts/wheel_contents.py dist/*.whl dist/*.tar.gz

say "an environment with LeRobot and without this checkout"
"$python" -m venv --without-pip "$work/venv"
there=$(echo "$work"/venv/lib/python3.*/site-packages)
for package in "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"/*; do
    case ${package##*/} in
        strobe* | __editable__* | lerobot_policy_strobe* | lerobot_camera_strobe* | lerobot_policy_act_relative_rtc*) ;;
        __pycache__) ;;
        *) ln -s "$package" "$there/" ;;
    esac
done
"$work/venv/bin/python" -m pip install --quiet --no-deps --no-index dist/*.whl

mkdir "$work/empty"
cd "$work/empty"
export PATH="$work/venv/bin:$PATH" STROBE_TRACEBACK=1
try() {
    say "$*"
    "$@" >"$work/said" 2>&1 || { cat "$work/said" >&2; echo "wheel: failed: $*" >&2; exit 1; }
}
try python -c "import strobe, sys; assert strobe.__file__.startswith(sys.prefix), strobe.__file__"
try strobe --version
cat "$work/said"
try strobe breakdown --policy.type=act --policy.size=tiny --iterations=3 --skip_counting
try strobe report "$(echo runs/*_breakdown_act)" --format html
try strobe report "$(echo runs/*_breakdown_act)" --format markdown --output report.md
try strobe optimize --policy.type=act --policy.size=tiny --only=channels_last,precision --time_limit=5 --skip_counting
try strobe record --root=pusht --episodes=1 --frames=8 # the tour's first stop
try strobe evaluate --policy.path=demo --episodes=1 --videos=0 --latency_iterations=0
for package in strobe_zoo strobe_servos strobe_viz strobe_ray; do
    cp -r "$root/packages/$package" "$work/$package"
    (cd "$work/$package" && "$python" -c "from setuptools.build_meta import build_wheel; build_wheel('$work')") \
        >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
    try python -m pip install --quiet --no-deps --no-index "$work/$package"-*.whl
done
try strobe rehearse --help # its servos are in a package
try strobe breakdown --policy.type=vqbet --policy.size=tiny --iterations=3 --skip_counting # its tiny size is in the zoo
for made in runs/*_{breakdown,optimize}_act/report.html report.md pusht/meta/info.json; do
    [ -s "$made" ] || { echo "wheel: failed: no $made" >&2; exit 1; }
done
say "dist/ holds what was tried"
