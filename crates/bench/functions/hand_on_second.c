/* Hands each record on. */
#include "millrace.h"

int handle(const mr_record *record) { return mr_append("two", record->data, record->size); }
