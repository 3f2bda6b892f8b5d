"""What a deployment with MicroVMs asks of its custom resources: a base image, an archive with a Dockerfile, and an end."""

import io
import zipfile
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.stub import ANY

from functions.custom_resource.handler import MICROVM_ROUNDS_MAX, respond
from tests.unit.aws.custom_resources import Account, ResponseUrl, answered, request

BASE = "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1"
IMAGES = [f"arn:aws:lambda:us-east-1:000000000000:microvm-image:moorage-{tier}" for tier in ("1g", "4g")]
DAYS = [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2, 3)]


def base(url: ResponseUrl, kind: str, **properties: str) -> dict[str, Any]:
    wanted = {"Image": BASE, "Edition": "1", **properties}
    return request(url, kind, ResourceType="Custom::MicrovmBase", LogicalResourceId="ImageBuild", ResourceProperties=wanted)


def versions(account: Account, *statuses: str | None, form: str = "{}") -> None:
    """Those of the base image, by their age."""
    items = [
        {"imageArn": BASE, "imageVersion": form.format(number), "createdAt": DAYS[number], **({"status": status} if status else {})}
        for number, status in enumerate(statuses)
    ]
    account.microvms.add_response("list_managed_microvm_image_versions", {"items": items[::-1]}, {"imageIdentifier": BASE})


@pytest.mark.parametrize("form", ["{}", "{}.0"])
def test_images_are_built_on_the_newest_base_that_is_not_on_its_way_out(form: str, url: ResponseUrl, account: Account) -> None:
    """By its number without a point: the resource refuses 1.0 ("Expected a single major version number", reported)."""
    update = base(url, "Update")
    versions(account, "AVAILABLE", None, "DEPRECATED", form=form)
    respond(update, account.client, pause=lambda _: pytest.fail("only a new role needs time"))
    assert url.answers == [answered(update, "SUCCESS", Version="1")]


def test_a_new_deployment_waits_until_its_roles_are_seen(url: ResponseUrl, account: Account) -> None:
    create, pauses = base(url, "Create", Version="7"), list[float]()
    respond(create, account.client, pause=pauses.append)
    assert (url.answers, pauses) == ([answered(create, "SUCCESS", Version="7")], [30])


def test_a_base_image_without_a_version_to_build_on_is_named(url: ResponseUrl, account: Account) -> None:
    update = base(url, "Update")
    versions(account, "DEPRECATED")
    respond(update, account.client)
    assert url.answers == [answered(update, "FAILED", f"LookupError: the region has no version of {BASE} to build on")]


SOURCE = {"Bucket": "objects", "Key": "microvm-images/abc.zip", "Dockerfile": "FROM registry/image:tag\nEXPOSE 8080\n"}


def source(url: ResponseUrl, kind: str) -> dict[str, Any]:
    return request(url, kind, ResourceType="Custom::MicrovmSource", LogicalResourceId="ImageBuild", ResourceProperties=SOURCE)


def test_an_image_is_made_from_an_archive_with_a_dockerfile(url: ResponseUrl, account: Account) -> None:
    create, kept = source(url, "Create"), list[bytes]()
    events = account.clients["s3"].meta.events
    account.s3.add_response("put_object", {}, {"Bucket": "objects", "Key": SOURCE["Key"], "Body": ANY})
    events.register_first("before-parameter-build.s3.PutObject", lambda params, **_: kept.append(params["Body"]))
    respond(create, account.client)
    assert url.answers == [answered(create, "SUCCESS")]
    with zipfile.ZipFile(io.BytesIO(kept[0])) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == {"Dockerfile": SOURCE["Dockerfile"]}


def test_the_archive_goes_with_its_resource(url: ResponseUrl, account: Account) -> None:
    delete = source(url, "Delete")
    account.s3.add_response("delete_object", {}, {"Bucket": "objects", "Key": SOURCE["Key"]})
    respond(delete, account.client)
    assert url.answers == [answered(delete, "SUCCESS")]


def end(url: ResponseUrl, kind: str) -> dict[str, Any]:
    return request(url, kind, ResourceType="Custom::Microvms", LogicalResourceId="ImageBuild", ResourceProperties={"Images": IMAGES})


def lists(account: Account, *of_images: dict[str, str]) -> None:
    """The VMs of each image, by their state."""
    for image, vms in zip(IMAGES, of_images, strict=True):
        items = [
            {"microvmId": name, "state": state, "imageArn": image, "imageVersion": "1.0", "startedAt": DAYS[0]}
            for name, state in vms.items()
        ]
        account.microvms.add_response("list_microvms", {"items": items}, {"imageIdentifier": image})


def ends(account: Account, *names: str) -> None:
    for name in names:
        account.microvms.add_response("terminate_microvm", {}, {"microvmIdentifier": name})


def test_nothing_ends_while_the_deployment_stands(url: ResponseUrl, account: Account) -> None:
    update = end(url, "Update")
    respond(update, account.client)
    assert url.answers == [answered(update, "SUCCESS")]


def test_every_vm_is_ended_before_images_and_network_go(url: ResponseUrl, account: Account) -> None:
    """Ended VMs stay in the list for twenty minutes; one that ends by itself meanwhile is no error."""
    delete = end(url, "Delete")
    lists(account, {"a": "RUNNING", "b": "SUSPENDED", "c": "TERMINATED"}, {"d": "PENDING"})
    ends(account, "a")
    account.microvms.add_client_error("terminate_microvm", "ResourceNotFoundException", "no", 404)
    ends(account, "d")
    lists(account, {"a": "TERMINATING", "c": "TERMINATED"}, {"d": "TERMINATED"})
    lists(account, {"a": "TERMINATED"}, {})
    respond(delete, account.client, pause=lambda _: None)
    assert url.answers == [answered(delete, "SUCCESS")]


def test_an_image_that_is_gone_has_no_vms(url: ResponseUrl, account: Account) -> None:
    delete = end(url, "Delete")
    for _ in IMAGES:
        account.microvms.add_client_error("list_microvms", "ResourceNotFoundException", "no", 404)
    respond(delete, account.client)
    assert url.answers == [answered(delete, "SUCCESS")]


def test_vms_that_never_end_are_told(url: ResponseUrl, account: Account) -> None:
    delete = end(url, "Delete")
    for _ in range(MICROVM_ROUNDS_MAX):
        lists(account, {"a": "TERMINATING"}, {})
    respond(delete, account.client, pause=lambda _: None)
    reason = "RuntimeError: something starts MicroVMs as fast as they are ended; delete the stack again"
    assert url.answers == [answered(delete, "FAILED", reason)]
