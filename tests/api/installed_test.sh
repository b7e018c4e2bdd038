#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# installed_test.sh BUILD SOURCE: installs into a folder of its own and uses what is there, as a stranger would.
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "installed_test: $*" >&2
  exit 1
}

cmake --install "$build" --prefix "$work/made" >/dev/null
mv "$work/made" "$work/prefix"  # nothing may know where it was installed first
prefix=$work/prefix
library=$(find "$prefix" -name 'libclearhead.so')
[ -n "$library" ] || fail "no libclearhead.so"

# 1. The example project, outside the tree, by find_package.
cp -r "$source/examples/cpp" "$work/project"
cmake -S "$work/project" -B "$work/project-build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 || { cat "$work/log"; fail "configuring the example"; }
cmake --build "$work/project-build" >"$work/log" 2>&1 || { cat "$work/log"; fail "building the example"; }
out=$("$work/project-build/look_at_heads" addition '43+25=')
for line in '^L0H0 looks at' '^expects: ' '^without that head: '; do
  grep -q "$line" <<<"$out" || fail "the example said: $out"
done
"$work/project-build/look_at_heads" no-such-model x 2>"$work/err" && fail "an unknown model was taken"
grep -q "there is no model 'no-such-model'" "$work/err" || fail "an error said: $(cat "$work/err")"
sed -i 's/clearhead 0.2/clearhead 0.1/' "$work/project/CMakeLists.txt"
if cmake -S "$work/project" -B "$work/older" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null 2>&1; then
  fail "find_package(clearhead 0.1) was content with this version"
fi

# 2. The same by pkg-config.
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name clearhead.pc)")
read -ra flags <<<"$(pkg-config --cflags --libs clearhead)"
c++ "$source/examples/cpp/main.cc" "${flags[@]}" -Wl,-rpath,"$(dirname "$library")" -o "$work/by-pkg-config"
[ "$("$work/by-pkg-config" addition '43+25=')" = "$out" ] || fail "the example by pkg-config gives something else"

# 3. The surface: every header by itself, with no foreign header behind it; no symbol but ours.
for header in "$prefix"/include/clearhead/*.h; do
  name=clearhead/$(basename "$header")
  echo "#include <$name>" | c++ -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$prefix/include" -x c++ - || fail "$name does not compile by itself"
  foreign=$(echo "#include <$name>" | c++ -std=c++20 -M -I"$prefix/include" -x c++ - | tr ' ' '\n' |
    grep -E '^/usr/include/(fmt|nlohmann|CLI|hwy|httplib|yaml|cairo|pcre|utf8proc|x86_64-linux-gnu/openblas)' || true)
  [ -z "$foreign" ] || fail "$name shows $foreign"
done
others=$(nm -DC --defined-only "$library" | cut -d' ' -f3- | grep -vE '^((typeinfo|typeinfo name|vtable) for )?clearhead::api::' || true)
[ -z "$others" ] || fail "libclearhead.so also shows: $(head -3 <<<"$others")"

# 4. The program, moved away from its build, finds its models; loading the library starts no thread.
"$prefix/bin/clearhead" tokenize addition --text '43+25=' >/dev/null || fail "the installed program finds no model"

# 5. A manual page for every command, that man can set, with every option of --help on it.
pages=$prefix/share/man/man1
for page in clearhead.1 clearhead-features-train.1; do
  [ -s "$pages/$page" ] || fail "the manual page $page is missing"
done
if command -v man >/dev/null; then
  for page in "$pages"/*.1; do
    warnings=$(LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -E UTF-8 -l "$page" 2>&1 >/dev/null)
    [ -z "$warnings" ] || fail "$(basename "$page"): $(head -1 <<<"$warnings")"
  done
fi
for words in heads 'features train' sparsify; do
  read -ra command <<<"$words"
  for option in $("$prefix/bin/clearhead" "${command[@]}" --help | grep -oE -- '^ +--[a-z-]+' | tr -d ' '); do
    grep -qF -- "${option//-/\\-}" "$pages/clearhead-${words// /-}.1" || fail "clearhead-${words// /-}.1 does not have $option"
  done
done

# 6. Completions do complete.
complete_bash() { # words...: what the last one may become
  bash -c 'source "$1"; shift; COMP_WORDS=(clearhead "$@"); COMP_CWORD=$#; _clearhead; printf "%s\n" "${COMPREPLY[@]}"' _ \
    "$prefix/share/bash-completion/completions/clearhead" "$@"
}
[ "$(complete_bash spar)" = sparsify ] || fail "bash: spar became $(complete_bash spar)"
[ "$(complete_bash features tr)" = train ] || fail "bash: features tr became $(complete_bash features tr)"
[ "$(complete_bash circuit x --ablation me)" = mean ] || fail "bash: --ablation me"
complete_bash heads tale --so | grep -qx -- --sort || fail "bash: --so"
if command -v zsh >/dev/null; then zsh -n "$prefix/share/zsh/vendor-completions/_clearhead" || fail "zsh cannot read its completion"; fi
if command -v fish >/dev/null; then
  fish -n "$prefix/share/fish/vendor_completions.d/clearhead.fish" || fail "fish cannot read its completion"
  fish -c "source $prefix/share/fish/vendor_completions.d/clearhead.fish; complete -C'clearhead spar'" | grep -q '^sparsify' || fail "fish: spar"
fi
echo "installed_test: all found as it should be"
