#!/usr/bin/env bash
# clang-format and clang-tidy over the C++ files that changed; ruff, mypy and import-linter over the Python files; check-jsonschema and
# zizmor over the workflows of GitHub Actions.
#
#   scripts/check-style.sh [--all] [--fix] [BASE]
#
# Changed means: differs from BASE, which is the commit where this branch left the main line, or, on the main line itself,
# the commit before the last. --all checks the format of every file, --fix formats in place first. The changed files that build/
# compiles go through clang-tidy, one per core: all of them, or the MAX_TIDY smallest if a branch changed more; the rest are named.
set -euo pipefail
cd "$(dirname "$0")/.."
MAX_TIDY=${MAX_TIDY:-8}

all=no fix=no base=
for argument in "$@"; do
  case "$argument" in
  --all) all=yes ;;
  --fix) fix=yes ;;
  *) base=$argument ;;
  esac
done

git rev-parse --verify -q HEAD >/dev/null || { echo "style: left out, this is no git checkout"; exit 0; }
if [ -z "$base" ]; then
  main=$(git rev-parse --verify -q origin/main || git rev-parse --verify -q main || git rev-parse HEAD)
  base=$(git merge-base HEAD "$main")
  [ "$base" != "$(git rev-parse HEAD)" ] || base=$(git rev-parse --verify -q HEAD~1 || git rev-parse HEAD)
fi

# A Python tool of build/venv, or of the path.
python_tool() { [ -x "build/venv/bin/$1" ] && echo "build/venv/bin/$1" || command -v "$1"; }

# The package, its tests and the benchmarks are checked whenever a Python file changed: it takes seconds, and types and
# imports cross files.
check_python() {
  local files tool ruff mypy imports
  for tool in ruff mypy lint-imports; do
    python_tool "$tool" >/dev/null || {
      echo "style: Python left out, $tool is not installed (scripts/setup.sh installs it into build/venv)"
      return 0
    }
  done
  ruff=$(python_tool ruff) mypy=$(python_tool mypy) imports=$(python_tool lint-imports)
  mapfile -t files < <(git ls-files 'python/*.py' 'python/*.pyi' 'test/python/*.py' 'benchmarks/*.py')
  if [ "$fix" = yes ]; then
    "$ruff" check --quiet --fix-only --config python/pyproject.toml "${files[@]}"
    "$ruff" format --quiet --config python/pyproject.toml "${files[@]}"
  fi
  "$ruff" format --quiet --diff --config python/pyproject.toml "${files[@]}" || {
    echo "style: ruff would change these lines; scripts/check-style.sh --fix does"
    return 1
  }
  "$ruff" check --quiet --config python/pyproject.toml "${files[@]}"
  "$mypy" --no-error-summary --config-file python/pyproject.toml --cache-dir build/mypy
  PYTHONPATH=python "$imports" --no-cache --config python/pyproject.toml >build/lint-imports.log || {
    cat build/lint-imports.log
    return 1
  }
  echo "style: ruff, mypy and import-linter have nothing to say about ${#files[@]} Python files"
}

# The workflows, the actions and dependabot.yml fit their schemas, which check-jsonschema has inside, and have none of the weaknesses that zizmor
# knows. Neither asks the network. python/requirements-style.txt says why actionlint is not here.
check_workflows() {
  local tool schema zizmor files
  for tool in check-jsonschema zizmor; do
    python_tool "$tool" >/dev/null || {
      echo "style: workflows left out, $tool is not installed (scripts/setup.sh installs it into build/venv)"
      return 0
    }
  done
  schema=$(python_tool check-jsonschema) zizmor=$(python_tool zizmor)
  mapfile -t files < <(git ls-files '.github/workflows/*.yml' '.github/actions/*/action.yml' .github/dependabot.yml)
  {
    "$schema" --builtin-schema vendor.github-workflows .github/workflows/*.yml &&
      "$schema" --builtin-schema vendor.github-actions .github/actions/*/action.yml &&
      "$schema" --builtin-schema vendor.dependabot .github/dependabot.yml
  } >build/workflows.log 2>&1 || {
    cat build/workflows.log
    return 1
  }
  "$zizmor" --offline --quiet --no-progress "${files[@]}" >build/workflows.log || {
    cat build/workflows.log
    return 1
  }
  echo "style: check-jsonschema and zizmor have nothing to say about ${#files[@]} files of workflows"
}

mkdir -p build
if [ "$all" = yes ] || [ -n "$(git diff --name-only "$base" -- .github)" ]; then
  check_workflows
else
  echo "style: no workflow changed since $(git rev-parse --short "$base")"
fi
if [ "$all" = yes ] || [ "$fix" = yes ] || [ -n "$(git diff --name-only "$base" -- '*.py' '*.pyi' python/pyproject.toml)" ]; then
  check_python
else
  echo "style: no Python file changed since $(git rev-parse --short "$base")"
fi

sources=('*.cpp' '*.h' '*.c')
if [ "$all" = yes ]; then
  files=$(git ls-files "${sources[@]}")
else
  files=$(git diff --name-only --diff-filter=d "$base" -- "${sources[@]}")
fi
[ -n "$files" ] || { echo "style: no source changed since $(git rev-parse --short "$base")"; exit 0; }

if command -v clang-format-22 >/dev/null; then
  [ "$fix" = no ] || printf '%s\n' "$files" | xargs clang-format-22 -i
  unformatted=$(printf '%s\n' "$files" | xargs clang-format-22 --dry-run 2>&1 | sed -n 's/^\([^: ]*\):[0-9]*:[0-9]*: warning.*/  \1/p' | sort -u)
  if [ -n "$unformatted" ]; then
    printf 'style: clang-format would change these files; scripts/check-style.sh --fix does\n%s\n' "$unformatted"
    exit 1
  fi
  echo "style: clang-format has nothing to say about $(printf '%s\n' "$files" | wc -l) files"
else
  echo "style: clang-format left out, clang-format-22 is not installed"
fi

command -v clang-tidy-22 >/dev/null || { echo "style: clang-tidy left out, clang-tidy-22 is not installed"; exit 0; }
[ -f build/CMakeCache.txt ] || { echo "style: clang-tidy left out, build/ is not configured"; exit 0; }
# The builds compile several files at once. Here each is compiled alone, without the precompiled header, so that a missing include shows.
cmake --preset dev -B build/tidy -DCMAKE_UNITY_BUILD=OFF -DCOMMSCHED_ENABLE_PCH=OFF >build/tidy-configure.log 2>&1 || {
  cat build/tidy-configure.log
  exit 1
}
changed=$(git diff --name-only --diff-filter=d "$base" -- 'lib/*.cpp' 'tools/*.cpp' | while read -r file; do
  # Only what is compiled here can be checked.
  grep -q "/$file\"" build/tidy/compile_commands.json && printf '%s %s\n' "$(wc -c <"$file")" "$file" || true
done | sort -n | sed 's/^[0-9]* //')
[ -n "$changed" ] || { echo "style: nothing for clang-tidy changed since $(git rev-parse --short "$base")"; exit 0; }
checked=$(printf '%s\n' "$changed" | head -n "$MAX_TIDY")
rest=$(printf '%s\n' "$changed" | tail -n +$((MAX_TIDY + 1)))
printf '%s\n' "$checked" | xargs -r -P "$(nproc)" -n 1 clang-tidy-22 --quiet -p build/tidy --extra-arg="-I$PWD/build/include" --extra-arg="-I$PWD/build/lib/Report" --warnings-as-errors='*' 2>/dev/null
echo "style: clang-tidy has nothing to say about $(printf '%s\n' "$checked" | wc -l) changed files"
[ -z "$rest" ] || echo "style: clang-tidy left out, to save time (MAX_TIDY=$MAX_TIDY): $(echo $rest)"
