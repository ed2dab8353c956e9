// Stands in for the client library where only the launcher is tested: it can be loaded, and says so when asked.
extern "C" __attribute__((visibility("default"))) int tally_empty_client() { return 1; }
