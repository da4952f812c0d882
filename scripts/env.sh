# shellcheck shell=bash
# Puts the tools of build/ and the Python environment of build/venv into the PATH of this shell, and completes their options in bash:
#
#   source scripts/env.sh
#
# Afterwards the commands of README.md and docs/ run as they are written there.
commsched_root=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")/.." && pwd)
for commsched_folder in "$commsched_root/build/venv/bin" "$commsched_root/build/bin"; do
  case ":$PATH:" in
  *":$commsched_folder:"*) ;;
  *) [ ! -d "$commsched_folder" ] || PATH="$commsched_folder:$PATH" ;;
  esac
done
export PATH
# In a shell that somebody types into, their options complete.
if [ -n "${BASH_VERSION:-}" ] && [[ $- == *i* ]]; then
  source "$commsched_root/scripts/completion.bash"
fi
unset commsched_root commsched_folder
