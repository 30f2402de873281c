# shellcheck shell=bash disable=SC2154 # the names are set by setup_slurm.sh
# The half of setup_slurm.sh that takes back: what was there is remembered before it is changed, put back when something
# fails (or by the next call, after a power cut), and kept for --uninstall when all went well. Sourced, root only.
#
# In $record (/var/lib/gpuq-setup), and in $record/unfinished while a set-up is under way: files.tar, what was there; absent,
# what was not, in the order in which it was made; services, whether each unit was enabled and active; nodes, their states.

remember() { # PATH: before it is changed, as found
  if [[ -e $root$1 || -L $root$1 ]]; then tar --format=posix --no-recursion -rf "$open/files.tar" -C "$root/" "${1#/}"
  else echo "$1" >>"$open/absent"; fi
}
begin() {
  local unit enabled
  # Under its name only when it is whole: the next call relies on what it finds there.
  rm -rf "$open.new" && mkdir -p "$open.new" && chmod 700 "$record" && : >"$open.new/absent"
  tar --format=posix -cf "$open.new/files.tar" -T /dev/null
  [[ $root ]] || for unit in "${units[@]}"; do
    enabled=$(systemctl is-enabled "$unit" 2>/dev/null || true)
    echo "$unit ${enabled:-no} $(systemctl is-active "$unit" || true)"
  done >"$open.new/services"
  [[ $root ]] || timeout 5 sinfo -h -N -o '%N %T' >"$open.new/nodes" 2>/dev/null || true
  sync "$open.new"/* && mv -T "$open.new" "$open" && begun=1
}
put_back() { # DIR: files and services as remembered there
  local p unit enabled active
  [[ $root ]] || systemctl stop slurmd slurmctld 2>/dev/null || true
  [[ $root ]] || while read -r unit enabled _; do # while its file is still there
    [[ $enabled == enabled ]] || systemctl -q disable --now "$unit" 2>/dev/null || true
  done <"$1/services"
  # A folder goes only when nothing is left in it: logs and Slurm's state stay.
  tac "$1/absent" | while read -r p; do rm -f "$root$p" 2>/dev/null || rmdir "$root$p" 2>/dev/null || true; done
  tar -xpf "$1/files.tar" -C "$root/"
  [[ ! $root ]] || return 0
  systemctl daemon-reload
  systemctl reset-failed "${daemons[@]}" 2>/dev/null || true
  while read -r unit _ active; do # in the order of their start
    [[ $active != active ]] || systemctl start "$unit" || say "$unit does not start again: journalctl -u $unit"
  done <"$1/services"
  # A node that was drained for a configuration that did not work stays so: slurmctld keeps that in its state.
  [[ ! -r $1/nodes ]] || while read -r unit active; do
    [[ $active == *drain* ]] || timeout 20 scontrol update NodeName="$unit" State=RESUME >/dev/null 2>&1 || true
  done <"$1/nodes"
}
finish() {
  local status=$?
  if ((status)) && [[ $begun ]]; then
    trap '' HUP INT TERM
    [[ $root ]] || journalctl -q -u slurmctld -u slurmd -n 15 --no-pager --since -5min 2>/dev/null | cut -c1-200 >&2 || true
    say "failed; putting back what was there"
    put_back "$open" && rm -rf "$open" && say "files and services are as they were (packages stay installed)"
    status=1
  fi
  rm -rf "$staged"
  exit "$status"
}
commit() { # what was there before the first set-up is kept for --uninstall
  local p known
  [[ -f $record/files.tar ]] || cp "$open/files.tar" "$open/absent" "$record/"
  [[ -f $record/services || $root ]] || cp "$open/services" "$record/"
  known=$(cat "$record/absent" && tar -tf "$record/files.tar" | sed 's,^,/,')
  grep -vxF "$known" "$open/absent" >>"$record/absent" || true
  tar -tf "$open/files.tar" | sed 's,^,/,' | { grep -vxF "$known" || true; } | while read -r p; do
    tar -xpf "$open/files.tar" -C "$staged" --one-top-level=was "${p#/}"
    tar --format=posix --no-recursion -rf "$record/files.tar" -C "$staged/was" "${p#/}"
  done
  sed -i '/\.bak$/d; /\.gpuq-new$/d' "$record/absent"
  (cd "$root/" && sha256sum "${paths[@]#/}") >"$record/installed"
  begun='' && rm -rf "$open"
}
