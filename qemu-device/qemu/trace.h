#include "trace/trace-hw_misc_hmm_gpu.h"
