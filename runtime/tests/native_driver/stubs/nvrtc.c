// A compiler whose machine code is the source after the word CUBIN; a source with the word ERROR does not compile.
#include <stdlib.h>
#include <string.h>

typedef struct { char *text; int failed; } Program;

int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }
const char *nvrtcGetErrorString(int e) { return "NVRTC_ERROR_STUB"; }
int nvrtcGetNumSupportedArchs(int *n) { *n = 3; return 0; }
int nvrtcGetSupportedArchs(int *a) { a[0] = 80; a[1] = 90; a[2] = 100; return 0; }
int nvrtcCreateProgram(Program **p, const char *text, const char *name, int n, const char **h, const char **i) {
    *p = calloc(1, sizeof **p);
    (*p)->text = malloc(strlen(text) + 6);
    strcat(strcpy((*p)->text, "CUBIN"), text);
    return 0;
}
int nvrtcDestroyProgram(Program **p) { free((*p)->text); free(*p); *p = 0; return 0; }
int nvrtcCompileProgram(Program *p, int n, const char *const *options) {
    if (n < 3 || strcmp(options[0], "--gpu-architecture=sm_90a")) return 5;
    p->failed = strstr(p->text, "ERROR") != 0;
    return p->failed ? 6 : 0;
}
static const char *log_of(Program *p) { return p->failed ? "stub.cu(1): error: the word is in it" : ""; }
int nvrtcGetProgramLogSize(Program *p, size_t *n) { *n = strlen(log_of(p)) + 1; return 0; }
int nvrtcGetProgramLog(Program *p, char *log) { strcpy(log, log_of(p)); return 0; }
int nvrtcGetPTXSize(Program *p, size_t *n) { *n = strlen(p->text) + 1; return 0; }
int nvrtcGetPTX(Program *p, char *code) { strcpy(code, p->text); return 0; }
int nvrtcGetCUBINSize(Program *p, size_t *n) { *n = strlen(p->text) + 1; return 0; }
int nvrtcGetCUBIN(Program *p, char *code) { strcpy(code, p->text); return 0; }
