/* A libnvidia-ml.so.1 that looks like a healthy HGX node with 8 H100 (80 GiB each, 600 MiB in use, 18 NVLinks each to
 * switches, fabric ready), for tests without a GPU. Every function has the name and the ABI of NVIDIA's nvml.h.
 *
 * Faults are items `KEY=VALUE` (all GPUs) or `KEY@GPU=VALUE`, separated by `;` or line ends. They come from the file
 * that FAKE_NVML_FILE names, and then from FAKE_NVML; both are read again at each call, so that faults can be switched
 * while a program runs.
 *
 *   count=N               GPUs of the driver
 *   driver=TEXT           driver version
 *   init.ret=R            nvmlInit returns R (9 driver not loaded, 18 library and driver versions differ)
 *   hang[@G]=FUNCTION     that function never returns, for GPU G only if given (hang=nvmlInitWithFlags)
 *   lost@G=1              GPU G has fallen off the bus: every call about it but its handle, UUID, name and PCI address
 *                         returns 15 (GPU is lost)
 *   FUNCTION.ret@G=R      that function returns R for GPU G (3 not supported, 4 no permission, 13 not found, ...)
 *   KEY.ret@G=R           the same by the key of what is read, see below
 *   fv.230@G=N            recovery action: 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset; fv.230.ret@G=R
 *   compute_mode, mig, mig.pending, persist, ecc.mode, ecc.pending, ecc.unc.vol, ecc.sram.agg,
 *   remap.corr, remap.unc, remap.pending, remap.failed, clk.reasons, temp, temp.slowdown, temp.margin,
 *   pcie.width, pcie.maxwidth, mem.used, mem.total, display   as in nvml.h
 *   clk.reasons.first@G=N the clock event reasons at the first look; at later ones clk.reasons
 *   ecc.corr.rise@G=N     the count of corrected ECC errors rises by N each time it is read
 *   clock.sm@G=N          clock of the SMs in MHz
 *   name@G=TEXT           model
 *   proc@G=PID            a process of this pid has a context on G and 4 GiB of its memory, or proc.mem bytes; a driver
 *                         before 510 is nvmlDeviceGetComputeRunningProcesses_v3.ret=13
 *   nvlink.count@G=N      NVLinks of G; nvlink.down@G=N: the first N of them are inactive
 *   nvlink.peer@G=P       all links of G lead to GPU P and to no switch
 *   fabric.state, fabric.status, fabric.summary, fabric.mask, fabric.version (newest struct that is known)
 *   p2p@G=S               P2P status over NVLink of every pair with G; p2p.ret, topo.ret
 *   topo@G=L              common ancestor of every pair with G (10 one switch ... 50 across sockets)
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u;
typedef unsigned long long ull;
struct pci { char legacy[16]; u domain, bus, device, devid, subsys; char busid[32]; };
struct proc { u pid; ull mem; u gi, ci; };
struct fv { u id, scope; long long ts, lat; int vtype, ret; ull val; };
struct fab1 { unsigned char uuid[16]; u status, clique; unsigned char state; };
struct fab3 { u version; unsigned char uuid[16]; u status, clique; unsigned char state; u mask; unsigned char summary; };
struct temp { u version; int sensor, temperature; };
struct margin { u version; int margin; };

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, TOO_SMALL = 7, NOT_FOUND = 13, LOST = 15, VERSION = 25 };

static int handles[64];
#define GPU(h) ((int)((int *)(h) - handles))

/* ------------------------------------------------------------------------------------------------ injected faults */

static char from_file[1 << 16];

static void reload(void) {
  const char *path = getenv("FAKE_NVML_FILE");
  int fd = path ? open(path, O_RDONLY) : -1;
  ssize_t n = fd < 0 ? 0 : read(fd, from_file, sizeof from_file - 1);
  if (fd >= 0) close(fd);
  from_file[n > 0 ? n : 0] = 0;
}

static const char *find_in(const char *items, const char *key) {
  size_t n = strlen(key);
  while (items && *items) {
    if (!strncmp(items, key, n) && items[n] == '=') return items + n + 1;
    items = strpbrk(items, ";\n");
    if (items) items++;
  }
  return 0;
}

static const char *find(const char *key, int gpu) {
  char exact[128];
  const char *value;
  snprintf(exact, sizeof exact, "%s@%d", key, gpu);
  if (gpu >= 0 && ((value = find_in(from_file, exact)) || (value = find_in(getenv("FAKE_NVML"), exact)))) return value;
  if ((value = find_in(from_file, key))) return value;
  return find_in(getenv("FAKE_NVML"), key);
}

static ull number(const char *key, int gpu, ull otherwise) {
  const char *value = find(key, gpu);
  return value ? strtoull(value, 0, 0) : otherwise;
}

static void text(char *to, u size, const char *key, int gpu, const char *otherwise) {
  const char *value = find(key, gpu);
  snprintf(to, size, "%.*s", value ? (int)strcspn(value, ";\n") : 200, value ? value : otherwise);
}

static int enter(const char *function, const char *key, int gpu, int identity) {
  char ret[128];
  const char *hangs;
  ull code;
  reload();
  hangs = find("hang", gpu);
  if (hangs) {
    size_t n = strcspn(hangs, ";\n"); /* `_v2` and such need not be given */
    if (n && !strncmp(hangs, function, n) && (!function[n] || !strncmp(function + n, "_v", 2))) for (;;) pause();
  }
  snprintf(ret, sizeof ret, "%s.ret", function);
  if ((code = number(ret, gpu, 0))) return (int)code;
  snprintf(ret, sizeof ret, "%s.ret", key);
  if ((code = number(ret, gpu, 0))) return (int)code;
  return gpu >= 0 && !identity && number("lost", gpu, 0) ? LOST : OK;
}

#define ENTER(key, gpu) do { int r_ = enter(__func__, key, gpu, 0); if (r_) return r_; } while (0)
#define ENTER_IDENTITY(key, gpu) do { int r_ = enter(__func__, key, gpu, 1); if (r_) return r_; } while (0)

/* ---------------------------------------------------------------------------------------------------- the library */

int nvmlInitWithFlags(u flags) { (void)flags; ENTER("init", -1); return OK; }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code) {
  switch (code) {
    case OK: return "The operation was successful";
    case INVALID: return "Invalid argument";
    case UNSUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case NOT_FOUND: return "Function Not Found";
    case LOST: return "GPU is lost";
    case 16: return "GPU requires restart";
    case 18: return "Driver/library version mismatch";
    case VERSION: return "API call with incompatible version of structure";
    default: return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char *to, u size) {
  ENTER("driver", -1);
  text(to, size, "driver", -1, "570.124.06");
  return OK;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { ENTER("cuda", -1); *version = 12080; return OK; }
int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

int nvmlDeviceGetCount_v2(u *count) { ENTER("count", -1); *count = (u)number("count", -1, 8); return OK; }
int nvmlDeviceGetHandleByIndex_v2(u index, void **handle) {
  reload();
  if (index >= number("count", -1, 8)) return INVALID;
  *handle = &handles[index];
  ENTER_IDENTITY("handle", (int)index);
  return OK;
}
int nvmlDeviceGetIndex(void *h, u *index) { *index = (u)GPU(h); return OK; }
int nvmlDeviceGetName(void *h, char *to, u size) {
  ENTER_IDENTITY("name", GPU(h));
  text(to, size, "name", GPU(h), "NVIDIA H100 80GB HBM3");
  return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  const char *last = strrchr(uuid, '-');
  int gpu = last ? atoi(last + 1) : -1;
  reload();
  if (gpu < 0 || gpu >= (int)number("count", -1, 8)) return NOT_FOUND;
  *handle = &handles[gpu];
  ENTER_IDENTITY("handle", gpu);
  return OK;
}
int nvmlDeviceGetUUID(void *h, char *to, u size) {
  ENTER_IDENTITY("uuid", GPU(h));
  snprintf(to, size, "GPU-00000000-0000-0000-0000-%012d", GPU(h));
  return OK;
}
static void address(struct pci *to, int gpu) {
  memset(to, 0, sizeof *to);
  to->bus = 0x10 + (u)gpu;
  snprintf(to->busid, sizeof to->busid, "00000000:%02X:00.0", to->bus);
  snprintf(to->legacy, sizeof to->legacy, "0000:%02X:00.0", to->bus);
}
int nvmlDeviceGetPciInfo_v3(void *h, struct pci *to) { ENTER_IDENTITY("pci", GPU(h)); address(to, GPU(h)); return OK; }

int nvmlDeviceGetMemoryInfo(void *h, ull *memory) {
  ENTER("mem", GPU(h));
  memory[0] = number("mem.total", GPU(h), 80ULL << 30);
  memory[2] = number("mem.used", GPU(h), 600ULL << 20);
  memory[1] = memory[0] - memory[2];
  return OK;
}
static int processes(int gpu, u *count, struct proc *to) {
  u room = *count;
  ull pid = number("proc", gpu, 0);
  *count = pid ? 1 : 0;
  if (!pid) return OK;
  if (!to || room < 1) return TOO_SMALL;
  memset(to, 0, sizeof *to);
  to->pid = (u)pid;
  to->mem = number("proc.mem", gpu, 4ULL << 30);
  return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, u *count, struct proc *to) {
  ENTER("proc", GPU(h));
  return processes(GPU(h), count, to);
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *h, u *count, struct proc *to) {
  ENTER("proc", GPU(h));
  return processes(GPU(h), count, to);
}

#define NUMBER(function, key, otherwise) \
  int function(void *h, u *to) { ENTER(key, GPU(h)); *to = (u)number(key, GPU(h), otherwise); return OK; }
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie.maxwidth", 16)
NUMBER(nvmlDeviceGetPersistenceMode, "persist", 1)
NUMBER(nvmlDeviceGetComputeMode, "compute_mode", 0)
NUMBER(nvmlDeviceGetDisplayActive, "display", 0)

int nvmlDeviceGetMigMode(void *h, u *now, u *pending) {
  ENTER("mig", GPU(h));
  *now = (u)number("mig", GPU(h), 0);
  *pending = (u)number("mig.pending", GPU(h), *now);
  return OK;
}

int nvmlDeviceGetEccMode(void *h, u *now, u *pending) {
  ENTER("ecc.mode", GPU(h));
  *now = (u)number("ecc.mode", GPU(h), 1);
  *pending = (u)number("ecc.pending", GPU(h), *now);
  return OK;
}
int nvmlDeviceGetTotalEccErrors(void *h, int type, int counter, ull *to) {
  ENTER("ecc", GPU(h));
  if (!number("ecc.mode", GPU(h), 1)) return UNSUPPORTED;
  static ull corrected[64];
  if (type == 0) *to = corrected[GPU(h)] += number("ecc.corr.rise", GPU(h), 0);
  else *to = counter == 0 ? number("ecc.unc.vol", GPU(h), 0) : 0;
  return OK;
}
int nvmlDeviceGetMemoryErrorCounter(void *h, int type, int counter, int location, ull *to) {
  ENTER("ecc.counter", GPU(h));
  if (!number("ecc.mode", GPU(h), 1)) return UNSUPPORTED;
  *to = type == 1 && counter == 1 && location == 7 ? number("ecc.sram.agg", GPU(h), 0) : 0;
  return OK;
}
int nvmlDeviceGetRemappedRows(void *h, u *corrected, u *uncorrected, u *pending, u *failed) {
  ENTER("remap", GPU(h));
  *corrected = (u)number("remap.corr", GPU(h), 0);
  *uncorrected = (u)number("remap.unc", GPU(h), 0);
  *pending = (u)number("remap.pending", GPU(h), 0);
  *failed = (u)number("remap.failed", GPU(h), 0);
  return OK;
}

int nvmlDeviceGetClockInfo(void *h, int type, u *to) {
  ENTER("clock", GPU(h));
  *to = type == 1 ? (u)number("clock.sm", GPU(h), 1755) : 2619;
  return OK;
}
static int clock_reasons(int gpu, ull *to) {
  static int looked[64];
  *to = number("clk.reasons", gpu, 1);
  if (!looked[gpu]++) *to = number("clk.reasons.first", gpu, *to);
  return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *h, ull *to) {
  ENTER("clk", GPU(h));
  return clock_reasons(GPU(h), to);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, ull *to) {
  ENTER("clk.old", GPU(h));
  return clock_reasons(GPU(h), to);
}
int nvmlDeviceGetTemperature(void *h, int sensor, u *to) {
  (void)sensor;
  ENTER("temp", GPU(h));
  *to = (u)number("temp", GPU(h), 34);
  return OK;
}
int nvmlDeviceGetTemperatureV(void *h, struct temp *to) {
  ENTER("temp.new", GPU(h));
  to->temperature = (int)number("temp", GPU(h), 34);
  return OK;
}
int nvmlDeviceGetTemperatureThreshold(void *h, int kind, u *to) {
  ENTER("temp.slowdown", GPU(h));
  *to = kind == 1 ? (u)number("temp.slowdown", GPU(h), 87) : 92;
  return OK;
}
int nvmlDeviceGetMarginTemperature(void *h, struct margin *to) {
  ENTER("temp.margin", GPU(h));
  to->margin = (int)number("temp.margin", GPU(h), 53);
  return OK;
}

int nvmlDeviceGetNvLinkState(void *h, u link, u *to) {
  ENTER("nvlink", GPU(h));
  if (link >= number("nvlink.count", GPU(h), 18)) return INVALID;
  *to = link >= number("nvlink.down", GPU(h), 0);
  return OK;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void *h, u link, u *to) {
  (void)link;
  ENTER("nvlink.type", GPU(h));
  *to = find("nvlink.peer", GPU(h)) ? 0 : 2;
  return OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *h, u link, struct pci *to) {
  ENTER("nvlink.remote", GPU(h));
  address(to, (int)number("nvlink.peer", GPU(h), 0xb0 + link % 4));
  return OK;
}
int nvmlDeviceGetGpuFabricInfoV(void *h, struct fab3 *to) {
  ull known;
  ENTER("fabric", GPU(h));
  known = number("fabric.version", GPU(h), 3);
  if (known < 2) return NOT_FOUND;
  if (to->version != 0x2000024 && (to->version != 0x3000028 || known < 3)) return VERSION;
  to->status = (u)number("fabric.status", GPU(h), 0);
  to->clique = 0;
  to->state = (unsigned char)number("fabric.state", GPU(h), 3);
  to->mask = (u)number("fabric.mask", GPU(h), 0xAA);
  if (to->version == 0x3000028) to->summary = (unsigned char)number("fabric.summary", GPU(h), 1);
  return OK;
}
int nvmlDeviceGetGpuFabricInfo(void *h, struct fab1 *to) {
  ENTER("fabric.old", GPU(h));
  memset(to, 0, sizeof *to);
  to->status = (u)number("fabric.status", GPU(h), 0);
  to->state = (unsigned char)number("fabric.state", GPU(h), 3);
  return OK;
}
int nvmlDeviceGetFieldValues(void *h, int count, struct fv *values) {
  ENTER("fv", GPU(h));
  for (int i = 0; i < count; i++) {
    char key[32];
    snprintf(key, sizeof key, "fv.%u.ret", values[i].id);
    values[i].ret = (int)number(key, GPU(h), 0);
    values[i].vtype = 1;
    snprintf(key, sizeof key, "fv.%u", values[i].id);
    values[i].val = number(key, GPU(h), 0);
  }
  return OK;
}

static ull of_pair(const char *key, int a, int b, ull otherwise) {
  return find(key, a) ? number(key, a, 0) : number(key, b, otherwise);
}
int nvmlDeviceGetP2PStatus(void *a, void *b, int index, u *to) {
  (void)index;
  ENTER("p2p", GPU(a));
  ENTER("p2p", GPU(b));
  *to = (u)of_pair("p2p", GPU(a), GPU(b), 0);
  return OK;
}
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, u *to) {
  ENTER("topo", GPU(a));
  ENTER("topo", GPU(b));
  *to = (u)of_pair("topo", GPU(a), GPU(b), GPU(a) / 4 == GPU(b) / 4 ? 40 : 50);
  return OK;
}
