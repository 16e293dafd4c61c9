# shellcheck shell=bash
# Sourced: starts a plex for the tests, or points them at SERVER=host:port. Sets PLEX_HOST, PLEX_PORT, PLEX_MOUNT_PORT and
# PLEX_EXPORT, and what is started here is ended and removed with the script.

# The release binary: as built already, or built now.
plex_binary() {
	BINARY=${CLOCKWORK:-${CARGO_TARGET_DIR:-$REPO/target}/release/clockwork}
	[ -x "$BINARY" ] && return
	say "building $BINARY"
	(cd "$REPO" && cargo build --quiet --release --bin clockwork >&2) || die "cargo build --release failed"
}

# in_background NAME COMMAND...: starts a process whose output goes to $W/NAME.log; sets STARTED to its process number.
in_background() {
	local name=$1
	shift
	"$@" > "$W/$name.log" 2>&1 < /dev/null &
	STARTED=$!
	at_exit "kill $STARTED 2> /dev/null; wait $STARTED 2> /dev/null"
}

# plex_start: four embedded stores over one folder, and the router in front of them.
plex_start() {
	if [ -n "${SERVER:-}" ]; then
		PLEX_HOST=${SERVER%:*} PLEX_PORT=${SERVER##*:}
		PLEX_MOUNT_PORT=${MOUNTPORT:-$PLEX_PORT} PLEX_EXPORT=${EXPORT:-/}
		port_open "$PLEX_HOST" "$PLEX_PORT" || die "nothing answers on SERVER=$SERVER"
		return
	fi
	plex_binary
	mkdir -p "$W/export"
	local name port stores=()
	for name in a b c d; do
		port=$(free_port)
		in_background "store-$name" "$BINARY" store "$W/export" --listen "127.0.0.1:$port" --name "$name"
		wait_port 127.0.0.1 "$port" "$STARTED" 20 || { cat "$W/store-$name.log" >&2; die "store $name did not start"; }
		stores+=("$name=127.0.0.1:$port::/export")
	done
	# Embedded stores drop a repeated XID: the router repeats calls to them with new ones.
	PLEX_STORE_FIELDS='duplicate_cache = "none"
'
	plex_route "${stores[@]}"
}

# plex_config PORT STORE...: the router's configuration. A store is NAME=HOST:PORT[:[MOUNT_PORT][:EXPORT]].
plex_config() {
	local port=$1 store name host nfs mount path
	shift
	cat <<-TOML
		[listen]
		address = ["127.0.0.1:$port"]
		${PLEX_LISTEN_FIELDS:-}
		[admin]
		listen = "127.0.0.1:$(free_port)"

		[[export]]
		path = "/export"
		clients = ["127.0.0.0/8"]
		# qemu's user network and libnfs call from ports that need no privilege
		secure = false

		[heat]
		period_seconds = 60

		[history]
		path = "$W/history"
	TOML
	for store in "$@"; do
		name=${store%%=*}
		IFS=: read -r host nfs mount path <<< "${store#*=}"
		printf '\n[[store]]\nname = "%s"\naddress = "%s:%s"\n' "$name" "$host" "$nfs"
		[ -z "$mount" ] || printf 'mount_port = %s\n' "$mount"
		printf 'export = "%s"\n' "${path:-/}"
		printf '%s' "${PLEX_STORE_FIELDS:-}"
	done
}

# plex_route STORE...: the router in front of these stores, as plex_config takes them.
plex_route() {
	plex_binary
	PLEX_HOST=127.0.0.1 PLEX_PORT=$(free_port) PLEX_EXPORT=/export
	PLEX_MOUNT_PORT=$PLEX_PORT
	plex_config "$PLEX_PORT" "$@" > "$W/clockwork.toml"
	in_background router "$BINARY" serve --config "$W/clockwork.toml"
	ROUTER_PID=$STARTED
	wait_port "$PLEX_HOST" "$PLEX_PORT" "$STARTED" 20 ||
		{ cat "$W/router.log" "$W/clockwork.toml" >&2; die "the router did not start"; }
}
