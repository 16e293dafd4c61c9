# shellcheck shell=sh
# Runs in the guest: copies, lists, renames, removes and compares the tree of /job/tree on the mount.
T=/mnt/$NAME
REF=/tmp/reference
mkdir -p "$REF" && cp -a /job/tree/. "$REF/"

# What was compared before the change is compared again after it, from the server's side.
compare() {
	listing "$REF" > /tmp/a && listing "$T" > /tmp/b && same "$1: names, types, modes and sizes" /tmp/a /tmp/b
	sums "$REF" > /tmp/a && sums "$T" > /tmp/b && same "$1: checksums of $(wc -l < /tmp/a) files" /tmp/a /tmp/b
}

# both NAME COMMAND: runs the shell command in the reference and on the mount.
both() {
	name=$1
	(cd "$REF" && eval "$2") 2> /dev/null || not_ok "$name: the test itself is wrong"
	check "$name" sh -c "cd '$T' && $2"
}

check "make a folder" mkdir "$T"
check "copy a tree" sh -c "cp -a '$REF/.' '$T/'"
check "mount again" remount
compare "copied"
check "times are kept" [ "$(stat -c %Y "$T/sizes/f3")" = "$(stat -c %Y "$REF/sizes/f3")" ]
check "list a full folder" [ "$(ls "$T/many" | wc -l)" = "$(ls "$REF/many" | wc -l)" ]

both "rename a file" 'mv sizes/f0 sizes/renamed'
both "rename into another folder" 'mv deep/a/b/f1 names/moved'
both "rename over a file" 'echo new > many/over && mv many/over many/entry-1'
both "rename a folder" 'mv deep/a/b/c deep/moved'
both "rename many" 'for f in many/entry-*[05]; do mv "$f" "$f.renamed"; done'
both "append" 'echo appended >> sizes/f6'
both "overwrite inside" 'printf XYZ | dd of=sizes/f9 bs=1 seek=100 conv=notrunc'
both "truncate" 'truncate -s 1000 sizes/f12'
both "extend" 'truncate -s 100000 sizes/f15'
both "write past the end" 'echo tail | dd of=sizes/sparse bs=1 seek=300000'
both "change modes" 'chmod 640 sizes/f6 && chmod 700 many'
both "remove files" 'rm many/entry-*[37]'
both "remove a tree" 'rm -r deep/moved/d'
both "make and remove folders" 'mkdir -p x/y/z && rmdir x/y/z x/y x'
if sh -c "cd '$T' && ln sizes/f6 sizes/hard" 2> /tmp/out; then
	(cd "$REF" && ln sizes/f6 sizes/hard)
	check "a hard link is the same file" [ "$(stat -c %i "$T/sizes/f6")" = "$(stat -c %i "$T/sizes/hard")" ]
# The kernel says 524, an error without a name, where a server says NFS3ERR_NOTSUPP.
elif grep -qi 'not supported\|error 524' /tmp/out; then
	echo "skip hard link: the store has none"
else
	not_ok "hard link"
	cat /tmp/out
fi
check "mount again" remount
compare "changed"

# A file that is open and removed stays readable: the client renames it meanwhile.
exec 4< "$T/sizes/f18"
rm "$T/sizes/f18"
sha256sum < "$REF/sizes/f18" > /tmp/a && sha256sum <&4 > /tmp/b && same "read a removed file that is open" /tmp/a /tmp/b
exec 4<&-
check "a missing name is missing" sh -c "! ls '$T/sizes/f18' 2> /dev/null"
check "a folder in use is not removed" sh -c "! rmdir '$T/many' 2> /dev/null"
check "remove everything" rm -rf "$T"
check "nothing is left" [ ! -e "$T" ]
rm -rf "$REF"
