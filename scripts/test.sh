#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. On a Debian 12 machine nothing has to be there before.
#
#   scripts/test.sh [--no-install] [--no-gcc] [--no-sanitizers] [--rerun]
#
#   --no-install      take what is installed; what a test lacks is said and left out
#   --no-gcc          leave out the released build with gcc, without MPI, NCCL and Python
#   --no-sanitizers   leave out the build with address and undefined-behaviour sanitizers
#   --rerun           run also if nothing changed since the last run that passed
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

install=yes gcc=yes sanitizers=yes rerun=no
for argument in "$@"; do
  case "$argument" in
  --no-install) install=no ;;
  --no-gcc) gcc=no ;;
  --no-sanitizers) sanitizers=no ;;
  --rerun) rerun=yes ;;
  -h | --help)
    sed -n 's/^# \{0,1\}//p' "$0" | sed '/^!/d'
    exit 0
    ;;
  *) fail "unknown argument $argument; see scripts/test.sh --help" ;;
  esac
done

# A hash over every file of the tree but what is built, and over the toolchain.
tree_hash() {
  {
    find . \( -path ./build -o -path './build-*' -o -path ./.git -o -path ./.cache -o -name __pycache__ -o -name .pytest_cache -o -name '*.egg-info' \) -prune \
      -o -type f -print0 | sort -z | xargs -0 sha256sum
    dpkg-query -W -f '${Version}\n' "${COMMSCHED_DEBIAN_PACKAGES[@]}" 2>/dev/null || true
    echo "$gcc $sanitizers"
  } | sha256sum
}

setup "$install"

passed=build/last-passed
hash=$(tree_hash)
if [ "$rerun" = no ] && [ -f "$passed.hash" ] && [ "$(cat "$passed.hash")" = "$hash" ]; then
  say "nothing changed since the run below passed, on $(date -r "$passed.hash" '+%F %T'); --rerun runs it again"
  cat "$passed.log"
  exit 0
fi

say "building (build/)"
build_tree
install_package

say "tests"
ctest --test-dir build --output-on-failure --no-tests=error --timeout "$COMMSCHED_HANG_SECONDS" -j"$(nproc)" 2>&1 | tee build/ctest.log
print_skipped build

say "style of the code"
scripts/check-style.sh

if [ "$gcc" = yes ]; then
  say "building with gcc, released, without MPI, NCCL and Python (build/gcc)"
  scripts/test-gcc.sh
else
  say "left out: the build with gcc (--no-gcc)"
fi

if [ "$sanitizers" = yes ]; then
  say "building with address and undefined-behaviour sanitizers (build/asan)"
  scripts/test-sanitizers.sh
else
  say "left out: the sanitizer build (--no-sanitizers)"
fi

grep -E 'tests (passed|failed)|Total Test time' build/ctest.log >"$passed.log"
echo "$hash" >"$passed.hash"
say "all tests passed in $SECONDS s; ctest said:"
cat "$passed.log"
