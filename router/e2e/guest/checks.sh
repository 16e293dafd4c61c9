# shellcheck shell=sh
# Runs in the guest (busybox sh), sourced by /job/run: helpers that print one line for each check.
FAILED=0
ok() { echo "ok $*"; }
not_ok() { FAILED=1; echo "not ok $*"; }

# check NAME COMMAND...
check() {
	name=$1
	shift
	if "$@" > /tmp/out 2>&1; then ok "$name"; else not_ok "$name (exit $?)"; tail -n 8 /tmp/out; fi
}

# same NAME FILE FILE: two lists are equal; else the first differences are shown.
same() {
	if cmp -s "$2" "$3"; then ok "$1"; else not_ok "$1"; diff "$2" "$3" | head -n 8; fi
}

# listing DIR: type, mode, size or target, and path of everything below, sorted; sums DIR: checksum and path of every file.
# A folder's size is the file system's own business.
listing() {
	(cd "$1" && find . -exec stat -c '%F|%a|%s|%n' {} + | sed 's/^\(directory|[0-7]*\)|[0-9]*|/\1|-|/' | sort)
}
sums() { (cd "$1" && find . -type f -exec sha256sum {} + | sort -k 2); }

# Forgets everything the client has cached, so that what is compared comes from the server.
remount() {
	cd / && umount /mnt && echo 3 > /proc/sys/vm/drop_caches && do_mount && mounted_over
}
