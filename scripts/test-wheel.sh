#!/usr/bin/env bash
# Builds the Python wheel, installs it into a bare Debian without LLVM, compilers and network, and schedules, runs and checks
# programs there. The results have to be those of the build tree, byte for byte.
#
#   scripts/test-wheel.sh [--no-build] [--release=NAME]
#
#   --no-build       take the wheel that is in build/wheel, and the tools that are in build/bin
#   --release=NAME   the release of Debian: bookworm, with Python 3.11 (the default), or trixie, with Python 3.13
#
# Needs root or sudo, debootstrap and a Debian mirror. The bare system is made once, in build/bare-NAME, and takes minutes and
# 300 MB; that is why scripts/test.sh does not call this script. It is run before a release.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

build=yes release=bookworm
for argument in "$@"; do
  case "$argument" in
  --no-build) build=no ;;
  --release=*) release=${argument#*=} ;;
  *) fail "unknown argument $argument: scripts/test-wheel.sh [--no-build] [--release=NAME]" ;;
  esac
done
bare=build/bare-$release example=docs/examples/hide_one_gather.mlir program=test/Run/collectives.mlir
limit=$((60 * 1000 * 1000))

if [ "$build" = yes ]; then
  require_tools
  mkdir -p build
  say "building the tools (build/)"
  build_tree comm-opt comm-run
  say "building the wheel (build/wheel)"
  rm -rf build/wheel
  python3 -m venv build/wheel-venv
  # What builds the wheel has the versions of the lock. Older releases of pip read the first variable for that, newer ones the second.
  PIP_CONSTRAINT=$PWD/python/lock.txt PIP_BUILD_CONSTRAINT=$PWD/python/lock.txt \
    build/wheel-venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps -w build/wheel ./python
fi
wheels=(build/wheel/*.whl)
wheel=${wheels[0]}
[ -f "$wheel" ] || fail "expected a wheel in build/wheel: run this without --no-build"
size=$(stat -c %s "$wheel")
say "$(basename "$wheel"): $((size / 1000000)) MB"
[[ $wheel == *-py3-none-manylinux_2_34_* ]] || fail "expected the tags py3-none-manylinux_2_34, got $(basename "$wheel")"
[ "$size" -lt $limit ] || fail "expected fewer than $limit bytes, got $size"

if [ ! -f "$bare/complete" ]; then
  command -v debootstrap >/dev/null || fail "debootstrap is not installed"
  mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' | sed -n 's/^bookworm //p' | head -n 1)
  say "making a bare Debian $release ($bare)"
  as_root debootstrap --variant=minbase --include=python3,python3-venv "$release" "$bare" "$mirror" >build/bare.log || {
    tail -n 20 build/bare.log
    fail "debootstrap failed; all of its output is in build/bare.log"
  }
  as_root touch "$bare/complete"
fi
as_root rm -rf "$bare/wheel-test"
as_root mkdir -p "$bare/wheel-test"
as_root cp "$wheel" "$example" "$program" "$bare/wheel-test"

say "expected results, from the build tree"
out=build/wheel-expected
rm -rf "$out" && mkdir -p "$out"
build/bin/comm-opt "$example" --reorder-comm-overlap >"$out/scheduled.mlir" 2>/dev/null
build/bin/comm-run "$program" --ranks 4 --entry all_reduce --print >"$out/run.txt"

say "installing it there, without network"
# Runs a script in the bare system, with nothing of this machine's environment and without its network. The loader reads in /proc
# where a program is, so that is mounted, for the script only.
inside() {
  as_root unshare --net --mount bash -euc 'mount -t proc proc "$0/proc"
    exec chroot "$0" env -i PATH=/usr/bin:/bin HOME=/wheel-test bash -euc "cd /wheel-test; $1"' "$bare" "$1"
}
inside '! ls -d /usr/lib/llvm* /usr/bin/*clang* /usr/bin/gcc 2>/dev/null
  python3 -m venv venv
  venv/bin/pip install --quiet --disable-pip-version-check --no-index ./*.whl'

# Profiles name their schema by its place beside them.
inside 'cd venv/lib/python3*/site-packages/commsched/machines && test -f ../schemas/profile.schema.json'

say "scheduling, running and checking programs there"
inside 'PATH=$PWD/venv/bin:$PATH
  comm-opt hide_one_gather.mlir --reorder-comm-overlap --comm-certificate=cert >scheduled.mlir
  commsched-verify cert --html=cert.html && test -s cert.html
  for tool in comm-calibrate comm-lsp-server comm-opt comm-place comm-reduce comm-run comm-verify-spmd commsched-hlo; do
    $tool --version | grep -q "^$tool, CommSched " || { echo "$tool does not say its version"; exit 1; }
    test -s venv/share/man/man1/$tool.1 || { echo "$tool has no manual page"; exit 1; }
  done
  comm-place hide_one_gather.mlir >/dev/null
  comm-verify-spmd scheduled.mlir scheduled.mlir
  comm-calibrate --cache=none --kinds=all_reduce --measure=collectives --max-bytes=4096 --quiet -o mine.json
  comm-opt hide_one_gather.mlir --reorder-comm-overlap --comm-machine=./mine.json >/dev/null
  comm-run collectives.mlir --ranks 4 --entry all_reduce --print >run.txt
  python - <<END
from pathlib import Path
from commsched import Program

program = Program(Path("hide_one_gather.mlir").read_text())
program.run("reorder-comm-overlap")
Path("from-python.mlir").write_text(str(program))
try:
    import commsched.torch
except ImportError as error:
    print(error)
else:
    raise SystemExit("expected that commsched.torch cannot be imported without torch")
END'
for file in scheduled.mlir run.txt; do
  cmp "$bare/wheel-test/$file" "$out/$file" || fail "expected what the build tree gives"
done
build/bin/comm-opt "$bare/wheel-test/from-python.mlir" -o build/wheel-expected/again.mlir
build/bin/comm-opt "$out/scheduled.mlir" -o build/wheel-expected/once.mlir
cmp build/wheel-expected/again.mlir build/wheel-expected/once.mlir || fail "expected the same schedule from Python"
say "the wheel works on a bare Debian $release, with $(inside 'python3 --version')"
