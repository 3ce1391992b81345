"""A machine with one thing wrong of each kind."""

from __future__ import annotations

from datetime import UTC, datetime

from strobe.results.doctor import DoctorResult, SelfCheck
from strobe.results.subject import Machine


def ailing() -> DoctorResult:
    """Return self-checks of every outcome, with a treatment that is wrong in graphs."""
    return DoctorResult(
        strobe_version="0.1.0",
        title="cpu: what can be trusted on this machine?",
        machine=Machine(
            system="Linux", cpu="a CPU", cores=2, threads=2, memory_bytes=8 << 30, device="cpu", device_name="a CPU"
        ),
        command=["strobe", "doctor"],
        started=datetime(2026, 11, 22, 9, 0, tzinfo=UTC),
        duration_s=140,
        checks=[
            SelfCheck(area="machine", name="accelerator", outcome="not here", seen="none was found"),
            SelfCheck(
                area="noise",
                name="smallest difference that shows",
                outcome="doubtful",
                seen="7.1 % with 20 pairs",
                means="Small gains are lost in the noise.",
                do="Close what else runs.",
            ),
            SelfCheck(
                area="tools",
                name="simulator libero",
                outcome="missing",
                seen="not installed",
                do="pip install …[libero]",
            ),
            SelfCheck(
                area="treatments",
                name="masks=once, pi05",
                outcome="holds",
                seen="exact: rms 0 σ",
                evidence={"rms": 0.0},
            ),
            SelfCheck(
                area="treatments",
                name="prefix_cache=static + graph=loop, pi05 (played on the CPU)",
                outcome="fails",
                seen="rms 0.31 σ, and reordered sums differ by 1e-7 σ: it is not exact",
                means="The policy does not act the same with it on this machine.",
                do="Leave graph=loop out here.",
                evidence={"rms": 0.31},
            ),
        ],
    )
