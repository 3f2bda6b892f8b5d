"""A deployment that drains begins nothing, and what runs comes to its end: it can be read, and what it owes is done."""

from dataclasses import replace

from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab, say, shell


async def test_what_runs_goes_on_and_nothing_new_is_begun_while_a_deployment_drains() -> None:
    lab = Lab(shell("ls"), say("Done."), say("Again."))
    served = Served.of(lab)
    running = await lab.background()
    lab.runtime.settings = replace(lab.runtime.settings, drain=True)
    before = dict(lab.table.records)
    for path, body in (
        ("responses", {"model": "m", "input": "hi", "background": True}),
        ("responses", {"model": "m", "input": "hi", "stream": True}),
        ("chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    ):
        refused = await served.post(path, body)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], refused.headers["retry-after"]) == (503, "draining", "60"), path
    assert (lab.table.records, lab.model.requests) == (before, []), "a refusal costs the table nothing"
    await lab.run(running)
    assert (await served.get(f"responses/{running.response_id}")).json()["status"] == "completed"
    assert len(lab.sandboxes.executed) == 1

    lab.runtime.settings = replace(lab.runtime.settings, drain=False)
    assert (await served.post("responses", {"model": "m", "input": "hi"})).json()["status"] == "completed"
