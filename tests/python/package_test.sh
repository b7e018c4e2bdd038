#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# package_test.sh PYTHON BUILD SOURCE: `pip install .` without a network, from the build that is there; the package then stands
# alone; two wheels are the same bytes.
set -euo pipefail
python=$1 build=$2 source=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "package_test: $*" >&2
  exit 1
}
"$python" -m pip --version >/dev/null 2>&1 || { echo "package_test: no pip; not tested"; exit 0; }
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

for n in 1 2; do
  "$python" -m pip wheel --quiet --no-deps --wheel-dir "$work/wheel$n" --config-settings build-dir="$build" "$source"
done
cmp "$work"/wheel1/*.whl "$work"/wheel2/*.whl || fail "two wheels differ"

# --no-deps: numpy is Debian's, which this pip may not see in a folder of its own.
"$python" -m pip install --quiet --no-deps --target "$work/site" "$work"/wheel1/*.whl
cd "$work"
out=$(env -u CLEARHEAD_MODELS PYTHONPATH="$work/site" "$python" -c '
import clearhead as ch
m = ch.load("addition")
print(ch.__file__, m.generate("43+25=", max_new=3), m.folder)')
[[ $out == "$work/site/clearhead/"*" 43+25=068 $work/site/clearhead/models/addition" ]] || fail "the installed package said: $out"
# Which packages have the libraries that it opens.
for library in libfmt libcairo2 libhwy; do
  grep -q "^Requires-External: $library" "$work"/site/clearhead-*.dist-info/METADATA || fail "the wheel does not say that it needs $library"
done
for file in py.typed _clearhead.pyi commands.pyi; do
  [ -e "$work/site/clearhead/$file" ] || fail "$file is not in the package"
done
grep -q "^Version: $(sed -nE 's/.*project\(clearhead VERSION ([0-9.]+).*/\1/p' "$source/CMakeLists.txt")" "$work"/site/clearhead-*.dist-info/METADATA || fail "the version is another"
echo "package_test: the wheel is complete"
