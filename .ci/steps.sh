# shellcheck shell=bash
# Sourced by run and full: a step is announced, timed, and ends everything when it fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Nothing here asks: without a terminal, what asks would hang.
exec < /dev/null
export CI=${CI:-true} CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never} CARGO_INCREMENTAL=0
TIMES=()

# step SECONDS_MAX NAME COMMAND...
step() {
	local most=$1 name=$2 from=$SECONDS rc=0
	shift 2
	printf '\n== %s\n   %s\n' "$name" "$*"
	timeout -k 10 "$most" "$@" || rc=$?
	TIMES+=("$(printf '%5d s  %s' "$((SECONDS - from))" "$name")")
	[ "$rc" = 0 ] && return
	[ "$rc" != 124 ] || printf 'longer than %s s\n' "$most"
	printf '\n== FAILED: %s (exit %s)\n' "$name" "$rc"
	times
	exit 1
}

times() { printf '\n'; printf '%s\n' "${TIMES[@]}"; printf '%5d s  in all\n' "$SECONDS"; }

as_root() { [ "$(id -u)" = 0 ]; }
