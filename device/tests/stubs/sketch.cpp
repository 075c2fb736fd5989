#include "MillraceFlash.h"
#include "millrace_uplink.h"

mrd_port port;

void setup() { millracePort(port, 0x200000, 64, 0x4B17C4E20001); }
