#!/usr/bin/env bash
# Prints code=true if anything but pages of text changed since a commit, or code=false: .ci/changed.sh COMMIT. The jobs of
# .github/workflows/ci.yml that no page can break run only in the first case. An unknown commit counts as a change.
set -euo pipefail
cd "$(dirname "$0")/.."

code=true
if git rev-parse --verify -q "${1:-}^{commit}" >/dev/null; then
  changed=$(git diff --name-only "$1" HEAD -- . ':!*.md' ':!docs/img')
  [ -n "$changed" ] || code=false
fi
echo "code=$code"
