"""job_submit.lua: the gate that every job passes, from sbatch, srun, salloc and `scontrol update` alike. Pure.

Slurm accepts a job whose script fails (a Lua error, or a return value that is no number), and a constant that a release
does not know is nil, hence no number. So everything runs inside pcall, return codes are literal numbers, and what is
not understood is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuq.core.host.spec import KEPT, LICENSE, HostSpec, Partition

INVALID_GRES = 2072
"""ESLURM_INVALID_GRES of slurm_errno.h, the same in all releases; the constant itself is unknown to Lua before 24.11."""


def job_submit(spec: HostSpec) -> str:
    """The text of job_submit.lua."""
    own = len({one.gpu for one in spec.partitions if one.gpu}) > 1
    default = next((one.name for one in spec.partitions if one.default), "")
    cpu = next((one.name for one in spec.partitions if one.gpu is None), "")
    return (
        _TEXT.replace("@CPU_PARTITIONS@", _table(one for one in spec.partitions if one.gpu is None))
        .replace("@KINDS@", _kinds(spec.partitions) if own else "{}")
        .replace("@SHARE@", _share(spec))
        .replace("@LICENSE@", LICENSE)
        .replace("@KEPT@", f'"{KEPT}"' if spec.kept else "nil")
        .replace("@DEFAULT@", default)
        .replace("@CPU_HINT@", f" (work without a GPU: --partition={cpu})" if cpu else "")
        .replace("@CODE@", str(INVALID_GRES))
    )


def _table(partitions: Iterable[Partition]) -> str:
    names = [one.name for one in partitions]
    return "{" + ", ".join(f'["{name}"] = true' for name in names) + "}"


def _share(spec: HostSpec) -> str:
    for one in spec.partitions:
        if one.licenses:
            threads = spec.cpus.threads_per_core if spec.cpus.hardware == spec.cpus.cpus else 1
            return f"{{ cpus = {one.licenses}, threads = {threads}, memory = {one.mem_per_cpu} }}"
    return "nil"


def _kinds(partitions: tuple[Partition, ...]) -> str:
    pairs = [f'["{one.name}"] = "{one.gpu.partition(":")[2]}"' for one in partitions if one.gpu]
    return "{" + ", ".join(pairs) + "}"


_TEXT = """\
-- Written by gpuq. In a partition with the GPU a job asks for exactly one GPU; in any other for none.
-- Slurm accepts a job when this script fails, so nothing here may: all of it runs inside pcall, return codes are plain
-- numbers (a constant that this release does not know would be nil), and what is not understood is refused.

local CPU_PARTITIONS = @CPU_PARTITIONS@ -- every other partition is one with a GPU
local KINDS = @KINDS@ -- where each GPU has a partition of its own: the GRES type that belongs to it
local SHARE = @SHARE@ -- where the CPUs of CPU_PARTITIONS are counted as licenses: how many, and MB for each
local KEPT = @KEPT@ -- the GRES of GPUs that are not for jobs
local DEFAULT = "@DEFAULT@"
local REFUSED = @CODE@
local ADD = "add --gres=gpu:1 to the command, or #SBATCH --gres=gpu:1 to the script"
local CPU_HINT = "@CPU_HINT@"

-- The number of GPUs in a TRES string, and their type: 22.05 writes gres:gpu:1, newer releases gres/gpu:1 or gres/gpu=1,
-- and a type may stand between. nil: it cannot be read.
local function gpus(text)
  local total, kind = 0, nil
  if text == nil or text == "" then return 0, nil end
  for word in string.gmatch(text, "[^,]+") do
    word = string.gsub(word, "%s", "")
    word = string.gsub(word, "^gres[:/]", "")
    local rest = string.match(word, "^gpu(.*)$")
    if rest == "" then
      total = total + 1
    elseif rest ~= nil and string.find(rest, "^[:=]") then
      rest = string.gsub(rest, "%(.*%)$", "")
      local typed, count = string.match(rest, "^[:=]([^:=]+)[:=](%d+)$")
      if typed == nil then count = string.match(rest, "^[:=](%d+)$") end
      if typed == nil and count == nil then
        typed = string.match(rest, "^[:=]([%a_][^:=]*)$")
        count = typed and "1"
      end
      if count == nil then return nil, nil end
      total = total + tonumber(count)
      kind = typed or kind
    end
  end
  return total, kind
end

-- Whether each of the named partitions (a list may be given) is one without a GPU: true, false, or nil for a mixture.
local function without_gpu(names)
  local cpu, gpu = false, false
  for name in string.gmatch(names, "[^,]+") do
    if CPU_PARTITIONS[name] then cpu = true else gpu = true end
  end
  if cpu and gpu then return nil end
  return cpu
end

-- Whether a TRES string names the GRES of the GPUs that are not for jobs.
local function kept(text)
  for word in string.gmatch(KEPT ~= nil and text or "", "[^,]+") do
    if string.match(string.gsub(string.gsub(word, "%s", ""), "^gres[:/]", ""), "^[^:=]*") == KEPT then return true end
  end
  return false
end

-- Why the job is refused; nil when it is not.
local function fault(names, asked)
  local cpu = without_gpu(names)
  if cpu == nil then return "name one partition: " .. names .. " are for different jobs" end
  if asked.exclusive then
    return "--exclusive takes the whole host from everybody; leave it out"
  end
  if kept(asked.node) or kept(asked.job) or kept(asked.task) or kept(asked.socket) then
    return "gres " .. KEPT .. " is the GPU that no job gets; " .. ADD
  end
  if gpus(asked.task) ~= 0 or gpus(asked.socket) ~= 0 then
    return "GPUs per task or socket are not counted here; " .. ADD .. " instead"
  end
  local node, kind = gpus(asked.node)
  local job, job_kind = gpus(asked.job)
  if node == nil or job == nil then return "the GPUs that this job asks for cannot be read; " .. ADD end
  if cpu then
    if node ~= 0 or job ~= 0 then
      return "partition " .. names .. " is for work without a GPU; leave out --partition, or the GPU"
    end
    return nil
  end
  local count = math.max(node, job)
  if count == 0 then
    return "partition " .. names .. ": this job asks for no GPU; " .. ADD .. CPU_HINT
  end
  if count ~= 1 or (node ~= 0 and node ~= 1) or (job ~= 0 and job ~= 1) then
    return "partition " .. names .. ": a job here has exactly one GPU, and this one asks for " .. count .. "; " .. ADD
  end
  local own = KINDS[names]
  kind = kind or job_kind
  if kind ~= nil and own ~= nil and kind ~= own then
    return "partition " .. names .. " is that of GPU " .. own .. ", not of " .. kind
  end
  if next(KINDS) ~= nil and own == nil then return "name one partition, not " .. names end
  return nil
end

local function number(value, none)
  value = tonumber(value)
  if value == nil or value >= 65533 and value <= 65535 or value >= 4294967290 then return none end -- not given
  return value
end

-- The CPUs that a job takes, where they are counted as licenses: whole cores, and more of them for more memory.
local function taken(job)
  local cpus = math.max(number(job.min_cpus, 1), number(job.num_tasks, 1) * number(job.cpus_per_task, 1))
  local per_node, per_cpu = number(job.min_mem_per_node), number(job.min_mem_per_cpu)
  if per_node == 0 then return nil end -- --mem=0 is all of the memory
  if per_node ~= nil then cpus = math.max(cpus, math.ceil(per_node / SHARE.memory)) end
  if per_cpu ~= nil then cpus = cpus * math.max(1, math.ceil(per_cpu / SHARE.memory)) end
  return math.ceil(cpus / SHARE.threads) * SHARE.threads
end

-- Gives `job` its licenses, beside others that it names (in `named`); why it is refused, or nil.
local function share(job, names, sizes, named)
  local cpus = taken(sizes)
  if cpus == nil or cpus > SHARE.cpus then
    return "partition " .. names .. " has " .. SHARE.cpus .. " CPUs with " .. SHARE.memory .. " MB each, for all its " ..
      "jobs, and this one asks for more"
  end
  local wanted = string.format("@LICENSE@:%d", cpus)
  for word in string.gmatch(named or "", "[^,]+") do
    if string.match(word, "^%s*([^:@%s]*)") ~= "@LICENSE@" then wanted = word .. "," .. wanted end
  end
  job.licenses = wanted
  return nil
end

-- An update that changes what a waiting job takes: its licenses follow. What the update does not mention is not given.
local function resized(job, old, names)
  if number(job.num_tasks) ~= nil or number(job.cpus_per_task) ~= nil then
    return "the tasks of a job in partition " .. names .. " do not change; submit it again" -- the old ones cannot be seen
  end
  local cpus, on_node = number(job.min_cpus), number(job.pn_min_cpus)
  local per_node, per_cpu = number(job.min_mem_per_node), number(job.min_mem_per_cpu)
  if cpus == nil and on_node == nil and per_node == nil and per_cpu == nil and job.licenses == nil then return nil end
  if per_node == nil and per_cpu == nil then
    per_node, per_cpu = number(old.min_mem_per_node), number(old.min_mem_per_cpu)
  end
  return share(job, names, {
    min_cpus = math.max(cpus or number(old.min_cpus, 1), on_node or number(old.pn_min_cpus, 1)),
    min_mem_per_node = per_node, min_mem_per_cpu = per_cpu,
  }, job.licenses or old.licenses)
end

local function say(text)
  pcall(slurm.log_user, "%s", text)
end

local function submitted(job)
  local names = job.partition
  if names == nil or names == "" then names = DEFAULT end
  local shared = job.shared -- 0, 2, 3 and 4: --exclusive of some kind; unset and --oversubscribe are not
  local why = fault(names, {
    node = job.tres_per_node, job = job.tres_per_job, task = job.tres_per_task, socket = job.tres_per_socket,
    exclusive = shared == 0 or shared == 2 or shared == 3 or shared == 4,
  })
  if why == nil and SHARE ~= nil and without_gpu(names) then why = share(job, names, job, job.licenses) end
  if why ~= nil then
    say(why)
    return REFUSED
  end
  local own = KINDS[names]
  if own ~= nil then
    -- the GPU of this partition, and no other
    for _, field in ipairs({ "tres_per_node", "tres_per_job" }) do
      local text = job[field]
      if text ~= nil and text ~= "" then job[field] = (string.gsub(text, "gpu.*$", "gpu:" .. own .. ":1")) end
    end
  end
  return 0
end

-- A job that waits: `scontrol update JobId=N Gres=gpu:2` would be taken silently. What the update does not mention is nil.
local function modified(job, old)
  local touched = { job.tres_per_node, job.tres_per_job, job.tres_per_task, job.tres_per_socket, job.partition }
  local names = job.partition or old.partition or DEFAULT
  if SHARE ~= nil and without_gpu(names) then
    local why = resized(job, old, names)
    if why ~= nil then
      slurm.log_info("gpuq: update refused: %s", why)
      return REFUSED
    end
  end
  if next(touched) == nil and job.shared ~= 0 then return 0 end
  local node, per_job, wanted = job.tres_per_node, job.tres_per_job, without_gpu(names)
  if job.partition ~= nil and without_gpu(old.partition or DEFAULT) ~= wanted then
    slurm.log_info("gpuq: a job stays among partitions with a GPU, or among those without")
    return REFUSED
  end
  if wanted and node == nil and per_job == nil then return 0 end
  if node == nil and per_job == nil then node = "gres:gpu:1" end -- unchanged: it was let in with one
  local why = fault(names, {
    node = node, job = per_job, task = job.tres_per_task, socket = job.tres_per_socket, exclusive = job.shared == 0,
  })
  if why ~= nil then
    slurm.log_info("gpuq: update refused: %s", why)
    return REFUSED
  end
  return 0
end

-- Whatever goes wrong inside, the answer is a number that refuses.
local function guarded(check, job, other)
  local well, code = pcall(check, job, other)
  if well and type(code) == "number" then return code end
  pcall(slurm.log_error, "job_submit.lua failed: %s", tostring(code))
  say("the gate of this host (job_submit.lua) failed, so the job is refused; slurmctld.log says why")
  return REFUSED
end

function slurm_job_submit(job, part_list, uid)
  return guarded(submitted, job, part_list)
end

function slurm_job_modify(job, old, part_list, uid)
  return guarded(modified, job, old)
end

return 0
"""
