#!/usr/bin/env python3
"""check-report.py REPORT.json [--full]: what the demo has to show, from the figures that it wrote.

The default rule spreads requests evenly, yet the stores' response times are very unlike: that is why files are moved.
With --full also what moving them is worth: an hour has to be long enough for that (the demo without --quick).
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


def check_passes(report):
    """Yields (holds, statement) for what all passes have to have."""
    base, fixed, adjusted = (report[name]["periods"] for name in ("base", "static", "adjusted"))
    strip = lambda periods: [(p["hour"], p["stores"]) for p in periods]
    yield strip(base) == strip(report["periods"]), "the periods are those of the base pass"
    yield len(fixed) == len(adjusted) == 24, f"{len(fixed)} and {len(adjusted)} hours with files moved are 24"
    objective = report["objective"]["ms"]
    # In an hour of less than half a second a busy machine may have measured nothing.
    greatest = lambda period: period["max_mean_response_ms"] or 0
    missed = sum(greatest(p) > objective for p in base)
    yield missed == 11, f"the default rule misses the objective, {objective:.2f} ms, in {missed} hours: 11"
    met = sum(greatest(p) <= objective for p in adjusted)
    yield met == report["adjusted"]["met"], f"Clockwork meets it in {met} hours, as the report says"
    moves = [m for m in report["moves"] if m["by"] != "return"]
    yield len(moves) > 0, f"Clockwork moved {len(moves)} files: some"
    compared = report["forecast"]["compared"]
    yield compared >= 40, f"{compared} forecasts of response times were compared: at least 40"


def check_worth(report):
    """Yields (holds, statement) for what moving files is worth."""
    base, fixed, adjusted, forecast = (report[name] for name in ("base", "static", "adjusted", "forecast"))
    met, worst = adjusted["met"], adjusted["worst_over_base"]
    yield met >= 22, f"Clockwork meets the objective in {met} hours: at least 22"
    yield met >= fixed["met"] - 1, f"the static assignment meets it in {fixed['met']} hours: at most one more"
    yield worst <= 0.5, f"the worst hour is {worst:.2f} of the default rule's: at most 0.5"
    yield adjusted["harmed"] <= 1, f"{adjusted['harmed']} hours are harmed: at most 1"
    median, mape, covered = (forecast[name] for name in ("median_error", "mape", "coverage66"))
    yield median <= 0.09, f"the median error of the forecasts of response times is {median:.1%}: at most 9 %"
    yield mape <= 0.15, f"their mean error is {mape:.1%}: at most 15 %"
    yield 0.56 <= covered <= 0.80, f"{covered:.1%} are within the 66 % interval: 56 to 80 %"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    results = list(check(report)) + list(check_passes(report))
    if "--full" in sys.argv[2:]:
        results += list(check_worth(report))
    for holds, statement in results:
        print("ok" if holds else "not ok", statement)
    return 0 if all(holds for holds, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
