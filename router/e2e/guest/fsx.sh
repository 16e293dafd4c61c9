# shellcheck shell=sh
# Runs in the guest: fsx, random reads, writes, mapped access and truncation of one file, each compared with a copy in memory.
F=/mnt/$NAME.fsx
start=$(cut -d. -f1 /proc/uptime)
check "fsx, $FSX_OPERATIONS operations" fsx -N "$FSX_OPERATIONS" -S "$FSX_SEED" -P /tmp -q "$F"
echo "fsx took $(($(cut -d. -f1 /proc/uptime) - start)) s"
rm -f "$F"
