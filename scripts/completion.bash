# shellcheck shell=bash
# Completes the options of CommSched's tools in bash. They are read from the tools' own --help, those of a pass or pipeline included:
#
#   source scripts/completion.bash        # scripts/env.sh does so
#
# cmake --install puts it where bash-completion looks for it.
#
#   comm-opt --reorder-comm-overlap=mem<Tab>        memory-budget-ratio= memory-limit-bytes= memory-plan=

# The options of a tool; of one of its passes, with a second argument: commsched_options TOOL [PASS]. Options of passes are indented by eight.
commsched_options() {
  "$1" --help 2>/dev/null | awk -v pass="${2-}" '
    # "-h," of Python, "--name[=<value>]", and a long name with the dash that is behind all names.
    function name(word) { sub(/\[=.*/, "", word); sub(/[-,]$/, "", word); return word ~ /=/ ? substr(word, 1, index(word, "=")) : word }
    /^(OPTIONS|options):$/ { listed = 1 }
    !listed { next }
    /^        --/ { if (pass != "" && inside) print name(substr($1, 3)); next }
    /^ +-/ {
      inside = name($1) == "--" pass || name($1) == "--" pass "="
      if (pass == "") print name($1)
      if (pass == "" && $1 ~ /,$/) print name($2)
    }'
}

commsched_complete() {
  local line=${COMP_LINE:0:COMP_POINT} word start=""
  word=${line##* }
  COMPREPLY=()
  case "$word" in
  --*=*)
    # bash takes "=" for a boundary of words, so only what follows it is completed.
    start=${word#*=}
    mapfile -t COMPREPLY < <(compgen -W "$(commsched_options "$1" "$(sed 's/^--//; s/=.*//' <<<"$word")")" -- "$start")
    ;;
  -*) mapfile -t COMPREPLY < <(compgen -W "$(commsched_options "$1")" -- "$word") ;;
  esac
  [ ${#COMPREPLY[@]} != 1 ] || [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}
complete -o default -F commsched_complete comm-calibrate comm-lsp-server comm-opt comm-place comm-reduce comm-run comm-verify-spmd commsched-hlo commsched-verify
