#!/usr/bin/env bash
# Runs the tests of the PyTorch front end with another version of PyTorch, in an environment of its own.
#
#   scripts/test-torch.sh VERSION [PYTEST-ARGUMENT...]
#
#   scripts/test-torch.sh 2.14.1                      all tests but those of JAX
#   scripts/test-torch.sh 2.14.1 test/python/test_apply.py
#
# VERSION is one that pip can install; the environment is build/torch-VERSION, and takes up to 6 GB. Needs a built tree: scripts/setup.sh,
# then scripts/test.sh or ninja.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

version=${1:-}
[[ $version =~ ^[0-9]+\.[0-9]+ ]] || fail "expected a version of PyTorch, got '$version'; see the first lines of scripts/test-torch.sh"
shift
require_tools
[ -f build/lib/libCommSched-c.so ] || fail "build/lib/libCommSched-c.so is missing: build the tree first"

venv=build/torch-$version
if [ ! -f "$venv/complete" ]; then
  say "installing PyTorch $version into $venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "torch==$version" numpy pytest pytest-xdist hypothesis jsonschema \
    scikit-build-core setuptools
  touch "$venv/complete"
fi
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e python
[ $# -gt 0 ] || set -- test/python
# A version that is not supported yet is tried, too.
"$venv/bin/python" -c 'import commsched.torch' 2>/dev/null || export COMMSCHED_ANY_TORCH=1
COMMSCHED_COMM_RUN=$PWD/build/bin/comm-run COMMSCHED_LIBRARY=$PWD/build/lib/libCommSched-c.so \
  "$venv/bin/python" -m pytest -q -rs -n 4 --dist worksteal -p no:cacheprovider --ignore-glob='*test_jax*' "$@"
