#!/bin/sh
# How many calls a second this generator makes, and how late, against a responder on the same machine.
#   speed.sh [HOST:PORT]     a server that answers any LOOKUP (default: the responder of examples/responder.rs, started here)
# Build first: cargo build --release -p fstress-replay --bins --examples. BIN=DIRECTORY if it is not target/release.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
bin=${BIN:-${CARGO_TARGET_DIR:-$here/target}/release}
target=${1:-}
if [ -z "$target" ]; then
	target=127.0.0.1:20490
	"$bin/examples/responder" "$target" &
	trap "kill $!" EXIT
	sleep 0.5
fi
run() {
	printf '%s: ' "$*"
	# An invalid run is shown like any other: its lag says why.
	"$bin/fstress-replay" --preset getattr --no-verify --target "$target" --connections 2 --seconds "${SECONDS_EACH:-5}" "$@" |
		grep -E '^(wanted|send lag|INVALID)' | tr '\n' ' '
	echo
}
run --rate 200000
run --rate 100000
run --udp --rate 100000
run --udp --rate 50000
run --closed 64
run --udp --closed 64
# The trace path: a schedule is planned while it is replayed, of LOOKUP, ACCESS, GETATTR and READ. Its server must have the
# files of the bundled workload, as the responder has.
[ -n "${1:-}" ] && exit
trace() {
	printf 'trace %s: ' "$*"
	"$bin/fstress-replay" --no-verify --target "$target" --connections 2 --hours 634..635 \
		--seconds-per-hour "${SECONDS_EACH:-5}" "$@" | grep -E '^(wanted|send lag|INVALID)' | tr '\n' ' '
	echo
}
trace --rate 200000 --rsize 4096
trace --rate 100000 --rsize 4096
trace --rate 50000
trace --model http --rate 50000
trace --udp --rate 50000 --rsize 4096
