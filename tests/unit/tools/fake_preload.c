/* Stands for libplexrl.so where a test needs something that LD_PRELOAD can load. */
int plexrl_fake_preload_is_loaded = 1;
