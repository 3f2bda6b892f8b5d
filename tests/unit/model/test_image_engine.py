"""The image model that the operator names in models.toml."""

import pytest
from moorage.errors import SettingsConflict
from moorage.model.catalog import ModelCatalog
from moorage.model.image_engine import ImageEngine
from moorage.model.remote_servers import RemoteServers

ULTRA = "stability.stable-image-ultra-v1:1"
ENGINES = {
    "OpenAI": (
        'kind = "openai"\nkey = "env:IMAGES"\nmodel = "gpt-image-1.5"\nmodels = ["gpt-image-*"]\n',
        ImageEngine("openai", "https://api.openai.com/v1", "gpt-image-1.5", ("gpt-image-*",), "k3y"),
    ),
    "a server of one's own": (
        'kind = "openai"\nurl = "http://10.0.0.7:8080/v1/"\nmodel = "flux"\n',
        ImageEngine("openai", "http://10.0.0.7:8080/v1", "flux"),
    ),
    "Bedrock by IAM": (
        f'kind = "bedrock"\nmodel = "{ULTRA}"\nregion = "us-west-2"\n',
        ImageEngine("bedrock", "https://bedrock-runtime.us-west-2.amazonaws.com", ULTRA, region="us-west-2"),
    ),
    "Bedrock by a key, where the process is": (
        f'kind = "bedrock"\nmodel = "{ULTRA}"\nkey = "env:IMAGES"\n',
        ImageEngine("bedrock", "https://bedrock-runtime.eu-west-1.amazonaws.com", ULTRA, key="k3y", region="eu-west-1"),
    ),
}


@pytest.mark.parametrize(("table", "engine"), ENGINES.values(), ids=ENGINES)
def test_an_image_model_has_its_key_by_reference_and_comes_back_from_its_secret(table: str, engine: ImageEngine) -> None:
    catalog = ModelCatalog.load(f"[image_generation]\n{table}", {"IMAGES": "k3y", "AWS_REGION": "eu-west-1"})
    assert catalog.remote_servers == RemoteServers(images=engine)
    assert ImageEngine.from_secret(engine.to_secret()) == engine
    assert "k3y" not in repr(catalog.remote_servers)


def test_requests_may_name_its_model_and_others_that_the_operator_allows() -> None:
    engine = ImageEngine("openai", "", "flux", ("gpt-image-*",))
    assert [engine.serves(model) for model in ("flux", "gpt-image-2", "dall-e-3")] == [True, True, False]


WRONG = {
    "another kind": ('kind = "paint"\nmodel = "m"\n', "image_generation.kind"),
    "no model": ('kind = "openai"\nkey = "env:IMAGES"\n', "image_generation.model"),
    "another field": ('kind = "openai"\nmodel = "m"\nsecret = "env:A"\n', "image_generation.secret"),
    "neither key nor url": ('kind = "openai"\nmodel = "m"\n', "OpenAI needs a key"),
    "no URL": ('kind = "openai"\nmodel = "m"\nurl = "x.example"\n', "is not an http or https URL"),
    "a query": ('kind = "openai"\nmodel = "m"\nurl = "http://x.example/?a"\n', "without a query"),
    "the key itself": ('kind = "openai"\nmodel = "m"\nkey = "verysecret"\n', "must be a reference"),
    "a region for OpenAI": ('kind = "openai"\nmodel = "m"\nkey = "env:IMAGES"\nregion = "eu-west-1"\n', "openai takes no region"),
    "no region": (f'kind = "bedrock"\nmodel = "{ULTRA}"\n', "Bedrock needs a region"),
    "a model of Bedrock that is not there any more": (
        'kind = "bedrock"\nmodel = "amazon.nova-canvas-v1:0"\nregion = "us-east-1"\n',
        "Stability's models draw",
    ),
    "a pattern on Bedrock": (
        f'kind = "bedrock"\nmodel = "{ULTRA}"\nmodels = ["stability.*"]\nregion = "us-east-1"\n',
        "Stability's models draw",
    ),
}


@pytest.mark.parametrize(("table", "words"), WRONG.values(), ids=WRONG)
def test_an_image_model_that_cannot_be_is_said_at_the_start(table: str, words: str) -> None:
    with pytest.raises(SettingsConflict, match=words) as refused:
        ModelCatalog.load(f"[image_generation]\n{table}", {"IMAGES": "k3y"})
    assert "verysecret" not in str(refused.value)
