// Stands in for libnccl where its loading is tested. STUB_VERSION: what it says it is; STUB_LACKS_SEND: one
// function is missing.
extern "C" {

int ncclGetVersion(int* version) {
  *version = STUB_VERSION;
  return 0;
}
const char* ncclGetErrorString(int) { return "stub"; }
int ncclGetUniqueId(void*) { return 0; }
int ncclCommInitRankConfig() { return 3; }
int ncclCommGetAsyncError() { return 3; }
int ncclCommAbort() { return 3; }
int ncclCommDestroy() { return 3; }
int ncclGroupStart() { return 3; }
int ncclGroupEnd() { return 3; }
#ifndef STUB_LACKS_SEND
int ncclSend() { return 3; }
#endif
int ncclRecv() { return 3; }
int ncclAllReduce() { return 3; }
int ncclReduceScatter() { return 3; }
int ncclAllGather() { return 3; }
int ncclBroadcast() { return 3; }
int ncclMemAlloc() { return 3; }
int ncclMemFree() { return 3; }
}
