"""When automations are due: cron in a time zone, on the days when clocks are set too."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from moorage.automations.schedule import check_schedule, next_time
from moorage.errors import ApiError

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def times(expression: str, zone: str, since: str, count: int) -> list[str]:
    """The next ones, as clocks there show them, with what they are ahead of UTC."""
    at = datetime.fromisoformat(since).replace(tzinfo=ZoneInfo(zone)).timestamp()
    found = []
    for _ in range(count):
        following = next_time(expression, zone, at)
        assert following is not None
        at = following
        found.append(f"{datetime.fromtimestamp(at, ZoneInfo(zone)):%m-%d %H:%M %z}"[:-2])
    return found


def test_the_five_fields_are_those_of_cron() -> None:
    assert times("*/20 9-10 * * MON-FRI", "UTC", "2027-01-01 10:30", 3) == ["01-01 10:40 +00", "01-04 09:00 +00", "01-04 09:20 +00"]
    assert times("0 12 1,15 * *", "UTC", "2027-01-01 12:00", 2) == ["01-15 12:00 +00", "02-01 12:00 +00"]
    assert times("0 0 13 * FRI", "UTC", "2027-08-01 00:00", 2) == ["08-06 00:00 +00", "08-13 00:00 +00"], "either day"


@pytest.mark.parametrize(
    ("zone", "day", "before", "after"),
    [(BERLIN, "2027-03-28", "+01", "+02"), (NEW_YORK, "2027-03-14", "-05", "-04")],
)
def test_an_hour_that_does_not_exist_comes_once_after_the_gap(zone: str, day: str, before: str, after: str) -> None:
    said, following = day[5:], f"{day[5:8]}{int(day[8:]) + 1}"
    assert times("30 2 * * *", zone, f"{day} 00:00", 2) == [f"{said} 03:00 {after}", f"{following} 02:30 {after}"]
    assert times("0,30 2-3 * * *", zone, f"{day} 00:00", 3) == [
        f"{said} 03:00 {after}",
        f"{said} 03:30 {after}",
        f"{following} 02:00 {after}",
    ]
    assert times("*/30 2 * * *", zone, f"{day} 00:00", 2) == [f"{said} 03:00 {after}", f"{following} 02:00 {after}"]
    hourly = times("0 * * * *", zone, f"{day} 00:30", 3)
    assert hourly == [f"{said} 01:00 {before}", f"{said} 03:00 {after}", f"{said} 04:00 {after}"]


@pytest.mark.parametrize(
    ("zone", "day", "hour", "before", "after"),
    [(BERLIN, "2027-10-31", 2, "+02", "+01"), (NEW_YORK, "2027-11-07", 1, "-04", "-05")],
)
def test_an_hour_that_exists_twice_comes_once(zone: str, day: str, hour: int, before: str, after: str) -> None:
    first, second = times(f"30 {hour} * * *", zone, f"{day} 00:00", 2)
    assert (first, second[6:]) == (f"{day[5:]} {hour:02d}:30 {before}", f"{hour:02d}:30 {after}")
    assert second[:5] != first[:5], "the day after"
    hourly = times("0 * * * *", zone, f"{day} 00:30", hour + 2)
    assert hourly[hour - 1 : hour + 1] == [f"{day[5:]} {hour:02d}:00 {before}", f"{day[5:]} {hour:02d}:00 {after}"]


def test_a_clock_may_be_set_by_half_an_hour() -> None:
    assert times("15 2 * * *", LORD_HOWE, "2027-10-03 00:00", 1) == ["10-03 02:30 +11"]
    assert times("45 1 * * *", LORD_HOWE, "2027-04-04 00:00", 2) == ["04-04 01:45 +11", "04-05 01:45 +10"]


@pytest.mark.parametrize(
    ("expression", "zone", "message"),
    [
        ("* * * *", "UTC", "five fields"),
        ("@daily", "UTC", "five fields"),
        ("0 0 * * * *", "UTC", "five fields"),
        ("61 * * * *", "UTC", "its minute cannot be, and a field takes values as in cron: minute 0-59"),
        ("0 0 31 2 *", "UTC", "its day-of-month cannot be"),
        ("0 0 * * MON#9", "UTC", "its day-of-week cannot be"),
        ("0 0 * * *", "Mars/Olympus", "time zone"),
        ("0 0 * * *", "../etc/passwd", "time zone"),
        ("0 0 * * *", "Europe", "time zone"),
    ],
)
def test_what_is_no_schedule_is_refused(expression: str, zone: str, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        check_schedule(expression, zone, 1_800_000_000)
