# shellcheck shell=bash
# Sourced: NFS-Ganesha stores over one folder. Needs root: Ganesha opens files by handle (CAP_DAC_READ_SEARCH).

# ganesha_config N FOLDER NFS_PORT MOUNT_PORT: what a store of a plex needs is marked "plex".
ganesha_config() {
	cat <<-CONF
		NFS_CORE_PARAM {
			Protocols = 3; Bind_Addr = 127.0.0.1; NFS_Port = $3; MNT_Port = $4;
			Enable_UDP = true; Enable_NLM = false; Enable_RQUOTA = false;
			mount_path_pseudo = false;
			Plugins_Dir = "/usr/lib/$(uname -m)-linux-gnu/ganesha";
		}
		NFSv4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = "$W/ganesha-$1"; }
		# plex: what another store changes must be seen at once.
		MDCACHE { Dir_Chunk = 0; }
		EXPORT_DEFAULTS { Access_Type = RW; Squash = no_root_squash; SecType = sys; Protocols = 3; Transports = UDP, TCP; }
		EXPORT {
			# plex: the same on all stores, so that handles are equal.
			Export_Id = 77; Filesystem_Id = 77.77;
			# plex: as above.
			Attr_Expiration_Time = 0;
			# plex: transfer sizes that the store can keep over TCP; the router takes the least of all stores.
			MaxRead = 1048576; MaxWrite = 1048576; PrefRead = 1048576; PrefWrite = 1048576;
			Path = "$2"; Pseudo = /export;
			FSAL { Name = VFS; }
		}
		LOG { Default_Log_Level = EVENT; }
	CONF
}

# ganesha_start N FOLDER: starts store N; sets GANESHA_PORT and GANESHA_MOUNT_PORT.
ganesha_start() {
	[ "$(id -u)" = 0 ] || die "NFS-Ganesha stores need root"
	packages nfs-ganesha nfs-ganesha-vfs gcc libc6-dev
	[ -e "$W/no-rpcbind.so" ] || cc -shared -fPIC -o "$W/no-rpcbind.so" "$E2E/no-rpcbind.c" || die "could not build no-rpcbind.so"
	GANESHA_PORT=$(free_port) GANESHA_MOUNT_PORT=$(free_port)
	mkdir -p "$W/ganesha-$1"
	ganesha_config "$1" "$2" "$GANESHA_PORT" "$GANESHA_MOUNT_PORT" > "$W/ganesha-$1.conf"
	LD_PRELOAD=$W/no-rpcbind.so in_background "ganesha-$1-out" \
		ganesha.nfsd -F -L "$W/ganesha-$1.log" -p "$W/ganesha-$1.pid" -f "$W/ganesha-$1.conf"
	wait_port 127.0.0.1 "$GANESHA_PORT" "$STARTED" 30 && wait_port 127.0.0.1 "$GANESHA_MOUNT_PORT" "$STARTED" 30 ||
		{ tail -n 20 "$W/ganesha-$1.log" >&2; die "NFS-Ganesha did not start"; }
}
