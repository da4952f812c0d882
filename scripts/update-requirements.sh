#!/usr/bin/env bash
# Renews python/lock.txt and python/lock-torchtitan.txt: the exact version of every Python package that the lists
# python/requirements*.txt lead to, dependences included. People edit the lists; only this script writes the locks.
#
#   scripts/update-requirements.sh [--keep | --newest]
#
#   no option   takes the newest versions that the lists allow
#   --keep      changes no version: adds and removes what a change of a list asks for
#   --newest    also raises the exact versions in the lists (torch, jax), for which the code may not be ready
#
# Needs uv, which scripts/setup.sh installs, and a package index. It reads only the packages' metadata. The locks hold for Linux on x86-64 and
# Debian 12's Python, and name no index.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

mode=upgrade
case "${1:-}" in
"") ;;
--keep) mode=keep ;;
--newest) mode=newest ;;
-h | --help)
  sed -n 's/^# \{0,1\}//p' "$0" | sed '/^!/d'
  exit 0
  ;;
*) fail "unknown argument $1; see scripts/update-requirements.sh --help" ;;
esac

uv=build/venv/bin/uv
[ -x "$uv" ] || uv=$(command -v uv) || fail "uv is missing; scripts/setup.sh --style installs it into build/venv"

# The lists that scripts/setup.sh and scripts/test-wheel.sh install, and those of an environment with torchtitan.
lists=(python/requirements.txt python/requirements-{style,jax,cuda,docs,wheel}.txt)
titan_lists=(python/requirements.txt python/requirements-torchtitan.txt)

# Writes a lock: compile LOCK LIST...
compile() {
  local lock=$1 options=(--upgrade)
  shift
  [ "$mode" != keep ] || options=()
  "$uv" pip compile --quiet --no-config --system-certs --python-version 3.11 --python-platform x86_64-manylinux_2_34 "${options[@]}" \
    --custom-compile-command scripts/update-requirements.sh --output-file "$lock" "$@"
}

# Leaves the names of exact packages without their versions in a list, and prints the names.
loosen() {
  sed -n 's/^\([A-Za-z0-9_.-]*\)==.*/\1/p' "$1"
  sed -i 's/^\([A-Za-z0-9_.-]*\)==.*/\1/' "$1"
}

# Gives packages in a list the versions that a lock has: tighten LIST LOCK NAME...
tighten() {
  local list=$1 lock=$2 name version
  shift 2
  for name in "$@"; do
    version=$(sed -n "s/^$name==//p" "$lock")
    [ -n "$version" ] || fail "expected a version of $name in $lock"
    sed -i "s/^$name\$/$name==$version/" "$list"
  done
}

declare -A exact
if [ "$mode" = newest ]; then
  for list in "${lists[@]}" python/requirements-torchtitan.txt; do
    exact[$list]=$(loosen "$list")
  done
fi
compile python/lock.txt "${lists[@]}"
if [ "$mode" = newest ]; then
  for list in "${lists[@]}"; do
    # Names are separate words.
    # shellcheck disable=SC2086
    tighten "$list" python/lock.txt ${exact[$list]}
  done
fi
compile python/lock-torchtitan.txt "${titan_lists[@]}"
if [ "$mode" = newest ]; then
  # shellcheck disable=SC2086
  tighten python/requirements-torchtitan.txt python/lock-torchtitan.txt ${exact[python/requirements-torchtitan.txt]}
fi
git --no-pager diff --stat -- python
