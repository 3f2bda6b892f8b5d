"""List prices of AWS, autumn 2026, without the free tier: for ``make cost``, the dashboard, ``docs/aws.md`` and responses."""

from dataclasses import dataclass
from typing import Final

from infra.config import Config
from infra.functions import REAPER_MEMORY_MIB

HOURS_A_MONTH: Final = 730


@dataclass(frozen=True)
class Prices:
    """Dollars."""

    api_request: float
    lambda_gb_second: float
    lambda_request: float
    transition: float
    write_unit: float
    read_unit: float
    s3_put: float
    s3_get: float
    fargate_vcpu_second: float
    fargate_gb_second: float
    microvm_vcpu_second: float
    microvm_gb_second: float
    microvm_read_gb: float
    """Of a memory snapshot, at a start and at each waking; written at each falling asleep."""
    microvm_write_gb: float
    microvm_image_gb_month: float
    endpoint_hour: float
    secret_month: float
    alarm_month: float
    image_gb_month: float
    dns_lists_month: float
    """Of both domain lists of the DNS firewall."""

    def at_rest(self, config: Config) -> float:
        """A month without a request. ``docs/aws.md`` lists the parts; options that it prices by themselves are left out."""
        month = self.secret_month + ALARMS * self.alarm_month + self.reaper(3 if config.has_fargate else 2)
        month += len(config.microvm_tiers) * MICROVM_IMAGE_GB * self.microvm_image_gb_month
        if not config.has_fargate:
            return month + (IMAGE_GB * self.image_gb_month if config.has_microvms else 0)
        endpoints = (len(ENDPOINTS) + config.sandbox_logs) * config.availability_zones
        return month + endpoints * self.endpoint_hour * HOURS_A_MONTH + IMAGE_GB * self.image_gb_month + self.dns_lists_month

    def microvm(self, running_seconds: float, busy_seconds: float) -> float:
        """One that runs so long from its start until it sleeps, as tier ``1g``: with a quarter of a vCPU and half a GB, and a whole
        vCPU while it is busy. A night's sleep adds less than a cent."""
        baseline = self.microvm_vcpu_second * MICROVM_VCPU + self.microvm_gb_second * MICROVM_GB
        burst = busy_seconds * (1 - MICROVM_VCPU) * self.microvm_vcpu_second
        return running_seconds * baseline + burst + MICROVM_SNAPSHOT_GB * (self.microvm_read_gb + self.microvm_write_gb)

    def reaper(self, functions: int) -> float:
        """A month of its functions: they look for work once a minute."""
        look = self.lambda_request + REAPER_SECONDS * REAPER_MEMORY_MIB / 1024 * self.lambda_gb_second
        return HOURS_A_MONTH * 60 * (functions * look + REAPER_READ_UNITS * self.read_unit)


ENDPOINTS: Final = ("ecr.api", "ecr.dkr")
"""Interface endpoints that Fargate pulls images through; each is paid for by the hour and zone."""

REAPER_SECONDS: Final = 0.1
REAPER_READ_UNITS: Final = 4.5
"""Of a look that finds nothing: an estimate, and nine queries with half a unit each."""

ALARMS: Final = 5
IMAGE_GB: Final = 1.0
MICROVM_IMAGE_GB: Final = 3.0
MICROVM_SNAPSHOT_GB: Final = 0.6
"""Reported of images with Python and libraries: 0.57 to 0.92 GB of memory. Not measured here."""
MICROVM_VCPU: Final = 0.25
MICROVM_GB: Final = 0.5

PRICES: Final = {
    "us-east-1": Prices(
        api_request=3.5e-6,
        lambda_gb_second=1.33334e-5,
        lambda_request=2e-7,
        transition=2.5e-5,
        write_unit=6.25e-7,
        read_unit=1.25e-7,
        s3_put=5e-6,
        s3_get=4e-7,
        fargate_vcpu_second=8.9944e-6,
        fargate_gb_second=9.889e-7,
        microvm_vcpu_second=2.76944e-5,
        microvm_gb_second=3.6667e-6,
        microvm_read_gb=1.5468e-3,
        microvm_write_gb=3.7977e-3,
        microvm_image_gb_month=0.0811,
        endpoint_hour=0.01,
        secret_month=0.40,
        alarm_month=0.10,
        image_gb_month=0.10,
        dns_lists_month=0.01,
    )
}
"""By region. Another region's row goes beside it, from its price pages."""

DEFAULT_REGION: Final = "us-east-1"
"""Whose prices stand for those of a region without a row."""

LISTED_IN: Final = "2026-11"


def sandbox_price(config: Config, region: str) -> tuple[tuple[float, float] | None, str]:
    """Dollars of an hour of a vCPU and of a GiB, and where they stand. What Lambda asks for MicroVMs goes by what they use."""
    if config.settings.sandbox_price is not None:
        return config.settings.sandbox_price, "sandbox_price of the deployment"
    if not config.has_fargate:
        return None, ""
    known = region if region in PRICES else DEFAULT_REGION
    prices = PRICES[known]
    hour = round(prices.fargate_vcpu_second * 3600, 5), round(prices.fargate_gb_second * 3600, 5)
    return hour, f"Fargate's list prices of {known}, {LISTED_IN}"
