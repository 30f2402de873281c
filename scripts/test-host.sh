#!/usr/bin/env bash
# test-host.sh [SUITE...]: sets a bare Debian host up in a virtual machine and shows that nothing is lost there: set-up and
# proof, log rotation, the watcher, a reboot and a power cut with a running and two waiting jobs, a GPU that goes away,
# --uninstall. SUITE is trixie (Slurm 24.11) or sid (26.05); both without arguments. Root only. A quarter of an hour each,
# plus two minutes for a new image.
#
# The tree as it is goes into the guest, and `gpuq host plan` writes the plan there. What the steps said is in
# $GPUQ_GUEST_DIR/SUITE.log (/var/tmp/gpuq-guests); with GPUQ_GUEST_KEEP=1 the guest stays (scripts/guest/vm.sh run SUITE root).
# Exit status: 0 when every check of every suite passed.
# shellcheck disable=SC2016,SC2317,SC2329 # what is expanded is expanded inside; the steps are called through step
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

export GPUQ_GUEST_DIR=${GPUQ_GUEST_DIR:-/var/tmp/gpuq-guests}
((EUID == 0)) || die "only root can make the image of a guest"
mkdir -p "$GPUQ_GUEST_DIR"

vm() { local command=$1; shift; scripts/guest/vm.sh "$command" "$suite" "$@"; }
inside() { vm run "$1" "$(printf 'bash -euo pipefail -c %q' "$(cat)")" </dev/null; } # USER <<SCRIPT
step() { # NAME COMMAND...: the command's output goes to the log, its last lines also here when it fails
  local name=$1 from=$SECONDS mark status
  shift
  mark=$(wc -l <"$report")
  echo "##### $name" >>"$report"
  set +e # not `if (...)`: there the first failing command would not end it
  (set -e && "$@") >>"$report" 2>&1 </dev/null
  status=$?
  set -e
  if ((status == 0)); then printf 'ok    %-62s %4d s\n' "$name" $((SECONDS - from)); else
    printf 'FAIL  %-62s %4d s\n' "$name" $((SECONDS - from))
    failed=1
    tail -n +$((mark + 1)) "$report" | tail -n "${GPUQ_GUEST_LINES:-25}" | sed 's/^/      | /'
  fi
}

# ---- what is done inside, each as one script -------------------------------------------------------------------------
copy_tree() {
  git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do [[ ! -e $file ]] || printf '%s\0' "$file"; done |
    tar --null --files-from=- --ignore-failed-read -c | vm run user1 'mkdir project && tar -x -C project'
  inside root <<'IN'
systemctl is-system-running --wait
printf '#!/bin/sh\nPYTHONPATH=/home/user1/project exec python3 -m gpuq "$@"\n' >/usr/local/bin/gpuq
chmod 755 /usr/local/bin/gpuq
IN
  inside user1 <<'IN'
mkdir -p work/runs
printf '[submit]\nmem = "100M"\ncpus = 1\ntime = "20"\n' >work/gpuq.toml
run() { # TAG SCRIPT
  mkdir -p "work/runs/$1"
  printf '#!/bin/bash\n%s\n' "$2" >"work/runs/$1/job.sh"
  chmod 755 "work/runs/$1/job.sh"
}
# q1 would never end by itself; the life after that ends at once.
run q1 'if [[ ${SLURM_RESTART_COUNT:-0} == 0 ]]; then sleep 3000; fi; echo life $SLURM_RESTART_COUNT'
for tag in q2 q3 early late; do run "$tag" 'sleep 1; echo done'; done
cd work
gpuq --version
IN
}
plan() {
  inside user1 <<'IN'
cd project
rm -rf ops/slurm/"$(hostname -s)"
gpuq host plan
cat ops/slurm/"$(hostname -s)"/MANIFEST ops/slurm/"$(hostname -s)"/etc/slurm/*.conf
IN
}
before() {
  inside root <<'IN'
cat >/root/state <<'S'
# The configuration with its times, and since when the daemons run.
find /etc/slurm /etc/systemd /etc/logrotate.d /etc/munge -printf '%p %m %u %g %T@ %i\n' 2>/dev/null | sort
systemctl show -p ActiveEnterTimestampMonotonic munge slurmctld slurmd
S
cp -a /etc/systemd/system /root/system.before
cd /home/user1/project
status=0 && scripts/setup_slurm.sh --check || status=$?
test $status = 1
scripts/setup_slurm.sh --dry-run
test ! -e /etc/slurm && test ! -e /var/lib/gpuq-setup
status=0 && runuser -u user1 -- scripts/setup_slurm.sh || status=$?
test $status = 2
mv /dev/nvidia0 /dev/away
status=0 && scripts/setup_slurm.sh || status=$?
mv /dev/away /dev/nvidia0
test $status = 2 && test ! -e /etc/slurm
IN
}
set_up() {
  inside user1 <<'IN'
cd project
sudo scripts/setup_slurm.sh
test "$(systemctl is-system-running)" = running
systemctl is-active gpuq-slurm-scripts.path
IN
}
set_up_again() {
  inside user1 <<'IN'
cd project
sudo bash /root/state >one
sudo scripts/setup_slurm.sh | tee said
grep 'nothing to do' said
sudo scripts/setup_slurm.sh --check
sudo bash /root/state >two
diff one two
IN
}
roll_back() {
  inside user1 <<'IN'
cd project
plan=ops/slurm/$(hostname -s)
rm -rf bad && cp -r "$plan" bad
# A stanza that slurmctld takes and slurmd dies of: only the proof finds it.
sed -i 's/^ConstrainCores=.*/ConstrainCores=yes\nNoSuchKeyword=1/' bad/etc/slurm/cgroup.conf
sudo bash -c 'find /etc/slurm -type f -exec md5sum {} +' | sort >one
status=0 && sudo scripts/setup_slurm.sh bad || status=$?
test $status = 2
status=0 && sudo scripts/setup_slurm.sh --replace bad || status=$?
test $status = 1
# A node that lacks what slurm.conf says is drained, and slurmctld would remember that.
rm -rf bad && cp -r "$plan" bad
sed -i 's/ Gres=gpu:1/ Gres=gpu:2/' bad/etc/slurm/slurm.conf
status=0 && sudo scripts/setup_slurm.sh --replace bad || status=$?
test $status = 1
sudo bash -c 'find /etc/slurm -type f -exec md5sum {} +' | sort >two
diff one two
sudo scripts/setup_slurm.sh --check
sudo scripts/prove_slurm.sh
IN
}
changes() {
  inside user1 <<'IN'
cd project
plan=ops/slurm/$(hostname -s)
(cd ../work && gpuq submit q3 --hold)
rm -rf bad && cp -r "$plan" bad
sed -i 's,^StateSaveLocation=.*,StateSaveLocation=/var/tmp,' bad/etc/slurm/slurm.conf
status=0 && sudo scripts/setup_slurm.sh --replace bad || status=$?
test $status = 2
status=0 && sudo scripts/setup_slurm.sh --uninstall || status=$?
test $status = 2
rm -rf bad && cp -r "$plan" bad
sed -i 's,^KillWait=.*,KillWait=31,' bad/etc/slurm/slurm.conf
since=$(systemctl show -p ActiveEnterTimestampMonotonic slurmctld slurmd)
sudo scripts/setup_slurm.sh --replace bad
scontrol show config | grep 'KillWait.*31'
test "$since" = "$(systemctl show -p ActiveEnterTimestampMonotonic slurmctld slurmd)" # a reconfigure was enough
(cd ../work && gpuq cancel q3 && gpuq wait q3 --json || test $? = 23)
IN
}
other_gpu() { # a second one, which is not for jobs
  inside user1 <<'IN'
cd project
sudo mknod -m 666 /dev/nvidia1 c 195 1
status=0 && gpuq host plan --dir second || status=$?
test $status = 9 && test ! -e second
gpuq host plan --gpu 1 --dir second
sudo scripts/setup_slurm.sh --replace second | tee said
grep "nor may anybody's job open /dev/nvidia0" said
sudo scripts/setup_slurm.sh --replace ops/slurm/"$(hostname -s)"
sudo rm /dev/nvidia1
sudo scripts/setup_slurm.sh --check
sudo find /etc -name '*.gpuq-*.bak' -print -delete
IN
}
logs() { # what logrotate does to the history of jobs, once as it would and once forced
  inside user1 <<'IN'
sudo logrotate -d /etc/logrotate.d/gpuq-slurm 2>&1 | tee said
! grep -i 'error:' said
sudo logrotate -f /etc/logrotate.d/gpuq-slurm
cd work
gpuq submit q3
gpuq wait q3 --timeout 600
ls -l /var/log/slurm
test "$(stat -c '%a %U' /var/log/slurm/jobcomp.log)" = '644 slurm'
grep -c "Name=q3" /var/log/slurm/jobcomp.log # slurmctld writes to the new file
grep -c "Name=gpuq-proof" /var/log/slurm/jobcomp.log.1
IN
}
watch() { # as a service of a plain user
  inside user1 <<'IN'
cd work
systemctl --user set-environment PYTHONPATH=/home/user1/project
gpuq watch install
systemctl --user show -p Type,ActiveState,SubState,NotifyAccess gpuq-watch | tee said
grep ActiveState=active said && grep Type=notify said
gpuq watch status
gpuq submit q2
gpuq wait q2 --timeout 600
for ((n = 0; n < 60; n++)); do ! journalctl --user -u gpuq-watch -o cat | grep 'job_ended q2 .*SUCCEEDED' || break; sleep 1; done
((n < 60))
gpuq watch status | grep 'last event'
systemctl --user stop gpuq-watch
test "$(systemctl --user show -p Result --value gpuq-watch)" = success
status=0 && gpuq watch status || status=$?
systemctl --user start gpuq-watch
gpuq watch uninstall
test "$(systemctl --user is-active gpuq-watch)" = inactive
test "$(find ~/.config/systemd -name '*gpuq*' | wc -l)" = 0
systemctl --user --no-legend --failed list-units | tee said
test ! -s said
gpuq watch uninstall
IN
}
slurmctld_dies() { # it comes back by itself, the job goes on, and slurmd registers again
  inside user1 <<'IN'
cd work
sbatch -p cpu -J goes-on -c1 --mem=10 -o goes-on.out --wrap 'while [ ! -e stop ]; do sleep 1; done; echo over'
for ((n = 0; n < 300; n++)); do [[ $(squeue -h -t R -o %j) != goes-on ]] || break; sleep 1; done
sleep 8
recheck() { systemctl show -p ActiveEnterTimestampMonotonic --value gpuq-slurmd-recheck; }
before=$(recheck)
sudo kill -KILL "$(systemctl show -p MainPID --value slurmctld)"
for ((n = 0; n < 300; n++)); do ! systemctl is-active slurmctld || ! timeout 5 squeue || break; sleep 1; done
test "$(squeue -h -t R -o %j)" = goes-on
test "$(recheck)" -gt "$before"
for ((n = 0; n < 300; n++)); do systemctl is-active gpuq-slurmd-recheck || break; sleep 1; done
test "$(systemctl show -p Result --value gpuq-slurmd-recheck)" = success
touch stop
for ((n = 0; n < 300; n++)); do [[ $(squeue -h -o %j) ]] || break; sleep 1; done
cat goes-on.out
test "$(cat goes-on.out)" = over
IN
}
three_jobs() {
  inside user1 <<'IN'
cd work
for tag in q1 q2 q3; do gpuq submit "$tag"; done
for ((n = 0; n < 240; n++)); do [[ $(squeue -h -t R -o %j) != q1 ]] || break; sleep 1; done
gpuq queue
test "$(squeue -h -t R -o %j)" = q1
IN
}
all_three_end_well() {
  inside user1 <<'IN'
cd work
gpuq queue
gpuq wait q1 q2 q3 --timeout 900
gpuq status q1
grep 'life 1' runs/q1/slurm/attempt*.out # requeued, once
IN
}
reboot() { vm reboot; }
script_lasts() { # right after slurmctld has saved its list of jobs; the kernel alone would write the script half a minute later
  local try
  for try in 1 2 3; do
    inside user1 <<'IN'
cd work
rm -f kept.out && sleep 6 && touch before
sbatch --hold -p cpu -J kept -c1 --mem=10 -o kept.out --wrap 'echo kept'
for ((n = 0; n < 3000; n++)); do sudo test /var/lib/slurm/slurmctld/job_state -nt before && break || sleep 0.01; done
sleep 2 # for gpuq-slurm-scripts
IN
    vm cut
    vm start
    if inside user1 <<'IN'; then return; fi
cd work
for ((n = 0; n < 300; n++)); do ! timeout 5 squeue || break; sleep 1; done
squeue -h -o %j | grep -x kept || exit 1
scontrol release "$(squeue -h -n kept -o %i)"
for ((n = 0; n < 300; n++)); do [[ $(squeue -h -o %j) ]] || break; sleep 1; done
cat kept.out
test "$(cat kept.out)" = kept || { echo "the script is lost" && touch lost; }
test ! -e lost
IN
    inside user1 <<<'test ! -e work/lost' || return 1
    echo "the list was saved without the job before cut $try"
  done
  return 1
}
# slurmctld saves its state when something changes, but at most every five seconds: what it takes right after a save is lost
# when the power goes then. A slow moment of this machine may save it all the same: then once more.
power_cut() {
  local try
  inside user1 <<<'sleep 8; cd work && gpuq submit early'
  for try in 1 2 3; do
    inside user1 <<<'sleep 6; cd work; sbatch --hold -p cpu -J change -c1 --mem=10 -o /dev/null --wrap true; gpuq submit late'
    vm cut
    vm start
    if inside user1 <<'IN'; then return; fi
for ((n = 0; n < 300; n++)); do ! timeout 5 squeue || break; sleep 1; done
scancel -n change
! squeue -h -o %j | grep -x late || { cd work && gpuq cancel late && exit 1; }
IN
    echo "late was saved before cut $try"
  done
  return 1
}
late_is_lost() {
  inside user1 <<'IN'
cd work
squeue
gpuq status late | tee said
grep LOST said
gpuq why late | tee said
grep "gpuq resubmit late" said
status=0 && gpuq wait late || status=$?
test $status = 26
gpuq resubmit late
gpuq wait early late --timeout 900
gpuq status
IN
}
device_goes() {
  inside root <<'IN'
rm /dev/nvidia0
status=0 && timeout 60 systemctl restart slurmd || status=$?
test $status != 0
status=0 && timeout 60 runuser -u user1 -- gpuq doctor || status=$?
test $status = 10
since=$SECONDS
systemd-tmpfiles --create
for ((n = 0; n < 240; n++)); do systemctl is-active slurmd && break || sleep 1; done
echo "slurmd is back $((SECONDS - since)) s after the device"
/home/user1/project/scripts/prove_slurm.sh
IN
}
late_device_at_boot() {
  inside root <<<'mv /etc/tmpfiles.d/stand-in-gpu.conf /root/'
  vm reboot
  inside root <<'IN'
test ! -e /dev/nvidia0
sleep 20
systemctl is-active slurmd || true
mv /root/stand-in-gpu.conf /etc/tmpfiles.d/ && systemd-tmpfiles --create
for ((n = 0; n < 240; n++)); do systemctl is-active slurmd && break || sleep 1; done
/home/user1/project/scripts/prove_slurm.sh
IN
}
uninstall() {
  inside root <<'IN'
cd /home/user1/project
scripts/setup_slurm.sh --uninstall
for unit in munge slurmctld slurmd; do
  test "$(systemctl is-active $unit)" = inactive && test "$(systemctl is-enabled $unit)" = disabled
done
ls -R /etc/slurm
test ! -e /etc/slurm/slurm.conf
# slurm and munge have left nothing beside their packages
diff -r --no-dereference /root/system.before /etc/systemd/system
scripts/setup_slurm.sh --uninstall | grep 'nothing was set up'
test "$(systemctl is-system-running)" = running
IN
}

host() { # SUITE
  local from=$SECONDS
  suite=$1 failed=0 report=$GPUQ_GUEST_DIR/$1.log
  : >"$report"
  say "$suite: a bare host"
  scripts/guest/image.sh "$suite"
  vm rm
  step "boot" vm new "$suite"
  ((failed)) || step "copy the tree" copy_tree
  ((failed)) || step "gpuq host plan" plan
  ((failed)) || step "refusals, --check and --dry-run change nothing" before
  ((failed)) || step "set-up and proof" set_up
  ((failed)) || step "set-up again changes nothing" set_up_again
  ((failed)) || step "logs are rotated, and go on" logs
  ((failed)) || step "gpuq watch as a service of a user" watch
  ((failed)) || step "a plan that does not work is taken back" roll_back
  ((failed)) || step "with a job in the queue: refused, reconfigured" changes
  ((failed)) || step "a second GPU, which is closed to jobs" other_gpu
  ((failed)) || step "slurmctld dies" slurmctld_dies
  ((failed)) || step "three jobs" three_jobs
  ((failed)) || step "reboot" reboot
  ((failed)) || step "after the reboot all three end well" all_three_end_well
  ((failed)) || step "a power cut when the list of jobs was just saved" script_lasts
  ((failed)) || step "three jobs" three_jobs
  ((failed)) || step "power cut and boot" power_cut
  ((failed)) || step "a job accepted at the last moment is LOST, and resubmitted" late_is_lost
  ((failed)) || step "after the power cut all three end well" all_three_end_well
  ((failed)) || step "/dev/nvidia0 goes and comes back" device_goes
  ((failed)) || step "/dev/nvidia0 comes late at boot" late_device_at_boot
  ((failed)) || step "--uninstall" uninstall
  cp "$GPUQ_GUEST_DIR/$suite/console" "$report.console" 2>/dev/null || true
  if [[ ${GPUQ_GUEST_KEEP:-} ]]; then say "the guest stays: scripts/guest/vm.sh run $suite root"; else vm rm; fi
  if ((failed)); then say "$suite: FAILED after $((SECONDS - from)) s; log: $report"; else say "$suite: PASS in $((SECONDS - from)) s"; fi
}

(($#)) || set -- trixie sid
result=0
for one; do
  host "$one" # not in a condition: bash would go on after failures in there
  ((failed == 0)) || result=1
done
exit "$result"
