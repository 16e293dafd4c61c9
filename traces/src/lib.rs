//! Workloads: what files there are, and how many requests come for each of them in each hour.
