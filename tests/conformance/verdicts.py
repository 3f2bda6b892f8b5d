"""What a suite came to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    suite: str
    passed: int = 0
    skipped: int = 0
    failures: tuple[str, ...] = ()
    reason: str = ""
    """Why the suite did not run."""

    def report(self) -> "Verdict":
        if self.reason:
            print(f"{self.suite}: skipped, {self.reason}.", flush=True)
            return self
        print(f"{self.suite}: {self.passed} passed, {len(self.failures)} failed, {self.skipped} skipped.", flush=True)
        for failure in self.failures:
            print(f"  {failure}", flush=True)
        return self
