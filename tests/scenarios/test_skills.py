"""Skills in responses: there before the first command, in the version that was found, however long the container lives."""

import base64
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response

from tests.scenarios.test_tenants import make_key
from tests.stack import Stack, outputs, say, script, shell
from tests.unit.skills.archives import MANIFEST, skill, zip_of


def manifest(edition: int) -> bytes:
    return MANIFEST.replace(b"Makes tables.", f"Makes tables, edition {edition}.".encode())


def pushed(client: OpenAI) -> str:
    return client.skills.create(files=[("tables/SKILL.md", manifest(1)), ("tables/run.sh", b"#!/bin/sh\necho edition 1\n")]).id


def run(client: OpenAI, skills: list[Any], *commands: str, **more: Any) -> Response:
    tools: Any = [{"type": "shell", "environment": {"type": "container_auto", "skills": skills}}]
    made: Response = client.responses.create(model="demo", input=script(shell(*commands), say("done")), tools=tools, **more)
    return made


def environment(response: Response) -> dict[str, Any]:
    (tool,) = response.model_dump(exclude_unset=True)["tools"]
    return dict(tool["environment"])


def printed(response: Response) -> list[str]:
    return [stdout for each in outputs(response.output) for stdout, _, _ in each]


def reference(skill_id: str, **more: str) -> dict[str, str]:
    return {"type": "skill_reference", "skill_id": skill_id, **more}


def test_a_skill_is_there_before_the_first_command_and_its_version_is_told(stack: Stack) -> None:
    client = stack.client()
    skill_id = pushed(client)
    response = run(client, [reference(skill_id)], "cd /home/oai/skills/* && pwd && ./run.sh && echo x >> SKILL.md")
    (told,) = environment(response)["skills"]
    assert told == {
        "type": "skill_reference",
        "skill_id": skill_id,
        "version": "1",
        "name": "make-tables",
        "description": "Makes tables, edition 1.",
        "path": told["path"],
    }
    assert printed(response) == [f"{told['path']}\nedition 1\n"]
    container_id = environment(response)["container_id"]
    assert client.containers.files.list(container_id).data == []


def test_a_version_that_is_replaced_changes_nothing_in_a_container_that_has_it(stack: Stack) -> None:
    client = stack.client()
    skill_id = pushed(client)
    first = run(client, [reference(skill_id, version="latest")], "cat /home/oai/skills/*/SKILL.md")
    client.skills.versions.create(skill_id, files=[("t/SKILL.md", manifest(2))], default=True)
    second = run(client, [reference(skill_id)], "cat /home/oai/skills/*/SKILL.md", previous_response_id=first.id)
    assert environment(second) == environment(first)
    assert printed(second) == printed(first) == [manifest(1).decode()]
    both = run(client, [reference(skill_id, version="2")], "ls /home/oai/skills | wc -l", previous_response_id=second.id)
    assert (environment(both)["skills"][0]["version"], printed(both)) == ("2", ["2\n"])
    new = run(client, [reference(skill_id)], "cat /home/oai/skills/*/SKILL.md")
    assert (environment(new)["skills"][0]["version"], printed(new)) == ("2", [manifest(2).decode()])


def test_a_deleted_skill_lives_on_in_its_containers_and_nowhere_else(stack: Stack) -> None:
    client = stack.client()
    skill_id = pushed(client)
    first = run(client, [reference(skill_id)], "true")
    client.skills.delete(skill_id)
    again = run(client, [reference(skill_id)], "/home/oai/skills/*/run.sh", previous_response_id=first.id)
    assert printed(again) == ["edition 1\n"]
    with pytest.raises(openai.NotFoundError) as refused:
        run(client, [reference(skill_id)], "true")
    assert refused.value.param == "tools[0].environment.skills[0].skill_id"


def test_the_services_own_skills_and_those_of_a_request_work_together(stack: Stack) -> None:
    client = stack.client()
    inline = {
        "type": "inline",
        "name": "make-tables",
        "description": "Makes tables.",
        "source": {"type": "base64", "media_type": "application/zip", "data": base64.b64encode(zip_of(skill())).decode()},
    }
    command = (
        "printf 'a,b\\n1,2\\n' > t.csv && python3 /home/oai/skills/sqlite-*/scripts/load.py t.db t.csv && ls /home/oai/skills | wc -l"
    )
    response = run(client, [reference("openai-sqlite"), inline], command)
    assert printed(response) == ["t: 1 rows, 2 columns, from t.csv\n2\n"]
    told = environment(response)["skills"]
    assert [(each["type"], each["name"]) for each in told] == [("skill_reference", "sqlite"), ("inline", "make-tables")]
    assert "source" not in told[1]
    kept = client.responses.retrieve(response.id)
    assert environment(kept) == environment(response)


def test_another_tenants_skill_is_unknown(stack: Stack) -> None:
    skill_id = pushed(stack.client())
    with pytest.raises(openai.NotFoundError, match=f"Skill with id '{skill_id}' not found."):
        run(stack.client(make_key(stack, "other")), [reference(skill_id)], "true")


def test_an_operators_default_skills_are_in_every_hosted_shell(tmp_path: Path) -> None:
    models = tmp_path / "models.toml"
    models.write_text('[skills]\ndefault = ["moorage-sqlite", "skill_of_nobody"]\n[[models]]\nname = "demo"\nprovider = "demo"\n')
    stack = Stack(tmp_path / "state", {"MOORAGE_MODELS_FILE": str(models)}).start()
    try:
        response = run(stack.client(), [reference("moorage-reports")], "ls /home/oai/skills")
        told = environment(response)["skills"]
        assert [each["skill_id"] for each in told] == ["moorage-reports", "moorage-sqlite"]
        assert printed(response) == ["".join(f"{each['path'].rpartition('/')[2]}\n" for each in told)]
        assert "default_skill_missing" in (stack.state_dir / "api.log").read_text()
    finally:
        assert stack.stop() == 0
