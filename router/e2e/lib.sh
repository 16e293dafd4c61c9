# shellcheck shell=bash
# Sourced by every script here: counting, packages, cache, scratch folder, clean-up and the common options.
#
# A script is a list of checks. Each prints `ok NAME` or `not ok NAME`; the last line is `N passed, N failed`, and the
# exit status is 0 only if at least one check ran and none failed.

set -uo pipefail
E2E=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(cd "$E2E/../.." && pwd)
CACHE=${CACHE:-${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/clockwork-e2e}
SHORT=${SHORT:-}
PASSED=0
FAILED=0
CLEANUP=()

say() { printf '%s\n' "$*" >&2; }

pass() { PASSED=$((PASSED + 1)); printf 'ok %s\n' "$*"; }
fail() { FAILED=$((FAILED + 1)); printf 'not ok %s\n' "$*"; }

# check NAME COMMAND...: one check; the command's output is shown only when it fails.
check() {
	local name=$1 out
	shift
	if out=$("$@" 2>&1 < /dev/null); then
		pass "$name"
	else
		fail "$name (exit $?)"
		printf '%s\n' "$out" | tail -n 15 | sed 's/^/    /'
		return 1
	fi
}

# Ends the script early where going on makes no sense (nothing to mount, no package to install).
die() { fail "$*"; exit 1; }

at_exit() { CLEANUP=("$1" "${CLEANUP[@]}"); }

finish() {
	local rc=$? step
	trap - EXIT
	for step in "${CLEANUP[@]}"; do eval "$step"; done
	# A script that was cut short, or that checked nothing, has not passed.
	[ "$rc" = 0 ] || [ "$FAILED" != 0 ] || fail "the script ended early (exit $rc)"
	[ "$((PASSED + FAILED))" != 0 ] || fail "nothing was checked"
	printf '%d passed, %d failed\n' "$PASSED" "$FAILED"
	# With the number: in a trap, a bare exit would return the status from before the trap.
	[ "$FAILED" = 0 ] && exit 0
	exit 1
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# scratch: sets W to a temporary folder that is removed at the end.
scratch() {
	W=$(mktemp -d "${TMPDIR:-/tmp}/clockwork-e2e.XXXXXX")
	at_exit 'rm -rf "$W"'
}

# options ARGS...: --short (fewer and smaller files, for continuous integration), --budget SECONDS (the whole script),
# --help (the comment at the head of the script).
options() {
	BUDGET_S=0
	while [ $# -gt 0 ]; do
		case $1 in
		--short) SHORT=1 ;;
		--budget) BUDGET_S=${2:?--budget needs a number of seconds}; shift ;;
		-h | --help)
			trap - EXIT
			awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"
			exit 0 ;;
		*) trap - EXIT; say "unknown option $1; known: --short, --budget SECONDS, --help"; exit 2 ;;
		esac
		shift
	done
	[ "$BUDGET_S" = 0 ] || DEADLINE=$((SECONDS + BUDGET_S))
}

# left MOST: seconds that one step may take: MOST, or what is left of the budget.
left() {
	local most=$1 rest
	[ "$BUDGET_S" = 0 ] && { echo "$most"; return; }
	rest=$((DEADLINE - SECONDS))
	[ "$rest" -ge 1 ] || rest=1
	[ "$rest" -lt "$most" ] && echo "$rest" || echo "$most"
}

# packages NAME...: installs the Debian packages that are missing; without root, says which.
packages() {
	local p missing=()
	for p in "$@"; do
		dpkg-query -W -f '${Status}' "$p" 2> /dev/null | grep -q 'install ok installed' || missing+=("$p")
	done
	[ "${#missing[@]}" = 0 ] && return 0
	if [ "$(id -u)" != 0 ]; then
		die "missing Debian packages: run  sudo apt-get install --no-install-recommends ${missing[*]}"
	fi
	say "installing ${missing[*]}"
	apt_get install -y --no-install-recommends "${missing[@]}" || {
		apt_get update && apt_get install -y --no-install-recommends "${missing[@]}"
	} || die "could not install ${missing[*]}"
}

# apt-get without questions; waits for another one that is running, and shows what it said only when it fails.
apt_get() {
	local log
	log=$(DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" 2>&1 < /dev/null) ||
		{ tail -n 15 >&2 <<< "$log"; return 1; }
}

# port_open HOST PORT
port_open() { (exec 3<> "/dev/tcp/$1/$2") 2> /dev/null; }

# wait_port HOST PORT PID SECONDS: until the port answers; fails when the process ends or the time is over.
wait_port() {
	local end=$((SECONDS + $4))
	until port_open "$1" "$2"; do
		kill -0 "$3" 2> /dev/null || { say "process $3 ended before $1:$2 was open"; return 1; }
		[ "$SECONDS" -lt "$end" ] || { say "$1:$2 was not open after $4 s"; return 1; }
		sleep 0.05
	done
}

# free_port: a port of 127.0.0.1 that is free for TCP now. Below the ephemeral range, so that no outgoing connection takes it.
free_port() {
	local p
	while :; do
		p=$((20000 + RANDOM % 12000))
		port_open 127.0.0.1 "$p" || { echo "$p"; return; }
	done
}
