#!/usr/bin/env bash
# Keeps one issue for a weekly job: opens it when the job fails, comments on it when the job fails again, and closes it when the job passes.
# A job that ran out of time counts as failed: its result is "cancelled".
#
#   .ci/report.sh TITLE RESULT RUN
#
# TITLE is the issue's, RESULT the job's (success, failure, cancelled or skipped), and RUN the page of the run. Needs gh.
set -euo pipefail
title=$1 result=$2 run=$3

issue=$(TITLE=$title gh issue list --state open --limit 1000 --json number,title \
  --jq 'map(select(.title == env.TITLE)) | first | .number // empty')
case "$result" in
failure | cancelled)
  if [ -n "$issue" ]; then
    gh issue comment "$issue" --body "The job failed again: $run"
  else
    gh issue create --title "$title" --body "The job failed: $run. It may fail: .github/workflows/weekly.yml says why."
  fi
  ;;
success) [ -z "$issue" ] || gh issue close "$issue" --comment "The job passes: $run" ;;
*) echo "the job was $result: the issue stays as it is" ;;
esac
