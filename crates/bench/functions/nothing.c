/* The least a function can do. */
__attribute__((export_name("handle"))) int handle(void) { return 0; }
