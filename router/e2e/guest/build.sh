# shellcheck shell=bash
# Sourced: makes the guest of the kernel-client test in $CACHE/guest: a Debian kernel (vmlinux) and a small initial RAM
# disk (base.cpio.gz) with busybox and the kernel's NFS client. Debian packages only; about 10 s, and 40 s more for UDP.
#
# Debian's kernels refuse NFS over UDP (CONFIG_NFS_DISABLE_UDP_SUPPORT=y), other kernels do not. To test UDP, the one
# module that holds the refusal (nfs.ko) is built again from Debian's source of the same version without that option.

GUEST=$CACHE/guest

# The kernel that Debian's cloud meta package stands for now, as 6.1.0-NN-cloud-amd64.
guest_kernel() {
	apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: linux-image-\([0-9].*\)/\1/p' | head -n 1
}

# guest_build udp|no-udp: builds what is missing.
guest_build() {
	[ "$(uname -m)" = x86_64 ] || die "the kernel client test knows how to boot x86-64 only"
	packages qemu-system-x86 busybox-static kmod cpio lz4 openssl
	local kv
	kv=$(guest_kernel)
	[ -n "$kv" ] || { [ "$(id -u)" = 0 ] && apt_get update && kv=$(guest_kernel); }
	[ -n "$kv" ] || die "no package linux-image-cloud-amd64: run apt-get update, on a Debian system"
	mkdir -p "$GUEST"
	# A newer kernel in Debian makes everything anew: the module must match it.
	[ "$(cat "$GUEST/version" 2> /dev/null)" = "$kv" ] || { rm -rf "$GUEST"; mkdir -p "$GUEST"; }
	[ -s "$GUEST/vmlinux" ] || guest_unpack_kernel "$kv" || die "could not unpack Debian's kernel $kv"
	if [ "$1" = udp ] && [ ! -s "$GUEST/nfs-udp.ko" ]; then
		guest_build_udp_module "$kv" || die "could not build the NFS module for UDP"
		rm -f "$GUEST/base.cpio.gz"
	fi
	[ -s "$GUEST/base.cpio.gz" ] && [ "$GUEST/base.cpio.gz" -nt "$E2E/guest/init" ] || guest_pack "$kv" ||
		die "could not pack the guest's RAM disk"
	echo "$kv" > "$GUEST/version"
}

# download PACKAGE: fetches PACKAGE's newest .deb into the current folder, without installing it.
download() { apt_get download "$1" || { apt_get update && apt_get download "$1"; }; }

guest_unpack_kernel() (
	set -e
	say "unpacking Debian's kernel $1"
	cd "$GUEST"
	download "linux-image-$1"
	rm -rf image && dpkg-deb -x "linux-image-$1"_*.deb image
	rm -f "linux-image-$1"_*.deb
	depmod -b image -F "image/boot/System.map-$1" "$1"
	unpack_vmlinux "image/boot/vmlinuz-$1" > vmlinux.part || cp "image/boot/vmlinuz-$1" vmlinux.part
	mv vmlinux.part vmlinux
)

# unpack_vmlinux VMLINUZ: the kernel without its decompressor. Emulated code decompresses slowly: this saves seconds a boot.
# The payload is found by the magic number of lz4's legacy frame; qemu boots the bare kernel by its PVH entry.
unpack_vmlinux() {
	local at
	for at in $(LC_ALL=C grep -abo -P '\x02\x21\x4c\x18' "$1" | cut -d: -f1); do
		tail -c "+$((at + 1))" "$1" | lz4 -d -c 2> /dev/null > vmlinux.try || true
		if [ "$(head -c 4 vmlinux.try | tail -c 3)" = ELF ]; then
			cat vmlinux.try && rm -f vmlinux.try && return
		fi
	done
	rm -f vmlinux.try
	return 1
}

guest_build_udp_module() (
	set -e -o pipefail
	packages gcc make xz-utils "linux-headers-$1"
	say "building the NFS client module for UDP"
	cd "$GUEST"
	series=linux-source-$(cut -d. -f1-2 <<< "$1")
	download "$series"
	rm -rf source && mkdir source
	dpkg-deb --fsys-tarfile "$series"_*.deb | tar -xO "./usr/src/$series.tar.xz" |
		tar -xJ -C source "$series/fs/nfs" "$series/fs/nfs_common" "$series/fs/lockd"
	rm -f "$series"_*.deb
	cd "source/$series/fs/nfs"
	grep -rl CONFIG_NFS_DISABLE_UDP_SUPPORT . | xargs sed -i 's/CONFIG_NFS_DISABLE_UDP_SUPPORT/CONFIG_CLOCKWORK_NO_SUCH_OPTION/'
	make -s -j"$(nproc)" -C "/usr/src/linux-headers-$1" M="$PWD" nfs.ko 2>&1 | { grep -v "Skipping BTF" >&2 || true; }
	strip -g -o "$GUEST/nfs-udp.ko" nfs.ko
	rm -rf "$GUEST/source"
)

guest_pack() (
	set -e
	say "packing the guest's RAM disk"
	cd "$GUEST"
	rm -rf base && mkdir -p base/{bin,dev,proc,sys,mnt,tmp,etc,modules,lib,lib64,usr/lib,root,job}
	cp "$(dpkg -L busybox-static | grep '/bin/busybox$')" base/bin/busybox
	for a in $(base/bin/busybox --list); do [ "$a" = busybox ] || ln -sf busybox "base/bin/$a"; done
	for m in virtio_mmio virtio_pci virtio_net virtio_console virtio_rng nfsv3; do
		modprobe -d image -S "$1" --show-depends "$m" | awk '$1 == "insmod" { print $2 }'
	done | awk '!seen[$0]++' | while read -r f; do
		cp "$f" base/modules/
		basename "$f" >> base/modules/order
	done
	[ ! -s nfs-udp.ko ] || cp nfs-udp.ko base/modules/nfs.ko
	printf 'root:x:0:0:root:/root:/bin/sh\n' > base/etc/passwd
	printf 'root:x:0:\n' > base/etc/group
	cp "$E2E/guest/init" base/init && chmod +x base/init
	(cd base && find . | cpio -o -H newc -R 0:0 --quiet) | gzip -1 > base.cpio.gz.part
	mv base.cpio.gz.part base.cpio.gz
)
