#!/usr/bin/env bash
# Installs what CommSched needs and is not there yet: Debian packages, and a Python environment in build/venv.
# scripts/test.sh and scripts/demo.sh source this file; by itself it only installs.
#
#   scripts/setup.sh [--without-python | --style]
#
#   --without-python   leave out the Python environment
#   --style            install only what scripts/check-style.sh runs, without clang-tidy, and uv
#
# Works on Debian 12 as root or with sudo. LLVM 22 comes from the suite bookworm-security. A second call finds everything
# in place and changes nothing.

# What building and testing need. libclang-rt holds the sanitizers' run-time libraries; chromium opens the timeline page.
COMMSCHED_DEBIAN_PACKAGES=(
  ca-certificates ccache chromium clang-22 clang-format-22 clang-tidy-22 cmake g++ git libbenchmark-dev libclang-rt-22-dev
  libgtest-dev libmlir-22-dev libopenmpi-dev lld-22 llvm-22 llvm-22-dev llvm-22-tools mlir-22-tools ninja-build openmpi-bin
  python3 python3-dev python3-venv
)

# After this time a test hangs. It is far above what any test takes on a busy machine.
COMMSCHED_HANG_SECONDS=3600

say() { printf '== %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Runs a command as root.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "installing packages needs root: run this as root, install sudo, or install by hand and pass --no-install"
  fi
}

# The names among COMMSCHED_DEBIAN_PACKAGES that are not installed.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${COMMSCHED_DEBIAN_PACKAGES[@]}" 2>/dev/null |
    sed -n 's/^installed //p' || true) # dpkg-query fails when it does not know one of them
  comm -23 <(printf '%s\n' "${COMMSCHED_DEBIAN_PACKAGES[@]}" | sort -u) <(printf '%s\n' "$installed" | sort -u)
}

apt_knows_security() { apt-get indextargets --format '$(SUITE)$(CODENAME)$(RELEASE)' 2>/dev/null | grep -q 'bookworm-security'; }

# LLVM 22 lives in bookworm-security. A bare debootstrap tree has only bookworm: add the suite beside it, on the same mirror.
ensure_security_suite() {
  apt_knows_security && return
  say "bookworm-security is not among apt's sources, and LLVM 22 comes from there"
  local list=/etc/apt/sources.list.d/commsched-security.list uri
  uri=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 2>/dev/null | sed -n 's/^bookworm //p' | head -n 1)
  uri=${uri%/}
  [ -n "$uri" ] || fail "apt has no source for bookworm: this script supports Debian 12; elsewhere install LLVM/MLIR 22 by hand and pass --no-install"
  say "adding it as $list, from the mirror that bookworm comes from"
  echo "deb $uri-security bookworm-security main" | as_root tee "$list" >/dev/null
  if ! as_root apt-get update -q || ! apt_knows_security; then
    as_root rm -f "$list"
    fail "that mirror has no bookworm-security: add the suite to apt's sources by hand and run this again"
  fi
}

install_packages() {
  command -v dpkg-query >/dev/null || fail "this is not Debian: install LLVM/MLIR 22, CMake, Ninja and clang by hand and pass --no-install"
  local missing
  mapfile -t missing < <(missing_packages)
  if [ ${#missing[@]} = 0 ]; then
    say "Debian packages: all ${#COMMSCHED_DEBIAN_PACKAGES[@]} are installed"
    return
  fi
  say "Debian packages: installing ${missing[*]}"
  as_root apt-get update -q
  ensure_security_suite
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# Installs lists of Python packages, in the versions of python/lock.txt: install_lists VENV -r LIST...
install_lists() {
  local venv=$1
  shift
  "$venv/bin/pip" install --quiet --disable-pip-version-check -c python/lock.txt "$@"
}

# Makes build/venv, if it is not there, with Debian's Python.
ensure_venv() {
  local python=/usr/bin/python3
  [ -x "$python" ] || python=python3
  [ -x build/venv/bin/python ] || "$python" -m venv build/venv
}

# Installs the Python packages of a list that a part of the tests needs, and says what is left out if they cannot be installed.
install_optional() {
  install_lists "$1" -r "$2" && return
  say "left out: $3, for what $2 lists cannot be installed here"
  return 1
}

# The Python environment: what python/requirements.txt and -style.txt list, and the lists of parts of the tests. A package index without
# XLA's plugin, NVIDIA's packages or mkdocs costs the tests that need them, and nothing else.
install_python() {
  local venv=build/venv stamp=build/venv/requirements-stamp want complete=yes
  want=$(cat python/requirements.txt python/requirements-{style,jax,cuda,docs}.txt python/lock.txt | sha256sum)
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then
    say "Python packages: build/venv has what python/requirements.txt, -style.txt, -jax.txt, -cuda.txt and -docs.txt list"
    return
  fi
  say "Python packages: installing python/requirements.txt and its further lists into build/venv (torch and jax are large)"
  ensure_venv
  install_lists "$venv" -r python/requirements.txt -r python/requirements-style.txt
  install_optional "$venv" python/requirements-jax.txt "the tests of commsched.jax" || complete=no
  install_optional "$venv" python/requirements-cuda.txt "the tests against NVIDIA's headers, NVRTC and ptxas" || complete=no
  install_optional "$venv" python/requirements-docs.txt "the site of the documentation and its test" || complete=no
  [ "$complete" = no ] || echo "$want" >"$stamp"
}

# Headers that the tests compare our declarations with: each line has a folder of build/ and the packages that are unpacked there. They are of
# releases of CUDA beside the one of python/requirements-cuda.txt, and of the NCCL whose functions and layouts we declare. NCCL's package has
# 350 MB, of which the headers are 1 MB: libraries are not kept. The headers of cuBLASLt are left out, for their package has 370 to 670 MB.
COMMSCHED_HEADERS=(
  "cuda/13.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88"
  "cuda/13.5 nvidia-cuda-runtime==13.5.37 nvidia-cuda-crt==13.5.37"
  "nccl nvidia-nccl-cu12==2.32.3"
)
install_headers() {
  local entry folder packages
  for entry in "${COMMSCHED_HEADERS[@]}"; do
    read -r folder packages <<<"$entry"
    [ -f "build/$folder/stamp" ] && [ "$(cat "build/$folder/stamp")" = "$packages" ] && continue
    rm -rf "build/$folder"
    # The packages are separate words.
    # shellcheck disable=SC2086
    if build/venv/bin/pip install --quiet --disable-pip-version-check --no-deps --target "build/$folder" $packages; then
      rm -rf "build/$folder"/nvidia/*/lib
      echo "$packages" >"build/$folder/stamp"
    else
      rm -rf "build/$folder"
      say "left out: the test against the headers of $packages, which cannot be installed here"
    fi
  done
}

# The commsched package of this tree, in build/venv: its Python files are used in place, and a copy of
# libCommSched-c.so is installed again when it changed. Needs the tree to be built, and no network.
install_package() {
  local venv=build/venv stamp=build/venv/package-stamp want
  if [ ! -x "$venv/bin/python" ]; then
    say "left out: the Python package, for there is no build/venv (--no-install)"
    return
  fi
  # The names of the Python files count too: the installation maps each module to its file.
  want=$({
    find python/commsched python/commsched_tools python/commsched_verify python/packaging -name '*.py' | sort
    cat python/pyproject.toml python/CMakeLists.txt machines/* schemas/* build/lib/libCommSched-c.so
  } | sha256sum)
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && return
  say "Python packages: installing commsched from this tree into build/venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e python
  echo "$want" >"$stamp"
}

# Stops with the reason when --no-install leaves something out that the build cannot do without.
require_tools() {
  local tool
  for tool in cmake ninja clang++-22; do
    command -v "$tool" >/dev/null || fail "$tool is missing; run without --no-install, or install: ${COMMSCHED_DEBIAN_PACKAGES[*]}"
  done
  [ -f /usr/lib/llvm-22/lib/cmake/mlir/MLIRConfig.cmake ] || fail "libmlir-22-dev is missing; run without --no-install"
}

# Installs everything, unless the caller says not to: setup yes|no [without-python].
setup() {
  mkdir -p build
  if [ "$1" = yes ]; then
    install_packages
    if [ "${2:-}" != without-python ]; then
      install_python
      install_headers
    fi
  else
    say "--no-install: taking what is there"
  fi
  require_tools
}

# Installs what scripts/check-style.sh needs to run everything but clang-tidy, which needs a built tree.
setup_style() {
  COMMSCHED_DEBIAN_PACKAGES=(ca-certificates clang-format-22 git python3 python3-venv)
  mkdir -p build
  install_packages
  say "Python packages: installing python/requirements-style.txt into build/venv"
  ensure_venv
  install_lists build/venv -r python/requirements-style.txt
}

# Configures build/ once and builds the given targets (all of them without arguments).
build_tree() {
  local options=(-DCOMMSCHED_ENABLE_MPI=OFF -DCOMMSCHED_ENABLE_BENCHMARKS=OFF)
  command -v mpicc >/dev/null && options[0]=-DCOMMSCHED_ENABLE_MPI=ON || say "MPI is not installed: its backend is left out"
  [ -f /usr/include/benchmark/benchmark.h ] && options[1]=-DCOMMSCHED_ENABLE_BENCHMARKS=ON ||
    say "Google Benchmark is not installed: the benchmarks are left out"
  cmake --preset dev "${options[@]}" >build/configure.log 2>&1 || {
    cat build/configure.log
    fail "configuring failed"
  }
  local start=$SECONDS
  ninja -C build "$@" >build/build.log 2>&1 || {
    tail -n 60 build/build.log
    fail "the build failed; all of its output is in build/build.log"
  }
  say "built in $((SECONDS - start)) s"
}

# Prints what the last ctest of a build tree skipped, with the reasons that the tests gave: print_skipped BUILD-TREE.
print_skipped() {
  local log=$1/Testing/Temporary/LastTest.log
  { sed -n '/: Skipped$/{n;p}' "$log"; sed -n 's/^SKIPPED \[[0-9]*\] //p' "$log"; } | sort -u | sed 's/^/== skipped: /'
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  cd "$(dirname "$0")/.."
  case "${1:-}" in
  "") setup yes ;;
  --without-python) setup yes without-python ;;
  --style) setup_style ;;
  *) fail "unknown argument $1: scripts/setup.sh [--without-python | --style]" ;;
  esac
  say "everything is installed"
fi
