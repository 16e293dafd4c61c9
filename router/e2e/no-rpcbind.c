/* Preloaded into ganesha.nfsd, which otherwise wants an rpcbind to register with. Debian 12's version has no setting for it.
 * cc -shared -fPIC -o no-rpcbind.so no-rpcbind.c */
#include <stdbool.h>
bool svc_reg(void *transport, unsigned program, unsigned version, void *dispatch, void *netconfig) { return true; }
bool rpcb_unset(unsigned program, unsigned version, void *netconfig) { return true; }
