// A driver's library from before MIG, GPM, the second form of memory and process utilisation: it has none of their
// functions, so that calling one unasked ends the process, as it does with a real old driver.
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };
static int card;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; unsigned long long used; } process;

int nvmlInit(void) { return SUCCESS; }
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int r) { return r ? "a fault" : "Success"; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { snprintf(s, n, "418.226.00"); return SUCCESS; }
int nvmlSystemGetCudaDriverVersion(int *v) { *v = 10010; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = &card; return i ? INVALID_ARGUMENT : SUCCESS; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) { snprintf(s, n, "GPU-00000000-0000-0000-0000-000000000001"); return SUCCESS; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { snprintf(s, n, "Old Card"); return SUCCESS; }
int nvmlDeviceGetMinorNumber(void *d, unsigned *n) { *n = 3; return SUCCESS; }
int nvmlDeviceGetPciInfo_v3(void *d, pci *p) {
	memset(p, 0, sizeof *p);
	strcpy(p->bus_id, "00000000:3B:00.0");
	return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *d, memory *m) { m->total = 16ull << 30; m->used = 1ull << 30; m->free = m->total - m->used; return SUCCESS; }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *t) { *t = 44; return SUCCESS; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *w) { return NOT_SUPPORTED; }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *w) { return NOT_SUPPORTED; }
int nvmlDeviceGetUtilizationRates(void *d, utilization *u) { u->gpu = 25; u->memory = 5; return SUCCESS; }
int nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *n, process *p) {
	if (*n < 2) { *n = 2; return INSUFFICIENT_SIZE; }
	*n = 2;
	p[0].pid = 1; p[0].used = 1ull << 29;
	p[1].pid = 2; p[1].used = ~0ull;
	return SUCCESS;
}
int nvmlDeviceGetGraphicsRunningProcesses(void *d, unsigned *n, process *p) { *n = 0; return SUCCESS; }
