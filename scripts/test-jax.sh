#!/usr/bin/env bash
# Runs the tests of the JAX front end with another version of JAX, in an environment of its own, without PyTorch.
#
#   scripts/test-jax.sh VERSION [PYTEST-ARGUMENT...]
#
#   scripts/test-jax.sh 0.12.0.1                      all tests that need jax and not PyTorch
#   scripts/test-jax.sh 0.12.0.1 test/python/test_jax.py
#
# VERSION is one that pip can install: of jax, jaxlib, and the plugin of XLA for CUDA 12. The environment is build/jax-VERSION, and takes up
# to 2 GB. jax 0.11 needs Python 3.12: the newest Python of this machine makes the environment. Needs a built tree: scripts/setup.sh, then
# scripts/test.sh or ninja.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

version=${1:-}
[[ $version =~ ^[0-9]+\.[0-9]+ ]] || fail "expected a version of JAX, got '$version'; see the first lines of scripts/test-jax.sh"
shift
require_tools
[ -f build/lib/libCommSched-c.so ] || fail "build/lib/libCommSched-c.so is missing: build the tree first"

venv=build/jax-$version
if [ ! -f "$venv/complete" ]; then
  for python in python3.14 python3.13 python3.12 python3; do
    "$python" -c '' 2>/dev/null && break
  done
  say "installing JAX $version into $venv, with $("$python" --version)"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "jax==$version" "jaxlib==$version" "jax-cuda12-plugin==$version" \
    "jax-cuda12-pjrt==$version" numpy pytest pytest-xdist hypothesis jsonschema scikit-build-core setuptools
  touch "$venv/complete"
fi
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e python
[ $# -gt 0 ] || set -- test/python/test_{jax,jax_donation,jax_memory,jax_ranks,jax_text,stablehlo}.py
# The fixtures of conftest.py are those of PyTorch.
COMMSCHED_STRICT=1 COMMSCHED_COMM_RUN=$PWD/build/bin/comm-run PYTHONPATH=benchmarks \
  "$venv/bin/python" -m pytest -q -rs -n 4 --dist worksteal -p no:cacheprovider --noconftest "$@"
