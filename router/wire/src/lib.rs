//! ONC RPC (RFC 5531), NFSv3 and MOUNT v3 (RFC 1813) and the portmapper (RFC 1833) on the wire, without I/O:
//! record marks, headers as offsets into bytes that stay where they are, and the few fields that a router rewrites.
