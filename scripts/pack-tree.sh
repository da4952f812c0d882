#!/usr/bin/env bash
# Builds the project as it is released (build/release), installs it, and packs the installed tree:
# FOLDER/commsched-VERSION-debian12-x86_64.tar.xz. Another project finds the package CommSched in it, on a Debian 12 with LLVM 22.
#
#   scripts/pack-tree.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

[ $# = 1 ] || fail "expected a folder: scripts/pack-tree.sh FOLDER"
require_tools
version=$(sed -n 's/^project(CommSched VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=commsched-$version-debian12-$(uname -m)
mkdir -p build "$1"
cmake --preset release -DCOMMSCHED_ENABLE_BENCHMARKS=OFF >build/release-configure.log 2>&1 || {
  cat build/release-configure.log
  fail "configuring failed"
}
cmake --build --preset release >build/release-build.log 2>&1 || {
  tail -n 60 build/release-build.log
  fail "the released build failed; all of its output is in build/release-build.log"
}
rm -rf "build/pack/$name"
cmake --install build/release --prefix "$PWD/build/pack/$name" >build/release-install.log
tar -C build/pack --owner=0 --group=0 -cJf "$1/$name.tar.xz" "$name"
say "the installed tree is $1/$name.tar.xz"
