#!/usr/bin/env bash
# Builds and tests as somebody does who has nothing: makes a minimal Debian 12 with debootstrap, clones the tree at HEAD
# into it, and runs scripts/demo.sh and scripts/test.sh there to their ends. Prints the time and the result of both.
#
#   scripts/test-bare.sh [--keep] [FOLDER]
#
#   FOLDER   where the Debian is made; a new folder below /var/tmp without it. It must not exist, or be empty.
#   --keep   leave the Debian there; it is removed otherwise
#
# Needs root and debootstrap. The tests see only the new Debian: no file, no tool and no setting of this machine but its package
# sources (apt's, and pip's index) and the kernel.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

keep=no folder= pip_links=
for argument in "$@"; do
  case "$argument" in
  --keep) keep=yes ;;
  -h | --help)
    sed -n 's/^# \{0,1\}//p' "$0" | sed '/^!/d'
    exit 0
    ;;
  -*) fail "unknown argument $argument; see scripts/test-bare.sh --help" ;;
  *) folder=$argument ;;
  esac
done

[ "$(id -u)" = 0 ] || fail "making a Debian needs root"
command -v debootstrap >/dev/null || fail "debootstrap is missing; apt-get install debootstrap"
[ -z "$(git status --porcelain)" ] || say "note: what is not committed is not tested"
folder=${folder:-$(mktemp -d /var/tmp/commsched-bare-XXXXXX)}
[ ! -e "$folder" ] || [ -z "$(ls -A "$folder")" ] || fail "expected $folder to be empty"
mkdir -p "$folder"

remove() {
  for inside in proc dev/pts dev/shm dev ${pip_links:+"${pip_links#/}"}; do
    ! mountpoint -q "$folder/$inside" || umount -l "$folder/$inside"
  done
  [ "$keep" = yes ] || rm -rf "$folder"
}
trap remove EXIT

say "making a minimal Debian 12 in $folder"
mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 2>/dev/null | sed -n 's/^bookworm //p' | head -n 1)
debootstrap --variant=minbase bookworm "$folder" ${mirror:+"$mirror"} >"$folder.log" 2>&1 || {
  tail -n 20 "$folder.log"
  fail "debootstrap failed"
}
rm -f "$folder.log"
# How packages are reached is a property of the network, not of the tree. The certificates are in both places, because the package
# ca-certificates makes the first from the second when it is installed.
for setting in /etc/apt/apt.conf.d /etc/apt/auth.conf.d /etc/pip.conf /etc/resolv.conf /etc/ssl/certs /usr/local/share/ca-certificates; do
  [ ! -e "$setting" ] || { mkdir -p "$folder$(dirname "$setting")" && cp -rL "$setting" "$folder$(dirname "$setting")/"; }
done
# Debian's installer, not debootstrap, writes the names by which programs find their own machine.
[ -e "$folder/etc/hosts" ] || printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$folder/etc/hosts"
mapfile -t pip_settings < <(env | grep '^PIP_' || true)
pip_links=${PIP_FIND_LINKS:-}
[ -d "$pip_links" ] || pip_links=

git clone --quiet --no-hardlinks . "$folder/commsched"
mount -t proc proc "$folder/proc"
mount --bind /dev "$folder/dev"
mkdir -p "$folder/dev/shm"
mount -t tmpfs tmpfs "$folder/dev/shm"
mount --bind /dev/pts "$folder/dev/pts"
[ -z "$pip_links" ] || { mkdir -p "$folder$pip_links" && mount --bind "$pip_links" "$folder$pip_links"; }

# Runs a command in the tree inside, with an environment of its own.
inside() {
  env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    "${pip_settings[@]}" chroot "$folder" bash -c "cd /commsched && $1"
}

status=0
results=()
for command in scripts/demo.sh scripts/test.sh; do
  say "$command in the new Debian"
  start=$SECONDS result=passed
  inside "$command" || { result=FAILED && status=1; }
  results+=("$(printf '%-20s %-6s %5d s' "$command" "$result" $((SECONDS - start)))")
done
say "on a bare Debian, at $(git -C "$folder/commsched" rev-parse --short HEAD):"
printf '%s\n' "${results[@]}"
exit "$status"
