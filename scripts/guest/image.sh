#!/usr/bin/env bash
# image.sh SUITE: a bare Debian host (systemd, sshd, no Slurm) as a disk image with kernel and initrd, for vm.sh.
# Root only; no mount and no loop device is needed. About 75 s from nothing; done again only when this file changed.
#
# Everything is kept in $GPUQ_GUEST_CACHE (/var/cache/gpuq-guests): SUITE.{raw,vmlinuz,initrd} and a throw-away ssh key.
# In the image: root and two users, user1 and user2, who take that key (user1 may sudo); the Debian packages that gpuq
# needs; those of Slurm in apt's cache, downloaded but not installed; and a stand-in for a GPU, the node /dev/nvidia0
# without a driver behind it. open() of it says ENXIO where the device cgroup lets a job through and EPERM elsewhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

suite=${1:?usage: image.sh SUITE, being trixie or sid}
cache=${GPUQ_GUEST_CACHE:-/var/cache/gpuq-guests}
hostname=gpuhost
slurm=(slurm-wlm munge dbus logrotate)
system=(systemd-sysv libpam-systemd dbus udev openssh-server sudo python3 iproute2 procps kmod ca-certificates systemd-timesyncd
  python3-click python3-msgspec python3-psutil python3-rich)
((EUID == 0)) || die "only root can make an image"
mkdir -p "$cache"
exec 8>"$cache/$suite.lock"
flock 8 # one builds, the others then find it built
stamp=$(sha256sum <"${BASH_SOURCE[0]}")
[[ ! -e $cache/$suite.raw || $(cat "$cache/$suite.stamp" 2>/dev/null) != "$stamp" ]] || exit 0

apt_install debootstrap qemu-system-x86 qemu-utils e2fsprogs openssh-client cpio xz-utils zstd
archive=$(mirror)
[[ $archive ]] || die "apt's sources name no archive for this release of Debian; debootstrap needs one"
say "making the $suite image in $cache (once; about 75 s)"
started=$SECONDS root=$cache/$suite.root log=$cache/$suite.log
rm -rf --one-file-system "$root" "$root.initrd"
[[ -f $cache/key ]] || ssh-keygen -q -t ed25519 -N '' -C gpuq-guest -f "$cache/key"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
fetch() { (cd "$root/var/cache/apt/archives" && rm -f "$1"*.deb && inside sh -c 'cd /var/cache/apt/archives && apt-get -q download "$@"' fetch "$@"); }

build() {
  local proxy kernel version module kind path file user home
  proxy=$(apt-config shell p Acquire::http::Proxy) && eval "$proxy" && export http_proxy=${p:-${http_proxy:-}}
  debootstrap --include="$(IFS=, && echo "${system[*]}")" "$suite" "$root" "$archive"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" 2>/dev/null || true # the host's own authorities
  echo "deb $archive $suite main" >"$root/etc/apt/sources.list"
  # The archive may be a copy some weeks old, and sid's index counts as expired after one.
  echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/99guest"
  inside apt-get -q update
  inside apt-get -qy install --download-only --no-install-recommends "${slurm[@]}"

  # The kernel is only unpacked: no initramfs-tools, no boot loader. Since forky image and modules are packages of their own.
  kernel=$(inside apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
  mapfile -t kernel < <(echo "$kernel" && inside apt-cache depends "$kernel" | sed -n 's/^ *Depends: \(linux-\(binary\|modules\|base\)-[0-9].*\)/\1/p')
  fetch "${kernel[@]}"
  for file in "$root"/var/cache/apt/archives/linux-*.deb; do dpkg-deb --fsys-tarfile "$file" | tar -x --keep-directory-symlink -C "$root"; done
  rm -f "$root"/var/cache/apt/archives/linux-*.deb
  version=$(find "$root/usr/lib/modules" -mindepth 1 -maxdepth 1 -printf '%f\n' | tail -n 1)
  inside depmod "$version"
  cp "$(find "$root/boot" "$root/usr/lib/modules/$version" -name 'vmlinuz*' | head -n 1)" "$cache/$suite.vmlinuz.new"

  # An initrd of busybox and the modules of the disk, in the order in which modprobe would load them.
  mkdir -p "$root.initrd"/{bin,proc,sys,dev,root,modules}
  fetch busybox-static
  dpkg-deb --fsys-tarfile "$root"/var/cache/apt/archives/busybox-static_*.deb | tar -xO ./usr/bin/busybox >"$root.initrd/bin/busybox"
  rm -f "$root"/var/cache/apt/archives/busybox-static_*.deb
  chmod 755 "$root.initrd/bin/busybox" && ln -s busybox "$root.initrd/bin/sh"
  for module in virtio_pci virtio_blk ext4; do
    inside modprobe -S "$version" --show-depends "$module" | while read -r kind path _; do
      file=${path##*/} && file=${file%.xz} && file=${file%.zst}
      if [[ $kind != insmod ]] || grep -qsx "$file" "$root.initrd/modules/order"; then continue; fi
      case $path in
        *.xz) xz -dc "$root$path" ;;
        *.zst) zstd -qdc "$root$path" ;;
        *) cat "$root$path" ;;
      esac >"$root.initrd/modules/$file"
      echo "$file" >>"$root.initrd/modules/order"
    done
  done
  cat >"$root.initrd/init" <<'INIT'
#!/bin/sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
while read -r module; do $b insmod "/modules/$module"; done </modules/order
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 100 ]; do $b sleep 0.1; tries=$((tries + 1)); done
$b mount -t ext4 -o rw /dev/vda /root || exec /bin/sh
for place in dev proc sys; do $b mount --move /$place /root/$place; done
exec $b switch_root /root /sbin/init
INIT
  chmod 755 "$root.initrd/init"
  (cd "$root.initrd" && find . | cpio -o -H newc --quiet) >"$cache/$suite.initrd.new"

  # The host. An ordinary one: 127.0.1.1 for its own name, an address by networkd, a clock by timesyncd.
  echo "$hostname" >"$root/etc/hostname"
  printf '127.0.0.1\tlocalhost\n127.0.1.1\t%s\n::1\tlocalhost ip6-localhost ip6-loopback\n' "$hostname" >"$root/etc/hosts"
  echo '/dev/vda / ext4 defaults,noatime 0 1' >"$root/etc/fstab"
  printf '[Match]\nType=ether\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\nIPv6AcceptRA=no\nLinkLocalAddressing=no\n' \
    >"$root/etc/systemd/network/10-guest.network"
  rm -f "$root/etc/resolv.conf" && echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"
  inside systemctl -q enable systemd-networkd systemd-networkd-wait-online
  inside systemctl -q disable apt-daily.timer apt-daily-upgrade.timer 2>/dev/null || true
  printf 'PermitRootLogin prohibit-password\nPasswordAuthentication no\nUseDNS no\nMaxStartups 100\nMaxSessions 100\n' \
    >"$root/etc/ssh/sshd_config.d/guest.conf"
  for user in user1 user2; do inside useradd -m -s /bin/bash "$user"; done
  echo 'user1 ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/user1" && chmod 440 "$root/etc/sudoers.d/user1"
  for home in root home/user1 home/user2; do
    install -d -m 700 "$root/$home/.ssh" && cp "$cache/key.pub" "$root/$home/.ssh/authorized_keys"
    chown -R --reference="$root/$home" "$root/$home/.ssh"
  done
  inside ssh-keygen -A
  echo 'c /dev/nvidia0 0666 root root - 195:0' >"$root/etc/tmpfiles.d/stand-in-gpu.conf"
  # What a first boot would do once is done here, so that every boot is an ordinary one.
  inside systemd-machine-id-setup
  inside systemd-hwdb update || true
  inside journalctl --update-catalog || true
  touch "$root/etc/.updated" "$root/var/.updated" && touch -r "$root/etc/.updated" "$root/usr"
  ! inside dpkg-query -W 'slurm*' || die "Slurm is installed in the image already"

  truncate -s 8G "$cache/$suite.raw.new"
  mkfs.ext4 -q -F -L root -E lazy_itable_init=0,lazy_journal_init=0 -d "$root" "$cache/$suite.raw.new"
}
(build) >"$log" 2>&1 || { tail -n 15 "$log" >&2 && die "could not make the $suite image (its last lines are above, all in $log)"; }
# Renamed, not written over: a guest that still runs from the old one keeps it.
for part in raw vmlinuz initrd; do mv -f "$cache/$suite.$part.new" "$cache/$suite.$part"; done
echo "$stamp" >"$cache/$suite.stamp"
rm -rf --one-file-system "$root" "$root.initrd"
say "made in $((SECONDS - started)) s"
