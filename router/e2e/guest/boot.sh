# shellcheck shell=bash
# Sourced: boots the guest of build.sh for one run and reads its checks.

# programs DIR FILE...: copies programs and the shared libraries that they need into the RAM disk under DIR.
programs() {
	local dir=$1 f lib
	shift
	mkdir -p "$dir/job/bin"
	for f in "$@"; do
		cp -L "$f" "$dir/job/bin/"
		ldd "$f" 2> /dev/null | grep -oE '/[^ ]+' | while read -r lib; do
			mkdir -p "$dir$(dirname "$lib")"
			cp -L "$lib" "$dir$lib"
		done
	done
}

# boot PROTO DIR SECONDS: boots with DIR (holding job/env and job/run) laid over the base, prints the guest's lines as they
# come, counts its checks, and fails the run when the guest did not come to its end.
boot() {
	local proto=$1 dir=$2 seconds=$3 line ended='' qemu
	(cd "$dir" && find . | cpio -o -H newc -R 0:0 --quiet | gzip -1) > "$W/job.gz"
	cat "$GUEST/base.cpio.gz" "$W/job.gz" > "$W/initrd"
	: > "$W/console"
	# The guest's user-mode network needs no privilege: its 10.0.2.2 is this machine's 127.0.0.1.
	exec 8< <(exec timeout -k 5 "$seconds" qemu-system-x86_64 \
		-M q35,hpet=off -accel "${ACCEL:-tcg,thread=multi}" -cpu max -smp 1 -m "${GUEST_MIB:-768}" \
		-nodefaults -no-user-config -display none -no-reboot \
		-kernel "$GUEST/vmlinux" -initrd "$W/initrd" \
		-append 'console=ttyS0 quiet panic=-1 reboot=t mitigations=off nokaslr tsc=reliable' \
		-serial "file:$W/console" -netdev user,id=n0 -device virtio-net-pci,netdev=n0 -device virtio-rng-pci \
		-device virtio-serial-pci -chardev file,id=out,path=/dev/fd/1 -device virtserialport,chardev=out,nr=1,name=out \
		< /dev/null 2> "$W/qemu.err")
	qemu=$!
	at_exit "kill $qemu 2> /dev/null"
	while IFS= read -r -u 8 line; do
		line=${line%$'\r'}
		case $line in
		'ok '*) pass "$proto: ${line#ok }" ;;
		'not ok '*) fail "$proto: ${line#not ok }" ;;
		'guest-exit '*) ended=${line#guest-exit } ;;
		*) printf '    %s\n' "$line" ;;
		esac
	done
	exec 8<&-
	[ -n "$ended" ] && { [ "$ended" = 0 ] || [ "$FAILED" != 0 ] || fail "$proto: the guest's script ended with $ended"; return; }
	fail "$proto: the guest gave no result within $seconds s"
	tail -n 20 "$W/console" "$W/qemu.err" | sed 's/^/    /'
}
