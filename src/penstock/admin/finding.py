"""What `penstock doctor` found: each thing with why it matters and what to do about it.

Called by the checks (check_*.py) and by cli.doctor, which prints them.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    why: str
    todo: str


@dataclass(slots=True)
class Report:
    """Findings, and what was looked at and is all right."""

    findings: list[Finding] = field(default_factory=list[Finding])
    sound: list[str] = field(default_factory=list[str])
    # Worth knowing, but nothing stands still for it.
    notes: list[str] = field(default_factory=list[str])

    def find(self, what: str, why: str, todo: str) -> None:
        self.findings.append(Finding(what, why, todo))
