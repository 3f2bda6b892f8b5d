"""What the head of a SKILL.md may say, and the sentence for everything else."""

import pytest
from moorage.skills.front_matter import FrontMatter, SkillProblem, read


def head(*lines: str) -> bytes:
    return "\n".join(("---", *lines, "---", "", "# How")).encode()


@pytest.mark.parametrize(
    ("content", "expected"),
    {
        "the two fields": (head("name: make-tables", "description: Makes tables."), FrontMatter("make-tables", "Makes tables.")),
        "underscores": (head("name: basic_math", "description: Adds."), FrontMatter("basic_math", "Adds.")),
        "one letter": (head("name: a", "description: b"), FrontMatter("a", "b")),
        "the longest": (head(f"name: {'a' * 64}", f"description: {'é' * 1024}"), FrontMatter("a" * 64, "é" * 1024)),
        "folded text": (head("name: a", "description: >-", "  one", "  two"), FrontMatter("a", "one two")),
        "more fields": (head("name: a", "license: MIT", "metadata: {x: 1}", "description: b"), FrontMatter("a", "b")),
        "a byte order mark": (b"\xef\xbb\xbf" + head("name: a", "description: b"), FrontMatter("a", "b")),
        "Windows' lines": (head("name: a", "description: b").replace(b"\n", b"\r\n"), FrontMatter("a", "b")),
    }.values(),
    ids=str,
)
def test_front_matter_is_read(content: bytes, expected: FrontMatter) -> None:
    assert read(content, "SKILL.md") == expected


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"# How", "SKILL.md must begin with front matter: a line '---', 'name: ...', 'description: ...', and a line '---'."),
        (b"", "SKILL.md must begin with front matter: a line '---', 'name: ...', 'description: ...', and a line '---'."),
        (b"---\nname: a\n", "The front matter of SKILL.md has no closing line '---' within its first 16384 characters."),
        (b"---\nname: \xff\n---", "SKILL.md is not UTF-8 (byte 10)."),
        (head("name: [a"), "The front matter of SKILL.md is not valid YAML (line 2: expected ',' or ']', but got '<stream end>')."),
        (head("- a"), "The front matter of SKILL.md must be a mapping with 'name' and 'description'."),
        (head("description: b"), "The front matter of SKILL.md has no 'name'."),
        (head("name: a"), "The front matter of SKILL.md has no 'description'."),
        (head("name: 12", "description: b"), "The 'name' in SKILL.md must be text; put it in quotes."),
        (head("name: a", "description: ' '"), "The 'description' in SKILL.md is empty."),
        (head(f"name: {'a' * 65}", "description: b"), "The 'name' in SKILL.md has 65 characters; at most 64 are allowed."),
        (head("name: a", f"description: {'b' * 1025}"), "The 'description' in SKILL.md has 1025 characters; at most 1024 are allowed."),
        (head("name: !!python/object/apply:os.system [id]", "description: b"), "The front matter of SKILL.md is not valid YAML"),
        *(
            (head("name: a", "description: " + bracket * 5000), "The front matter of SKILL.md is not valid YAML (line 3: brackets are")
            for bracket in ("[", "{", "[{")
        ),
    ],
)
def test_what_is_no_front_matter_is_refused_in_a_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(SkillProblem) as problem:
        read(content, "SKILL.md")
    assert str(problem.value).startswith(sentence)


@pytest.mark.parametrize("name", ["A", "a--b", "-a", "a-", "a b", "a/b", "..", "é", "a__b", "a.b"])
def test_a_name_is_made_of_letters_digits_and_single_hyphens(name: str) -> None:
    with pytest.raises(SkillProblem) as problem:
        read(head(f"name: '{name}'", "description: b"), "SKILL.md")
    assert str(problem.value) == (
        "The 'name' in SKILL.md must consist of lower-case letters (a-z), digits and single hyphens or underscores, "
        "and begin and end with a letter or digit."
    )
