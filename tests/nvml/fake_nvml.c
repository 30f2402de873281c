/* A library with NVML's ABI (NVIDIA, nvml.h) that plays a scenario, so that the real Python binding can be tested without
 * a GPU. The scenario is the file named by FAKE_NVML, read at nvmlInit; a line each:
 *
 *   init CODE                  what nvmlInit answers (0: success)
 *   count CODE                 what nvmlDeviceGetCount answers
 *   driver VERSION
 *   device NAME                a GPU; the lines below belong to the last one
 *   handle CODE                what nvmlDeviceGetHandleByIndex answers
 *   uuid TEXT | total N | used N | free N | gpu PERCENT | temp CELSIUS | power MILLIWATTS | minor N | mig 0 or 1
 *                              left out: the question is answered with NVML_ERROR_NOT_SUPPORTED
 *   all CODE                   what every question to it answers
 *   compute PID BYTES INSTANCE a process; BYTES or INSTANCE "-": NVML_VALUE_NOT_AVAILABLE
 *   graphics PID BYTES INSTANCE
 *   nolist CODE                what the lists of processes answer
 *   grow N                     the next N calls with a buffer find that the list has outgrown it
 *
 * Compiled with -DOLD it lacks what drivers before 450 lack.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int ret_t;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

#define NONE64 0xFFFFFFFFFFFFFFFFULL
#define NONE32 0xFFFFFFFFU
#define MOST 64

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory2_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;

typedef struct {
    char name[96], uuid[96];
    long long total, used, free, gpu, temp, power, minor, mig;
    ret_t handle, all, nolist;
    process_t process[2][MOST];
    unsigned processes[2];
} device_t;

static device_t device[4];
static unsigned devices;
static ret_t init_code, count_code;
static char driver[80];
static int started, grow;

static unsigned long long number(const char *word, unsigned long long none) {
    return strcmp(word, "-") ? strtoull(word, NULL, 10) : none;
}

static void read_scenario(void) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    devices = 0;
    init_code = count_code = 0;
    grow = 0;
    strcpy(driver, "550.54.14");
    while (file && fgets(line, sizeof line, file)) {
        char key[32], text[96] = "", second[32] = "-", third[32] = "-";
        device_t *now = devices ? &device[devices - 1] : NULL;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%31s %95[^\n]", key, text) < 1) continue;
        if (!strcmp(key, "init")) init_code = atoi(text);
        else if (!strcmp(key, "count")) count_code = atoi(text);
        else if (!strcmp(key, "driver")) strcpy(driver, text);
        else if (!strcmp(key, "grow")) grow = atoi(text);
        else if (!strcmp(key, "device") && devices < 4) {
            now = &device[devices++];
            memset(now, 0, sizeof *now);
            now->total = now->used = now->free = now->gpu = now->temp = now->power = now->minor = now->mig = -1;
            strcpy(now->name, text);
        }
        else if (!now) continue;
        else if (!strcmp(key, "uuid")) strcpy(now->uuid, text);
        else if (!strcmp(key, "total")) now->total = atoll(text);
        else if (!strcmp(key, "used")) now->used = atoll(text);
        else if (!strcmp(key, "free")) now->free = atoll(text);
        else if (!strcmp(key, "gpu")) now->gpu = atoll(text);
        else if (!strcmp(key, "temp")) now->temp = atoll(text);
        else if (!strcmp(key, "power")) now->power = atoll(text);
        else if (!strcmp(key, "minor")) now->minor = atoll(text);
        else if (!strcmp(key, "mig")) now->mig = atoll(text);
        else if (!strcmp(key, "handle")) now->handle = atoi(text);
        else if (!strcmp(key, "all")) now->all = atoi(text);
        else if (!strcmp(key, "nolist")) now->nolist = atoi(text);
        else if (!strcmp(key, "compute") || !strcmp(key, "graphics")) {
            int kind = key[0] == 'g';
            process_t *one = &now->process[kind][now->processes[kind]++ % MOST];
            sscanf(line, "%*s %31s %31s %31s", text, second, third);
            one->pid = strtoul(text, NULL, 10);
            one->used = number(second, NONE64);
            one->gpu_instance = one->compute_instance = number(third, NONE32);
        }
    }
    if (file) fclose(file);
}

ret_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    read_scenario();
    started = init_code == SUCCESS;
    return init_code;
}
ret_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
ret_t nvmlShutdown(void) {
    if (!started) return UNINITIALIZED;
    started = 0;
    return SUCCESS;
}

const char *nvmlErrorString(ret_t code) {
    switch (code) {
    case 0: return "Success";
    case 3: return "Not Supported";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

static ret_t say(char *buffer, unsigned length, const char *text) {
    if (!*text) return NOT_SUPPORTED;
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return SUCCESS;
}

ret_t nvmlSystemGetDriverVersion(char *buffer, unsigned length) {
    return started ? say(buffer, length, driver) : UNINITIALIZED;
}
ret_t nvmlDeviceGetCount_v2(unsigned *count) {
    if (!started) return UNINITIALIZED;
    *count = devices;
    return count_code;
}
ret_t nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **handle) {
    if (!started) return UNINITIALIZED;
    if (index >= devices) return INVALID_ARGUMENT;
    *handle = &device[index];
    return device[index].handle;
}

#define ASK(condition) \
    if (!started) return UNINITIALIZED; \
    if (one->all) return one->all; \
    if (!(condition)) return NOT_SUPPORTED;

ret_t nvmlDeviceGetName(device_t *one, char *buffer, unsigned length) {
    ASK(1)
    return say(buffer, length, one->name);
}
ret_t nvmlDeviceGetUUID(device_t *one, char *buffer, unsigned length) {
    ASK(1)
    return say(buffer, length, one->uuid);
}
ret_t nvmlDeviceGetMemoryInfo(device_t *one, memory_t *memory) {
    ASK(one->total >= 0)
    memory->total = one->total;
    memory->free = one->free;
    memory->used = one->total - one->free; /* with what the driver keeps for itself */
    return SUCCESS;
}
ret_t nvmlDeviceGetUtilizationRates(device_t *one, utilization_t *rates) {
    ASK(one->gpu >= 0)
    rates->gpu = one->gpu;
    rates->memory = 0;
    return SUCCESS;
}
ret_t nvmlDeviceGetTemperature(device_t *one, int sensor, unsigned *degrees) {
    ASK(one->temp >= 0 && sensor == 0)
    *degrees = one->temp;
    return SUCCESS;
}
ret_t nvmlDeviceGetPowerUsage(device_t *one, unsigned *milliwatts) {
    ASK(one->power >= 0)
    *milliwatts = one->power;
    return SUCCESS;
}
ret_t nvmlDeviceGetMinorNumber(device_t *one, unsigned *minor) {
    ASK(one->minor >= 0)
    *minor = one->minor;
    return SUCCESS;
}

#ifndef OLD
ret_t nvmlDeviceGetMemoryInfo_v2(device_t *one, memory2_t *memory) {
    ASK(one->total >= 0)
    if (memory->version != (sizeof *memory | 2u << 24)) return 25; /* ARGUMENT_VERSION_MISMATCH */
    memory->total = one->total;
    memory->free = one->free;
    memory->used = one->used;
    memory->reserved = one->total - one->free - one->used;
    return SUCCESS;
}
ret_t nvmlDeviceGetMigMode(device_t *one, unsigned *current, unsigned *pending) {
    ASK(one->mig >= 0)
    *current = *pending = one->mig;
    return SUCCESS;
}
static ret_t list(device_t *one, unsigned *count, process_t *buffer, int kind) {
    ASK(1)
    if (one->nolist) return one->nolist;
    unsigned room = *count, there = one->processes[kind];
    *count = there;
    if (!there) return SUCCESS;
    if (!buffer || room < there) return INSUFFICIENT_SIZE;
    if (grow > 0) {
        grow--;
        return INSUFFICIENT_SIZE;
    }
    memcpy(buffer, one->process[kind], there * sizeof *buffer);
    return SUCCESS;
}
#ifndef V2
ret_t nvmlDeviceGetComputeRunningProcesses_v3(device_t *one, unsigned *count, process_t *buffer) {
    return list(one, count, buffer, 0);
}
ret_t nvmlDeviceGetGraphicsRunningProcesses_v3(device_t *one, unsigned *count, process_t *buffer) {
    return list(one, count, buffer, 1);
}
#endif
ret_t nvmlDeviceGetComputeRunningProcesses_v2(device_t *one, unsigned *count, process_t *buffer) {
    return list(one, count, buffer, 0);
}
ret_t nvmlDeviceGetGraphicsRunningProcesses_v2(device_t *one, unsigned *count, process_t *buffer) {
    return list(one, count, buffer, 1);
}
#endif
