# Prints what bash would offer behind a line: complete.sh COMPLETION LINE...
source "$1"
shift
for line in "$@"; do
  COMP_LINE=$line COMP_POINT=${#line}
  commsched_complete "${line%% *}"
  echo "$line<Tab> ${COMPREPLY[*]}"
done
