#!/bin/sh
# step.sh NAME: a step that takes STEP_SECONDS (default 5; a worker passes the
# variable on with --program-env STEP_SECONDS) and then has its
# effect, a line in the file steps.log. It has it once for each idempotency key,
# however often it is called: so it is safe to repeat.
set -eu
cat >/dev/null
mkdir -p steps
sleep "${STEP_SECONDS:-5}"
key=${AEEMESH_IDEMPOTENCY_KEY:-none-$$}
if mkdir "steps/$key" 2>/dev/null; then
	printf '%s %s\n' "$1" "$key" >>steps.log
fi
printf '{"step":"%s"}\n' "$1"
