/* A libnvidia-ml.so.1 with 8 healthy GPUs (80 GiB each, 600 MiB in use), for tests without a GPU.
 *
 * FAKE_NVML="key=value;key@gpu=value" injects faults; it is read at each call. Keys used by the tests:
 *   count=N           GPUs of the driver
 *   init.ret=R        nvmlInit returns R (9 driver not loaded, 18 library and driver versions differ)
 *   init.hang=1       nvmlInit never returns
 *   hang@G=1          asking GPU G for its memory never returns
 *   lost@G=1          every call about GPU G returns 15 (GPU is lost)
 *   handle.ret@G=R    getting GPU G returns R (16: reset required)
 *   mem.used@G=BYTES  memory in use
 *   proc@G=PID        a process of this pid has a context on G and 4 GiB of its memory
 *   mig@G=1           MIG mode is on
 */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>
typedef unsigned int u; typedef unsigned long long ull;
struct pci { char legacy[16]; u domain,bus,device,devid,subsys; char busid[32]; };
struct proc { u pid; ull mem; u gi,ci; };
struct fv { u id,scope; long long ts,lat; int vtype,ret; ull val; };
struct fab3 { u version; unsigned char uuid[16]; u status,clique; unsigned char state; u mask; unsigned char summary; };
static int H[64];                                   /* handle = &H[i] */
#define IX(h) ((int)((int*)(h)-H))
static const char *find(const char *k) {            /* k must be followed by '=' at an item start */
  const char *e=getenv("FAKE_NVML"); size_t n=strlen(k);
  for(; e && *e; e=strchr(e,';'), e=e?e+1:e) if(!strncmp(e,k,n) && e[n]=='=') return e+n+1;
  return 0; }
static ull get(const char *k,int i,ull d){ char b[64]; const char *v;
  snprintf(b,64,"%s@%d",k,i); v=find(b); if(!v) v=find(k); return v?strtoull(v,0,0):d; }
#define G(name,i,d) get(name,i,d)
#define FAIL(name,h) do{ ull r=get(name ".ret",IX(h),0); if(!r) r=get("lost",IX(h),0)?15:0; if(r) return (int)r; }while(0)
int nvmlInitWithFlags(u f){ if(G("init.hang",-1,0)) for(;;) pause(); return (int)G("init.ret",-1,0);} int nvmlInit(void){return nvmlInitWithFlags(0);} int nvmlInit_v2(void){return nvmlInitWithFlags(0);} int nvmlShutdown(void){return 0;}
const char*nvmlErrorString(int r){ return r==9?"Driver Not Loaded":r==15?"GPU is lost":r==16?"GPU requires restart":r==18?"Driver/library version mismatch":"fake error"; }
int nvmlSystemGetDriverVersion(char*b,u n){ snprintf(b,n,"570.124.06"); return 0; }
int nvmlSystemGetCudaDriverVersion(int*v){ *v=12080; return 0; } int nvmlSystemGetCudaDriverVersion_v2(int*v){*v=12080;return 0;}
int nvmlDeviceGetCount_v2(u*c){ *c=(u)G("count",-1,8); return 0; }
int nvmlDeviceGetHandleByIndex_v2(u i,void**h){ if(i>=G("count",-1,8)) return 2; *h=&H[i]; FAIL("handle",*h); return 0; }
int nvmlDeviceGetIndex(void*h,u*i){ *i=IX(h); return 0; }
int nvmlDeviceGetName(void*h,char*b,u n){ snprintf(b,n,"NVIDIA H100 80GB HBM3"); return 0; }
int nvmlDeviceGetUUID(void*h,char*b,u n){ snprintf(b,n,"GPU-00000000-0000-0000-0000-%012d",IX(h)); return 0; }
int nvmlDeviceGetPciInfo_v3(void*h,struct pci*p){ memset(p,0,sizeof*p); p->bus=0x10+IX(h); snprintf(p->busid,32,"00000000:%02X:00.0",p->bus); snprintf(p->legacy,16,"0000:%02X:00.0",p->bus); return 0; }
int nvmlDeviceGetMemoryInfo(void*h,ull*m){ if(G("hang",IX(h),0)) for(;;) pause(); FAIL("mem",h); m[0]=80ULL<<30; m[2]=G("mem.used",IX(h),600ULL<<20); m[1]=m[0]-m[2]; return 0; }
int nvmlDeviceGetEccMode(void*h,u*c,u*p){ *c=*p=(u)G("ecc.mode",IX(h),1); return 0; }
int nvmlDeviceGetTotalEccErrors(void*h,int type,int ctr,ull*v){ FAIL("ecc",h); *v= type==1?(ctr==0?G("ecc.unc.vol",IX(h),0):G("ecc.unc.agg",IX(h),0)):0; return 0; }
int nvmlDeviceGetRemappedRows(void*h,u*c,u*un,u*pend,u*fail){ FAIL("remap",h); *c=0; *un=(u)G("remap.unc",IX(h),0); *pend=(u)G("remap.pending",IX(h),0); *fail=(u)G("remap.failed",IX(h),0); return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(void*h,ull*r){ FAIL("clk",h); *r=G("clk.reasons",IX(h),1); return 0; }
int nvmlDeviceGetTemperature(void*h,int s,u*t){ FAIL("temp",h); *t=(u)G("temp",IX(h),34); return 0; }
int nvmlDeviceGetTemperatureThreshold(void*h,int t,u*v){ *v= t==0?92:87; return 0; }
#define SIMPLE(fn,key,d) int fn(void*h,u*v){ FAIL(key,h); *v=(u)G(key,IX(h),d); return 0; }
SIMPLE(nvmlDeviceGetCurrPcieLinkGeneration,"pcie.gen",5) SIMPLE(nvmlDeviceGetMaxPcieLinkGeneration,"pcie.maxgen",5)
SIMPLE(nvmlDeviceGetCurrPcieLinkWidth,"pcie.width",16) SIMPLE(nvmlDeviceGetMaxPcieLinkWidth,"pcie.maxwidth",16)
SIMPLE(nvmlDeviceGetPersistenceMode,"persist",1) SIMPLE(nvmlDeviceGetComputeMode,"compute_mode",0)
int nvmlDeviceGetMigMode(void*h,u*c,u*p){ *c=*p=(u)G("mig",IX(h),0); return 0; }
int nvmlDeviceGetNvLinkState(void*h,u l,u*s){ FAIL("nvlink",h); if(l>=18) return 2; *s=!(l<G("nvlink.down",IX(h),0)); return 0; }
int nvmlDeviceGetNvLinkErrorCounter(void*h,u l,int c,ull*v){ *v=G("nvlink.err",IX(h),0); return 0; }
int nvmlDeviceGetGpuFabricInfoV(void*h,struct fab3*f){ if(f->version!=0x3000028) return 25; f->status=0; f->clique=0; f->state=(unsigned char)G("fabric.state",IX(h),3); f->mask=(u)G("fabric.mask",IX(h),0xAA); f->summary=(unsigned char)G("fabric.summary",IX(h),1); return 0; }
int nvmlDeviceGetFieldValues(void*h,int n,struct fv*v){ for(int i=0;i<n;i++){ char k[32]; snprintf(k,32,"fv.%u",v[i].id); v[i].ret=0; v[i].vtype=1; v[i].val=G(k,IX(h),0);} return 0; }
int nvmlDeviceGetP2PStatus(void*a,void*b,int idx,u*s){ *s=(u)G("p2p",IX(a),0); return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void*h,u*n,struct proc*p){ ull pid=G("proc",IX(h),0); FAIL("proc",h); if(!pid){*n=0;return 0;} if(!p||*n<1){*n=1;return 7;} *n=1; memset(p,0,sizeof*p); p->pid=(u)pid; p->mem=4ULL<<30; return 0; }
