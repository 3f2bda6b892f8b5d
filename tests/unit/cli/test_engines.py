"""``moorage doctor`` on the search engine and the image model of models.toml, asked over real HTTP."""

from pathlib import Path

import pytest
from moorage.cli.checks.engines import of_engines
from moorage.cli.checks.findings import Finding, Level
from moorage.model.image_engine import ImageEngine

from tests.drawing import KEY as DRAWING_KEY
from tests.drawing import Drawing
from tests.mcp_servers import beside, serving
from tests.search_engines import KEY, SearchEngines

TIDES = [{"url": "https://tides.example/", "title": "Tides", "text": "High."}]


def found(tmp_path: Path, text: str, **environ: str) -> list[tuple[Level, str]]:
    file = tmp_path / "models.toml"
    file.write_text(text)
    said = of_engines({"MOORAGE_MODELS_FILE": str(file), **environ})
    return [(finding.level, finding.what) for finding in said if isinstance(finding, Finding)]


def test_without_engines_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert found(tmp_path, "") == []
    assert found(tmp_path, "[[models") == [], "that is said of the models"


SEARCHES = {
    "well": (200, KEY, TIDES, Level.OK, "the search engine (brave) answers, and finds pages"),
    "a wrong key": (200, "wr0ng", TIDES, Level.FAIL, "it does not take this deployment's key"),
    "no searches left": (429, KEY, TIDES, Level.FAIL, "it takes no more searches for now"),
    "nothing found": (200, KEY, [], Level.WARN, "finds nothing for 'weather'"),
}


@pytest.mark.parametrize(("status", "key", "pages", "level", "words"), SEARCHES.values(), ids=SEARCHES)
def test_a_search_engine_is_searched_with_once(
    tmp_path: Path, status: int, key: str, pages: list[dict[str, str]], level: Level, words: str
) -> None:
    made = SearchEngines(pages, status=status)
    with beside(lambda: serving(made)) as running:
        table = f'[web_search]\nkind = "brave"\nurl = "{running.url}/brave"\nkey = "env:SEARCH"\n'
        ((said, what),) = found(tmp_path, table, SEARCH=key)
    assert (said, words in what, key in what) == (level, True, False)
    assert len(made.asked) == (0 if key == "wr0ng" else 1)


def test_an_engine_that_is_away_is_a_failure(tmp_path: Path) -> None:
    with beside(lambda: serving(SearchEngines())) as running:
        url = running.url
    tables = f'[web_search]\nkind = "searxng"\nurl = "{url}"\n[image_generation]\nkind = "openai"\nurl = "{url}"\nmodel = "flux"\n'
    (search, image) = found(tmp_path, tables)
    assert (search[0], image[0]) == (Level.FAIL, Level.FAIL)
    assert "the server cannot be reached" in search[1] + image[1]


@pytest.mark.parametrize(("key", "level"), [(DRAWING_KEY, Level.WARN), ("wr0ng", Level.FAIL)])
def test_an_image_model_is_not_paid_for_an_image(tmp_path: Path, key: str, level: Level) -> None:
    """The fake lists no models, as some servers do not."""
    made = Drawing()
    with beside(lambda: serving(made)) as running:
        table = f'[image_generation]\nkind = "openai"\nurl = "{running.url}/v1"\nmodel = "flux"\nkey = "env:IMAGES"\n'
        ((said, what),) = found(tmp_path, table, IMAGES=key)
    assert (said, made.asked, key in what) == (level, [], False)


def test_an_image_model_of_bedrock_is_not_asked(tmp_path: Path) -> None:
    model = "stability.stable-image-ultra-v1:1"
    table = f'[image_generation]\nkind = "bedrock"\nmodel = "{model}"\nregion = "us-west-2"\n'
    assert found(tmp_path, table) == [
        (Level.OK, f"the image model '{model}' is Bedrock's in us-west-2; it is not asked, because each image is paid for")
    ]
    assert ImageEngine("bedrock", "", model).serves(model)
