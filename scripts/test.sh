#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. On a Debian 12 machine nothing has to be there before.
#
#   scripts/test.sh [--no-install] [--no-gcc] [--no-sanitizers] [--rerun]
#
#   --no-install      take what is installed; what a test lacks is said and left out
#   --no-gcc          leave out the released build with gcc, without MPI, NCCL and benchmarks
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

# Every stage runs, whatever the others say, and the table at the end names each with its result: stage NAME COMMAND...
results=()
failed=no
stage() {
  local name=$1 start=$SECONDS result
  shift
  say "$name"
  if "$@"; then
    result=passed
  else
    result=FAILED
    failed=yes
  fi
  results+=("$(printf '%-44s %-6s %5d s' "$name" "$result" $((SECONDS - start)))")
}

# One test more than there are processors: many wait for others of their ranks.
run_ctest() {
  set -o pipefail
  ctest --test-dir build --output-on-failure --no-tests=error --timeout "$COMMSCHED_HANG_SECONDS" -j"$(($(nproc) + 1))" 2>&1 | tee build/ctest.log
}

stage "tests (ctest in build/)" run_ctest
stage "style of the code" scripts/check-style.sh
if [ "$gcc" = yes ]; then
  stage "gcc, released, with few parts (build/gcc)" scripts/test-gcc.sh
else
  say "left out: the build with gcc (--no-gcc)"
fi
if [ "$sanitizers" = yes ]; then
  stage "sanitizers (build/asan, build/tsan)" scripts/test-sanitizers.sh
else
  say "left out: the sanitizer builds (--no-sanitizers)"
fi

# What did not run is shown with its reason and counted, so that nobody takes a skipped test for one that passed.
skipped=$(print_skipped build; [ "$sanitizers" = no ] || print_skipped build/asan)
skipped=$(printf '%s\n' "$skipped" | sort -u | sed '/^$/d')
{
  grep -E 'tests (passed|failed)|Total Test time' build/ctest.log || true
  printf '%s\n' "${results[@]}"
  printf '%-44s %d\n' "reasons for which tests were skipped" "$(printf '%s' "$skipped" | grep -c . || true)"
} >build/last-run.log
[ -z "$skipped" ] || printf '%s\n' "$skipped"
if [ "$failed" = yes ]; then
  say "some tests FAILED, in $SECONDS s:"
  cat build/last-run.log
  exit 1
fi
cp build/last-run.log "$passed.log"
echo "$hash" >"$passed.hash"
say "all tests passed in $SECONDS s:"
cat "$passed.log"
