from contextlib import aclosing

from moorage.api.foreground import Foreground
from moorage.loop.create import PreparedResponse

from tests.unit.loop.lab import Lab, say


async def test_the_model_has_its_request_when_the_client_hears_of_its_response() -> None:
    lab = Lab(say("hello"))
    run = Foreground(lab.runtime, PreparedResponse(lab.stored(is_background=False, is_looping=False), [], True))
    async with aclosing(run.batches()) as batches:
        opening = [event["type"] for event in await anext(batches)][:2]
        assert (opening, len(lab.model.requests)) == (["response.created", "response.in_progress"], 1)
