#!/usr/bin/env python3
"""check-report.py REPORT.json: what the demo has to show, from the figures that it wrote.

The default rule spreads requests evenly, yet the stores' response times are very unlike: that is why files are moved.
Prints each statement with its figures; exit status 1 if one does not hold.
"""
import json
import sys


def check(report):
    """Yields (holds, statement) for each requirement."""
    periods = report["periods"]
    requests = lambda period: sum(s["requests"] for s in period["stores"])
    total = {}
    for period in periods:
        for store in period["stores"]:
            total[store["name"]] = total.get(store["name"], 0) + store["requests"]
    share = max(total.values()) / sum(total.values())
    yield len(periods) == 24, f"{len(periods)} hours are 24"
    yield len(total) == 4, f"{len(total)} stores are four"
    yield share < 0.40, f"the busiest store has {share:.1%} of all requests: below 40 %"

    busiest_hour = max(periods, key=requests)
    silent = [s["name"] for s in busiest_hour["stores"] if s["mean_response_ms"] is None]
    yield not silent, f"in the peak hour {', '.join(silent) or 'no store'} answered nothing: none"
    if silent:
        return
    peak = {s["name"]: s["mean_response_ms"] for s in busiest_hour["stores"]}
    slow, fast = max(peak, key=peak.get), min(peak, key=peak.get)

    def quietest(name):
        """Mean response time of a store in the hour in which it had the fewest requests, of those in which it answered any."""
        hours = [s for p in periods for s in p["stores"] if s["name"] == name and s["mean_response_ms"] is not None]
        return min(hours, key=lambda s: s["requests"])["mean_response_ms"]

    slow_rise, fast_rise = peak[slow] / quietest(slow), peak[fast] / quietest(fast)
    apart = peak[slow] / peak[fast]
    yield apart >= 4, f"in the peak hour {slow} is {apart:.2f} times as slow as {fast}: at least 4"
    yield slow_rise >= 3, f"{slow} is {slow_rise:.2f} times as slow as in its quietest hour: at least 3"
    yield fast_rise <= slow_rise / 2, f"{fast} is {fast_rise:.2f} times as slow as in its quietest hour: at most half of that"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    results = list(check(report))
    for holds, statement in results:
        print("ok" if holds else "not ok", statement)
    return 0 if all(holds for holds, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
