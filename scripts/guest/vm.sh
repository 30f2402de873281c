#!/usr/bin/env bash
# vm.sh COMMAND NAME [ARGUMENT...]: a virtual machine with the image of image.sh, its disk a throw-away overlay.
#
#   new NAME SUITE     a fresh disk; boots it and waits until ssh answers (about 17 s; without KVM)
#   start NAME         boots the disk that is there
#   run NAME USER CMD  runs a command inside; its exit status and standard input pass through
#   reboot NAME        an orderly reboot; waits until the new system answers
#   cut NAME           a power cut: QEMU ends at once, and with it what the guest had not written to its disk
#   rm NAME            ends it, and drops the disk
#
# Guests live in $GPUQ_GUEST_DIR (/var/tmp/gpuq-guests). $GPUQ_GUEST_MEM (MiB, 2048), $GPUQ_GUEST_CPUS (2).
# Exit status: of the command inside; 255 when ssh failed; 1 when the guest is not there or does not come up.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

command=${1:?what to do? The head of $0 says} name=${2:?which guest?}
shift 2
cache=${GPUQ_GUEST_CACHE:-/var/cache/gpuq-guests} dir=${GPUQ_GUEST_DIR:-/var/tmp/gpuq-guests}/$name

alive() { [[ -r $dir/pid ]] && tr '\0' ' ' 2>/dev/null <"/proc/$(<"$dir/pid")/cmdline" | grep -q -- "-name gpuq-$name "; }
talk() { # USER SSH-ARGUMENT...: over one connection that stays open
  local user=$1
  shift
  ssh -p "$(<"$dir/port")" -i "$cache/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
    -o BatchMode=yes -o ConnectTimeout=5 -o ServerAliveInterval=15 -o ServerAliveCountMax=8 -o ControlMaster=auto \
    -o "ControlPath=$dir/ssh-%r" -o ControlPersist=600 "$user@127.0.0.1" "$@"
}
hang_up() { rm -f "$dir"/ssh-*; } # the connections die with the system at their other end
wait_for_boot() { # OLD-BOOT-ID
  local id end=$((SECONDS + 600))
  while ((SECONDS < end)); do
    alive || die "$name: QEMU ended; its console is in $dir/console"
    # Without the shared connection: that would be to the system that is going down.
    if id=$(timeout 20 ssh -p "$(<"$dir/port")" -i "$cache/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
      -o LogLevel=ERROR -o BatchMode=yes -o ConnectTimeout=3 root@127.0.0.1 cat /proc/sys/kernel/random/boot_id </dev/null 2>/dev/null) &&
      [[ $id && $id != "$1" ]]; then return; fi
    sleep 0.3
  done
  die "$name: no ssh after 600 s; its console is in $dir/console"
}
boot() {
  local accelerator=(-accel "tcg,thread=multi,tb-size=512" -cpu "max,la57=off")
  # /dev/kvm alone proves nothing: in a virtual machine whose processors cannot nest, it is there and fails.
  if [[ -w /dev/kvm ]] && grep -qwE 'vmx|svm' /proc/cpuinfo; then accelerator=(-accel kvm -cpu host); fi
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])' >"$dir/port"
  hang_up
  # cache=unsafe: what the guest has synced is in this machine's page cache, and outlives QEMU.
  qemu-system-x86_64 -name "gpuq-$name" -machine q35,vmport=off,usb=off "${accelerator[@]}" \
    -smp "${GPUQ_GUEST_CPUS:-2}" -m "${GPUQ_GUEST_MEM:-2048}" -nodefaults -no-user-config -display none \
    -kernel "$cache/$(<"$dir/suite").vmlinuz" -initrd "$cache/$(<"$dir/suite").initrd" \
    -append "console=ttyS0 mitigations=off nokaslr audit=0 oops=panic panic=1" \
    -drive "file=$dir/disk,format=qcow2,if=none,id=disk,cache=unsafe,discard=unmap" -device virtio-blk-pci,drive=disk \
    -netdev "user,id=net,hostfwd=tcp:127.0.0.1:$(<"$dir/port")-:22" -device virtio-net-pci,netdev=net,romfile= \
    -device virtio-rng-pci -chardev "file,id=console,path=$dir/console,append=on" -serial chardev:console \
    -rtc base=utc,clock=host -daemonize -pidfile "$dir/pid"
}
cut() {
  if alive; then kill -KILL "$(<"$dir/pid")" && while alive; do sleep 0.05; done; fi
  hang_up
}

case $command in
  new)
    suite=${1:?which suite?}
    ! alive || die "$name runs already"
    [[ -e $cache/$suite.raw ]] || die "no image yet: scripts/guest/image.sh $suite"
    rm -rf "$dir" && mkdir -p "$dir" && chmod 700 "$dir" && echo "$suite" >"$dir/suite"
    qemu-img create -q -f qcow2 -F raw -b "$(readlink -f "$cache/$suite.raw")" "$dir/disk"
    boot && wait_for_boot none
    ;;
  start) ! alive || die "$name runs already" && boot && wait_for_boot none ;;
  run)
    alive || die "$name does not run"
    talk "$@"
    ;;
  reboot)
    old=$(talk root cat /proc/sys/kernel/random/boot_id)
    talk root systemctl reboot 2>/dev/null || true
    hang_up
    wait_for_boot "$old"
    ;;
  cut) cut ;;
  rm) cut && rm -rf "$dir" ;;
  *) die "what is $command?" ;;
esac
