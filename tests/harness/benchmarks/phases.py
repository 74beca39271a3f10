"""Where the time of a run went."""

from __future__ import annotations

from collections.abc import Mapping

from txtopo import RunReport


def phase_rows(report: RunReport) -> Mapping[str, str]:
    """Return the phases of a run, with their times, from the report of a run that has committed something."""
    each = max(report.transactions, 1)
    return {
        "from start to stop": f"{report.elapsed_secs:.2f} s",
        "transactions": f"{report.transactions:,}",
        "attempts, failed": f"{report.attempts:,}, {report.failures:,}",
        "processing, summed over jobs": _share(report.processing_secs, report.elapsed_secs, each),
        "… of it, processor time in spouts and bolts": _share(report.executor_secs, report.elapsed_secs, each),
        "commits": _share(report.commit_secs, report.elapsed_secs, each),
        **{f"… {step}": _share(secs, report.elapsed_secs, each) for step, secs in report.step_secs.items()},
    }


def _share(secs: float, elapsed_secs: float, transactions: int) -> str:
    share = secs / elapsed_secs if elapsed_secs else 0.0
    return f"{secs:.2f} s, {share:.0%}, {secs / transactions * 1000:.2f} ms each"
