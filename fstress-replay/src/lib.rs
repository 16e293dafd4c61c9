//! Replays a workload as NFSv3 calls, open loop, against a live server.
