"""``make afternoon``: all of docs/aws_tests.md's "One afternoon in an account", in order, with the credentials of the shell.

It deploys under a name of its own, notes what each step has seen, and takes everything down at the end, also after a step that failed.
After an interrupt the same command goes on; ``--clean`` only takes down what was left. It writes ``.build/afternoon/report.md``.
"""

import argparse
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from moorage.limits import SANDBOX_CPU_UNITS as CPU_UNITS

from infra.config import Config
from infra.prices import DEFAULT_REGION, HOURS_A_MONTH, PRICES
from tests.afternoon.ground import ROOT, Aws, Ground, GroundError
from tests.afternoon.record import WORDS, Came, Record
from tests.afternoon.steps import STEPS, Afternoon, NotProved, Step

FOLDER: Final = ROOT / ".build" / "afternoon"
_IDLE_SECONDS: Final = 1200
"""A sandbox is kept for this long after its last use."""


def afternoon(a: Afternoon, folder: Path, steps: Sequence[Step] = STEPS, *, is_kept: bool = False) -> int:
    """Go through the steps that are not done, of which the last takes everything down, and write the report. Returns how many
    failed."""
    state = folder / "state.json"
    *first, last = steps
    for step in [*first, *([] if is_kept else [last])]:
        if not a.record.is_done(step.name):
            a.record.came[step.name] = _taken(a, step)
            a.record.write(state)
        came = a.record.came[step.name]
        print(f"{WORDS[came.outcome]:8}{step.name:20}{came.said}", flush=True)
    report = a.record.report([(step.name, step.proves) for step in steps], spent(a.record, a.ground))
    (folder / "report.md").write_text(report)
    print(f"\n{report}\nThis is {folder / 'report.md'}.")
    failed = sum(came.outcome == "failed" for came in a.record.came.values())
    if not is_kept and a.record.came[last.name].outcome == "proved":
        state.unlink()
    return failed


def _taken(a: Afternoon, step: Step) -> Came:
    """One step. What goes wrong in it is its outcome; an interrupt is not."""
    if step.needs and step.needs not in a.ground.features:
        return Came("skipped", "no emulator has it")
    if step.is_of_deployment and not a.record.outputs:
        return Came("failed", "there is no deployment")
    began = time.monotonic()
    try:
        return Came("proved", step.run(a), time.monotonic() - began)
    except (NotProved, GroundError) as error:
        return Came("failed", str(error), time.monotonic() - began)
    except Exception as error:  # The rim: other steps prove what they prove.
        return Came("failed", f"{type(error).__name__}: {error}", time.monotonic() - began)


def spent(record: Record, ground: Ground) -> str:
    """By list prices. Cost Explorer knows better, a day later."""
    prices = PRICES.get(record.region, PRICES[DEFAULT_REGION])
    hours = (time.time() - record.began_at) / 3600
    config = Config.model_validate({**ground.settings, "alarm_email": None})
    minute = 60 * (CPU_UNITS["1g"] / 1024 * prices.fargate_vcpu_second + prices.fargate_gb_second)
    dollars = hours * prices.at_rest(config) / HOURS_A_MONTH + record.sandboxes * _IDLE_SECONDS / 60 * minute
    return (
        f"By list prices of {record.region if record.region in PRICES else DEFAULT_REGION}, {hours:.1f} hours and {record.sandboxes} "
        f"sandboxes came to about ${dollars:.2f}, image builds and requests left out. A day later:\n\n"
        f"    aws ce get-cost-and-usage --time-period Start=DAY,End=DAY --granularity DAILY --metrics UnblendedCost "
        f'--filter \'{{"Tags":{{"Key":"moorage:deployment","Values":["{record.name}"]}}}}\''
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make afternoon", description=__doc__.partition("\n")[0])
    parser.add_argument("--egress-host", default="example.com", help="a host that answers HTTPS, for the step 'egress'")
    parser.add_argument("--keep", action="store_true", help="leave the deployment; the next run goes on with it")
    parser.add_argument("--clean", action="store_true", help="only take down what an afternoon has left")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = Record.read(FOLDER / "state.json")
    if options.clean and found is None:
        sys.exit("No afternoon has left anything.")
    record = found or Record(f"afternoon-{secrets.token_hex(3)}", "", time.time())
    try:
        ground = Aws(record.name, FOLDER, options.egress_host)
    except GroundError as error:
        sys.exit(str(error))
    if record.region not in ("", ground.region):
        sys.exit(f"An afternoon was begun in {record.region}: set AWS_REGION, or remove {FOLDER / 'state.json'}.")
    record.region = ground.region
    record.write(FOLDER / "state.json")
    if options.clean:
        record.came |= {step.name: Came("skipped", "only cleaned up") for step in STEPS[:-1] if step.name not in record.came}
        record.came = {name: came for name, came in record.came.items() if name != "destroy"}
        for came in record.came.values():
            came.outcome = "skipped" if came.outcome == "failed" else came.outcome
    try:
        return min(1, afternoon(Afternoon(ground, record, options.egress_host), FOLDER, is_kept=options.keep))
    except KeyboardInterrupt:
        sys.exit("\nInterrupted: 'make afternoon' goes on here, 'make afternoon OPTIONS=--clean' takes the deployment down.")


if __name__ == "__main__":
    sys.exit(main())
