# shellcheck shell=bash
# Sourced: makes files for the tests. Their content is the same in every run: a stream cipher's output under a fixed key.

# content SEED BYTES > FILE
content() {
	[ "$2" = 0 ] && return 0
	head -c "$2" /dev/zero | openssl enc -aes-128-ctr -K "$(printf '%032x' "$1")" -iv 0 -nosalt 2> /dev/null
}

# sizes COUNT BIGGEST: COUNT sizes in bytes, one a line: the edges of blocks, pages and transfer sizes first, then one of
# BIGGEST, then sizes spread evenly on a logarithmic scale up to 1 MiB.
sizes() {
	awk -v count="$1" -v biggest="$2" 'BEGIN {
		n = split("0 1 3 4 511 512 513 4095 4096 4097 8191 8192 8193 32767 32768 32769 65535 65536 65537 131071 131072 131073 " \
			"1048575 1048576 1048577 2097153 4194305", edge, " ")
		for (i = 1; i <= n && i < count; i++) if (edge[i] <= biggest) { print edge[i]; made++ }
		print biggest
		for (made++; made < count; made++) {
			# a multiplicative sequence: spread, and the same everywhere
			x = (made * 0.6180339887498949) % 1
			printf "%d\n", exp(x * log(1048576))
		}
	}'
}

# make_tree DIR FILES BIGGEST: a tree with deep folders, a full folder, awkward names, links and files of many sizes.
make_tree() {
	local dir=$1 i=0 size sub long
	long=$(printf 'n%.0s' $(seq 255))
	mkdir -p "$dir/deep/a/b/c/d/e/f/g/h" "$dir/many" "$dir/empty" "$dir/sizes" "$dir/names"
	while read -r size; do
		case $((i % 3)) in 0) sub=sizes ;; 1) sub=deep/a/b ;; *) sub=deep/a/b/c/d/e/f/g/h ;; esac
		content "$i" "$size" > "$dir/$sub/f$i"
		i=$((i + 1))
	done < <(sizes "$2" "$3")
	for i in $(seq "$((2 * $2))"); do echo "entry $i" > "$dir/many/entry-$i"; done
	for i in 'with space' 'größe' 'quote"and'\''tick' '-dash' '.hidden' 'back\slash' "$long"; do
		printf 'named\n' > "$dir/names/$i"
	done
	ln -s ../sizes/f0 "$dir/names/symlink"
	ln -s /nowhere/at/all "$dir/names/dangling"
	chmod 600 "$dir/sizes/f0"
	chmod 755 "$dir/deep/a/b/f1"
	touch -d '2001-02-03 04:05:06 UTC' "$dir/sizes/f3"
}
