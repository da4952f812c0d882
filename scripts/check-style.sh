#!/usr/bin/env bash
# clang-format over every source file, and clang-tidy over those that changed.
#
#   scripts/check-style.sh [--fix] [BASE]
#
# --fix formats the files in place first. Changed means: differs from BASE, which is the commit where this branch left the main line, or, on the main line itself,
# the commit before the last. At most MAX_TIDY files go through clang-tidy, the smallest first; the rest are named.
set -euo pipefail
cd "$(dirname "$0")/.."
MAX_TIDY=${MAX_TIDY:-8}

files=$(git ls-files '*.cpp' '*.h' '*.c' 2>/dev/null | grep -v '/Inputs/' || true)
[ -n "$files" ] || { echo "style: left out, this is no git checkout"; exit 0; }
if command -v clang-format-22 >/dev/null; then
  if [ "${1:-}" = --fix ]; then
    shift
    printf '%s\n' "$files" | xargs clang-format-22 -i
  fi
  unformatted=$(printf '%s\n' "$files" | xargs clang-format-22 --dry-run 2>&1 | sed -n 's/^\([^: ]*\):[0-9]*:[0-9]*: warning.*/  \1/p' | sort -u)
  if [ -n "$unformatted" ]; then
    printf 'style: clang-format would change these files; scripts/check-style.sh --fix does\n%s\n' "$unformatted"
    exit 1
  fi
  echo "style: clang-format has nothing to say about $(printf '%s\n' "$files" | wc -l) files"
else
  echo "style: left out, clang-format-22 is not installed"
fi

command -v clang-tidy-22 >/dev/null || { echo "style: clang-tidy left out, clang-tidy-22 is not installed"; exit 0; }
base=${1:-}
if [ -z "$base" ]; then
  head=$(git rev-parse HEAD)
  base=$(git merge-base HEAD "$(git rev-parse --verify -q origin/main || git rev-parse --verify -q main || echo HEAD)")
  [ "$base" != "$head" ] || base=$(git rev-parse --verify -q HEAD~1 || echo "$head")
fi
changed=$(git diff --name-only --diff-filter=d "$base" -- 'lib/*.cpp' 'tools/*.cpp' | while read -r file; do
  # Only what build/ compiles can be checked.
  grep -q "/$file\"" build/compile_commands.json 2>/dev/null && printf '%s %s\n' "$(wc -c <"$file")" "$file"
done | sort -n | sed 's/^[0-9]* //')
[ -n "$changed" ] || { echo "style: no source changed since $(git rev-parse --short "$base"), so clang-tidy has nothing to do"; exit 0; }
rest=$(printf '%s\n' "$changed" | tail -n +$((MAX_TIDY + 1)))
printf '%s\n' "$changed" | head -n "$MAX_TIDY" | xargs -P "$(nproc)" -n 1 clang-tidy-22 --quiet -p build --warnings-as-errors='*' 2>/dev/null
echo "style: clang-tidy has nothing to say about $(printf '%s\n' "$changed" | head -n "$MAX_TIDY" | wc -l) changed files"
[ -z "$rest" ] || echo "style: clang-tidy left out, to save time (MAX_TIDY=$MAX_TIDY): $(echo $rest)"
