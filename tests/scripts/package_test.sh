#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# package_test.sh BUILD SOURCE: the Debian packages of this build: what is in them, that they hold nothing of this machine, and that
# packing twice gives the same bytes. (scripts/check-package installs them, and builds twice.)
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "package_test: $*" >&2
  exit 1
}
for program in dpkg-deb dpkg-shlibdeps file gzip; do
  command -v "$program" >/dev/null || { echo "package_test: no $program; not tested"; exit 77; }
done

"$source/scripts/package" "$build" "$work/first" deb >/dev/null
(umask 077 && TZ=Asia/Kathmandu LC_ALL=C.UTF-8 "$source/scripts/package" "$build" "$work/second" deb >/dev/null)
for file in "$work"/first/*.deb; do
  cmp "$file" "$work/second/$(basename "$file")" || fail "$(basename "$file") is not the same twice"
done
package=$(echo "$work"/first/clearhead_*.deb)
[ -s "$package" ] || fail "there is no clearhead_*.deb"
development=$(echo "$work"/first/clearhead-dev_*.deb)

# Everybody's: the system's owner, no foreign umask, one date.
dpkg-deb -c "$package" >"$work/list"
strange=$(awk '$1 !~ /^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--|lrwxrwxrwx)$/ || $2 != "root/root"' "$work/list")
[ -z "$strange" ] || fail "permissions or owner: $(head -n 1 <<<"$strange")"
[ "$(awk '{print $4, $5}' "$work/list" | sort -u | wc -l)" -eq 1 ] || fail "files have different dates"

has() { # LIST PATTERN
  grep -Eq "$2" "$1" || fail "nothing in the package is like $2"
}
for pattern in ' \./usr/bin/clearhead$' ' \./usr/lib/.*libclearhead\.so\.0' '/models/tale/model\.safetensors$' '/models/addition-sparse/config\.json$' \
  '/man1/clearhead\.1\.gz$' '/bash-completion/completions/clearhead$' '/_clearhead$' '/clearhead\.fish$' \
  '/doc/clearhead/copyright$' '/doc/clearhead/changelog\.gz$' '/doc/clearhead/docs/heads\.md$' '/doc/clearhead/examples/.*\.ipynb$'; do
  has "$work/list" "$pattern"
done
dpkg-deb -c "$development" >"$work/development"
for pattern in '/include/clearhead/model\.h$' '/clearheadConfig\.cmake$' '/clearhead\.pc$' 'libclearhead\.so -> '; do
  has "$work/development" "$pattern"
done
# A page for every command.
dpkg-deb -x "$package" "$work/root"
commands=$("$work/root/usr/bin/clearhead" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ "$(wc -w <<<"$commands")" -gt 20 ] || fail "--help lists only: $commands"
for name in $commands; do
  [ -s "$work/root/usr/share/man/man1/clearhead-$name.1.gz" ] || fail "there is no manual page of $name"
done
# The program finds its models where the package puts them; its libraries are named; MPI is not one of them.
said=$(cd / && env -u CLEARHEAD_MODELS "$work/root/usr/bin/clearhead" generate addition --prompt '43+25=' --max-new 3)
[ "$said" = "43+25=068" ] || fail "the packed program said: $said"
depends=$(dpkg-deb -f "$package" Depends)
for library in libc6 libcairo2 libfmt libhwy libpcre2-8-0; do
  [[ $depends == *"$library"* ]] || fail "the package does not depend on $library: $depends"
done
[[ $depends != *mpi* ]] || fail "the package depends on an MPI: $depends"
# Nothing knows where it was built.
known=$(grep -rlaF -e "$source" -e "$build" "$work/root" || true)
[ -z "$known" ] || fail "the build folder's name is in $known"
if command -v lintian >/dev/null; then
  findings=$(lintian --fail-on error "$work"/first/*.deb 2>&1) || fail "lintian: $(grep '^E:' <<<"$findings" | head -n 3)"
  echo "package_test: lintian finds no error"
fi
echo "package_test: the packages are complete"
