#!/usr/bin/env bash
# setup_slurm.sh [--replace] [PLAN]: installs, as root, the Slurm configuration that `gpuq host plan` wrote and you read.
#
# PLAN is a directory like ops/slurm/<hostname>/ (the default). Its MANIFEST lists directories, files and units; each
# file goes to the same path below /. Packages come by apt (apt_install in scripts/lib.sh). Then Slurm is started and
# proved (scripts/prove_slurm.sh). When anything fails, files and services are put back; packages stay installed.
#
#   --check      say what differs from PLAN, change nothing
#   --dry-run    say what would be done, with the differences in files, change nothing
#   --replace    overwrite files that differ; each is first copied beside itself (FILE.gpuq-DATE.bak)
#   --uninstall  put back what was there before the first set-up; refused while jobs run or wait
#   --root DIR   files only, in a system below DIR that is not running (an image; owners by this system's names)
#
# Exit status: 0 done, nothing to do or no difference; 1 differences found, or failed and put back; 2 refused.
# Jobs that run or wait stay: a restart of the daemons keeps them, and a change that would lose them is refused.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/lib.sh
. "$here/scripts/lib.sh"
# shellcheck source=scripts/setup_undo.sh
. "$here/scripts/setup_undo.sh"

refuse() { printf 'setup_slurm.sh: %s\n' "$@" >&2; exit 2; }
packages=(slurm-wlm munge dbus logrotate) # slurmd makes its scope through dbus
daemons=(munge slurmctld slurmd)          # in the order of their start: slurmd registers with slurmctld
action=apply replace='' root='' plan=''
while (($#)); do
  case $1 in
    --check | --dry-run | --uninstall) action=${1#--} ;;
    --replace) replace=1 ;;
    --root) root=$(cd "${2:?--root needs a directory}" && pwd) && shift ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" && exit ;;
    -*) refuse "no such option: $1 (--help lists them)" ;;
    *) plan=$1 ;;
  esac
  shift
done
((EUID == 0)) || refuse "only root can do this: sudo $0"
[[ $root || -d /run/systemd/system ]] || refuse "systemd does not run here, and Slurm's units need it." \
  "For a Slurm without units (a container, WSL without systemd): gpuq local up"
if [[ $root ]]; then name=$(<"$root/etc/hostname"); else name=$(hostname); fi
name=${name%%.*} record=$root/var/lib/gpuq-setup stamp=$(date +%Y%m%dT%H%M%S) staged=$(mktemp -d) begun=''
open=$record/unfinished # what was there before the set-up that is under way
trap finish EXIT
trap 'exit 129' HUP && trap 'exit 130' INT && trap 'exit 143' TERM # without one bash would say 0 in finish
exec 9<"$root/"
[[ $action == check || $action == dry-run ]] || flock -n 9 || refuse "another set-up of this host is under way"

# ---- the plan; copied first, so that what is compared is what is installed -------------------------------------------
declare -A mode=() owner=()
paths=() folders=() logs=() gpus=() paths_watched=() units=("${daemons[@]}") # every path begins with /
read_plan() {
  plan=${plan:-$here/ops/slurm/$name}
  [[ -r $plan/MANIFEST ]] || refuse "$plan has no MANIFEST; write the plan first, and read it: gpuq host plan"
  local word a b path rest host='' format=''
  while read -r word a b path rest; do
    case $word in
      '' | '#'*) continue ;;
      gpuq-host) format=$a ;;
      host) host=$a ;;
      slurm) release=$a ;;
      gpu) gpus+=("$a") ;;
      unit) units+=("$a") && [[ $a != *.path ]] || paths_watched+=("$a") ;;
      dir | log | file)
        [[ $a =~ ^0?[0-7]{3}$ && $b =~ ^[a-z_][a-z0-9_-]*:[a-z_][a-z0-9_-]*$ && $path == /?* && $path/ != */../* && ! $rest ]] ||
          refuse "$plan/MANIFEST: not understood: $word $a $b $path $rest"
        mode[$path]=${a#0} owner[$path]=$b
        case $word in
          dir) folders+=("$path") ;;
          log) logs+=("$path") ;;
          file)
            [[ -f $plan$path && ! -L $plan$path ]] || refuse "$plan$path is in MANIFEST, but no plain file is there"
            install -D -m 600 "$plan$path" "$staged$path" && paths+=("$path")
            ;;
        esac
        ;;
      *) refuse "$plan/MANIFEST: this script does not know the word '$word'; are script and plan of one version?" ;;
    esac
  done <"$plan/MANIFEST"
  [[ $format == 1 ]] || refuse "$plan/MANIFEST is of the format '$format', and this script knows 1"
  [[ $host == "$name" ]] || refuse "$plan was made for the host '$host', and this is '$name': gpuq host plan"
  [[ -f $staged/etc/slurm/slurm.conf ]] || refuse "$plan has no etc/slurm/slurm.conf"
}
setting() { grep -iE "^[[:space:]]*$1" "$2" 2>/dev/null | sort || true; } # the lines of slurm.conf that begin so

fits() { # Slurm's release (that is or would be installed), and the devices
  local have gpu
  have=$(dpkg-query -W -f '${db:Status-Status} ${Version}' slurmctld 2>/dev/null | sed -n 's/^installed //p' || true)
  have=${have:-$(apt-cache policy slurmctld 2>/dev/null | sed -n 's/^ *Candidate: *//p' || true)}
  [[ $have && $have != '(none)' ]] || refuse "apt knows no slurmctld; if its lists are empty: apt-get update"
  [[ ${have#*:} == "$release".* ]] || refuse "the plan is for Slurm $release, and this host has $have: gpuq host plan"
  for gpu in ${gpus[@]+"${gpus[@]}"}; do
    [[ -c $gpu ]] || refuse "the plan names $gpu, which is not there: is the driver loaded? (nvidia-smi)"
  done
}
hardware_fits() { # a node that is said to have more than slurmd sees is drained
  local key seen planned line
  line=$(slurmd -C 2>/dev/null | grep '^NodeName=')
  for key in CPUs Boards SocketsPerBoard CoresPerSocket ThreadsPerCore RealMemory; do
    seen=$(grep -oP "\b$key=\K\d+" <<<"$line" || echo 1)
    planned=$(setting NodeName "$staged/etc/slurm/slurm.conf" | grep -oP "\b$key=\K\d+" || echo 0)
    ((planned <= seen)) || die "the plan says $key=$planned, and slurmd sees $seen: gpuq host plan, now that slurmd is there"
  done
}

# ---- differences, one a line -----------------------------------------------------------------------------------------
attributes_fit() { [[ $(stat -c '%a %U:%G' "$root$1") == "${mode[$1]} ${owner[$1]}" ]]; }
same() { [[ ! -L $root$1 ]] && cmp -s "$staged$1" "$root$1" && attributes_fit "$1"; }
differences() {
  local p
  for p in "${folders[@]}" "${logs[@]}" "${paths[@]}"; do
    if [[ ! -e $root$p ]]; then echo "missing: $p"
    elif [[ -f $staged$p ]] && ! cmp -s "$staged$p" "$root$p"; then echo "differs: $p"
    elif ! attributes_fit "$p"; then
      echo "mode or owner: $p is $(stat -c '%a %U:%G' "$root$p"), planned ${mode[$p]} ${owner[$p]}"
    fi
  done
  [[ ! -r $record/installed ]] || awk '{print $2}' "$record/installed" | while read -r p; do
    [[ ${mode[/$p]:-} ]] || echo "no longer planned: /$p"
  done
  [[ ! $root ]] || return 0
  for p in $(apt_missing "${packages[@]}"); do echo "not installed: $p"; done
  [[ -s /etc/munge/munge.key ]] || echo "missing: /etc/munge/munge.key"
  for p in "${units[@]}"; do systemctl -q is-enabled "$p" 2>/dev/null || echo "not enabled: $p"; done
  for p in "${daemons[@]}" "${paths_watched[@]}"; do systemctl -q is-active "$p" || echo "not running: $p"; done
}

# ---- jobs, and how a new configuration is loaded ---------------------------------------------------------------------
jobs() { # STATES: how many; none where slurmctld is off. One that runs and does not answer may have any number.
  if [[ $root ]] || ! systemctl -q is-active slurmctld; then echo 0 && return; fi
  local rows
  rows=$(timeout 20 squeue -h -r -a -t "$1" -o %i) ||
    refuse "slurmctld runs but does not answer, so its jobs are not known: gpuq doctor"
  grep -c . <<<"$rows" || true
}
changed() { [[ $(setting "$1 *=" /etc/slurm/slurm.conf) != "$(setting "$1 *=" "$staged/etc/slurm/slurm.conf")" ]]; }
# By slurm.conf(5). Since 23.11 `scontrol reconfigure` would do for most of the second, but a restart does no harm.
losing_keys=(SelectType SwitchType StateSaveLocation ClusterName AuthType SlurmUser SlurmctldPort SlurmdPort ProctrackType)
restart_keys=(CredType CommunicationParameters GresTypes JobContainerType JobCompType JobSubmitPlugins MaxJobCount
  MaxNodeCount PluginDir SchedulerType SelectTypeParameters SlurmctldHost TaskPlugin NodeName)
how_to_load() { # $load becomes restart or reconfigure; refuses what would lose jobs
  local key why='' live running
  load=restart
  if [[ $root || ! -f /etc/slurm/slurm.conf ]] || ! systemctl -q is-active slurmctld; then return; fi
  live=$(jobs PD,R,CG,S,CF) running=$(jobs R,CG,S,CF)
  if ((live)); then
    for key in "${losing_keys[@]}"; do
      ! changed "$key" || refuse "$live jobs run or wait, and the new $key would lose them; let the queue run empty first"
    done
    for key in $(setting PartitionName /etc/slurm/slurm.conf | sed 's/[^=]*=\([^[:space:]]*\).*/\1/'); do
      [[ $(setting "PartitionName=$key([[:space:]]|$)" "$staged/etc/slurm/slurm.conf") ]] ||
        refuse "$live jobs run or wait, and the plan has no partition $key any more; let the queue run empty first"
    done
    ! changed NodeName || ((running == 0)) ||
      refuse "jobs are running, and the node's line changes, which may end them; wait for them"
  fi
  for key in "${losing_keys[@]}" "${restart_keys[@]}"; do ! changed "$key" || why+=" $key"; done
  # Read when the daemons start; and what systemd does before and after that.
  for key in /etc/slurm/{gres.conf,cgroup.conf,before_slurmctld.sh} /etc/systemd/system/slurm{ctld,d}.service.d/gpuq.conf; do
    [[ ! -f $staged$key ]] || cmp -s "$staged$key" "$key" || why+=" $key"
  done
  systemctl -q is-active slurmd || why+=" slurmd, which does not run"
  [[ $why ]] || { load=reconfigure && return; }
  say "slurmctld and slurmd have to be restarted for:$why ($live jobs stay as they are)"
}

# ---- the work --------------------------------------------------------------------------------------------------------
make_folder() { # PATH, with its parents
  [[ ! -d $root$1 ]] || return 0
  make_folder "$(dirname "$1")" && remember "$1" && mkdir -m 755 "$root$1"
}
set_attributes() { attributes_fit "$1" || { chown "${owner[$1]}" "$root$1" && chmod "${mode[$1]}" "$root$1"; }; }
install_files() {
  local p
  for p in "${folders[@]}"; do
    if [[ -d $root$p ]]; then attributes_fit "$p" || remember "$p"; else make_folder "$p"; fi
    set_attributes "$p"
  done
  for p in "${logs[@]}"; do [[ -e $root$p ]] || : >"$root$p"; set_attributes "$p"; done
  for p in "${paths[@]}"; do
    ! same "$p" || continue
    make_folder "$(dirname "$p")" # before the file: what came first is taken back last
    remember "$p"
    if [[ -e $root$p ]] && ! cmp -s "$staged$p" "$root$p"; then
      cp -a "$root$p" "$root$p.gpuq-$stamp.bak" && echo "$p.gpuq-$stamp.bak" >>"$open/absent"
      say "replacing $p; the old one is $p.gpuq-$stamp.bak"
    fi
    echo "$p.gpuq-new" >>"$open/absent"
    install -m "${mode[$p]}" -o "${owner[$p]%:*}" -g "${owner[$p]#*:}" "$staged$p" "$root$p.gpuq-new"
    sync "$root$p.gpuq-new" "$open"/* && mv -T "$root$p.gpuq-new" "$root$p"
    say "installed $p"
  done
  for p in $(differences | sed -n 's/^no longer planned: //p'); do
    remember "$p" && rm -f "$root$p"
    ! tar -tf "$record/files.tar" | grep -qxF "${p#/}" || tar -xpf "$record/files.tar" -C "$root/" "${p#/}"
    say "no longer planned, back to what it was: $p"
  done
}
start_daemons() {
  local unit
  systemctl daemon-reload
  systemctl -q enable "${units[@]}"
  systemctl reset-failed "${daemons[@]}" 2>/dev/null || true
  systemctl start munge ${paths_watched[@]+"${paths_watched[@]}"}
  if [[ $load == restart ]]; then
    for unit in slurmctld slurmd; do say "starting $unit" && systemctl restart "$unit"; done
  else
    say "scontrol reconfigure"
    scontrol reconfigure || die "slurmctld refuses the new configuration"
  fi
}

if [[ $action == uninstall ]]; then
  [[ -d $record ]] || { say "nothing was set up here by this script" && exit 0; }
  live=$(jobs PD,R,CG,S,CF)
  ((live == 0)) || refuse "$live jobs run or wait; let the queue run empty, or cancel them"
  { (cd "$root/" && sha256sum -c "$record/installed" 2>/dev/null) || true; } | sed -n 's/: FAILED$//p' | while read -r p; do
    cp -a "$root/$p" "$root/$p.gpuq-$stamp.bak" && say "/$p was changed since; kept as /$p.gpuq-$stamp.bak"
  done
  put_back "$record" && rm -rf "$record"
  say "put back what was there; packages stay (apt-get purge ${packages[*]:0:2}), and so do logs and Slurm's state"
  exit 0
fi
read_plan
found=$(differences)
if [[ $action == check ]]; then
  echo "${found:-no difference to $plan}"
  exit $((${#found} > 0))
fi
[[ $root ]] || fits
if [[ $action == apply && -d $open ]]; then
  say "an earlier set-up was interrupted; putting back what was there before it"
  put_back "$open" && rm -rf "$open" && found=$(differences)
fi
if [[ $action == apply && ! $replace ]] && grep '^differs: ' <<<"$found" >&2; then
  refuse "these files are not as planned, and are left alone; see the differences with --dry-run, then: --replace"
fi
[[ ! $found ]] || how_to_load
if [[ $action == dry-run ]]; then
  echo "${found:-nothing to do}"
  sed -n 's/^differs: //p' <<<"$found" | while read -r p; do diff -u "$root$p" "$staged$p" || true; done
  exit 0
fi
[[ $found ]] || { say "nothing to do: this host is as $plan says" && exit 0; }
begin
if [[ ! $root ]]; then
  apt_install "${packages[@]}"
  hardware_fits
  if [[ ! -s /etc/munge/munge.key ]]; then
    say "making a munge key" && remember /etc/munge/munge.key
    (umask 077 && head -c 1024 /dev/urandom >/etc/munge/munge.key) && chown munge:munge /etc/munge/munge.key
  fi
fi
# Neither may the old slurmd register with the new slurmctld, nor with the old one by the new files (it is told to reload
# half a minute after each start of slurmctld): with a GPU less than is configured there, the node would stay drained.
[[ $root || $load != restart ]] || systemctl stop slurmd 2>/dev/null || true
install_files
if [[ ! $root ]]; then
  start_daemons
  proof=0 && "$here/scripts/prove_slurm.sh" || proof=$?
  ((proof == 0 || proof == 75)) || exit 1
fi
commit
say "done; put back with --uninstall"
