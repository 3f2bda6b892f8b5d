"""When an automation is due: five fields of cron in a time zone, as Debian's cron reads them.

Clocks that are set forward skip times of the day, and clocks that are set back repeat some. An automation for certain hours follows the
clock on the wall: a time that is skipped comes right after the gap, and one that is repeated comes the first time alone. One for every
hour (``*``) follows the time that passes.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from moorage.errors import invalid_value

_DAY = 24 * 3600
_TIMES_COMPARED = 61
"""All of an hour, and the next."""
_HOURS = 1
"""Where in an expression the hours stand."""


def check_schedule(expression: str, timezone: str, now: float) -> None:
    """Raises :class:`~moorage.errors.ApiError`."""
    if timezone not in _zones():
        raise invalid_value("timezone", "it is no IANA time zone, such as 'Europe/Berlin' or 'UTC'.")
    if len(expression.split()) != 5:
        raise invalid_value("expression", "it must have five fields: minute, hour, day of the month, month, day of the week.")
    try:
        following = next_time(expression, timezone, now)
    except CronSimError as error:
        what = str(error).removeprefix("Bad ")  # The library's word for a field that it cannot read.
        taken = "minute 0-59, hour 0-23, day of the month 1-31, month 1-12, day of the week 0-7 or SUN-SAT"
        raise invalid_value("expression", f"its {what} cannot be, and a field takes values as in cron: {taken}.") from error
    if following is None:
        raise invalid_value("expression", "its time never comes.")


def next_time(expression: str, timezone: str, after: float) -> int | None:
    """The first time of a schedule after a time, both in Unix seconds; None if there is none within fifty years."""
    zone = ZoneInfo(timezone)
    times = _times(" ".join(expression.split()), zone, datetime.fromtimestamp(int(after), zone))
    return next((at for at in times if at > after), None)


def shortest_period(expression: str, timezone: str, after: float) -> int:
    """Seconds between two of the next times of a schedule that was checked, where they are closest."""
    times = [int(after)]
    for _ in range(_TIMES_COMPARED):
        following = next_time(expression, timezone, times[-1])
        if following is None:
            break
        times.append(following)
    return min((later - earlier for earlier, later in pairwise(times[1:])), default=_DAY)


def _times(expression: str, zone: tzinfo, start: datetime) -> Iterator[int]:
    if expression.split()[_HOURS] == "*":
        for moment in CronSim(expression, start):
            yield int(moment.timestamp())
        return
    for on_the_wall in CronSim(expression, start.replace(tzinfo=None)):
        yield int(_moment(on_the_wall, zone).timestamp())


def _moment(on_the_wall: datetime, zone: tzinfo) -> datetime:
    """The first moment at which the clocks show a time, or the first after the gap that they skip it in."""
    moment = on_the_wall.replace(tzinfo=zone)
    while moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != on_the_wall:
        on_the_wall += timedelta(minutes=1)
        moment = on_the_wall.replace(tzinfo=zone)
    return moment


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())
