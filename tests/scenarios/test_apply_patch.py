"""``apply_patch`` as a command of the container, for models that were trained on the V4A format."""

from typing import Any

from openai import OpenAI

from tests.stack import SHELL, outputs, say, script, shell

CREATE = """apply_patch <<'EOF'
*** Begin Patch
*** Add File: src/app.py
+def greet():
+    print("Hi")
*** Add File: old.txt
+one line
*** End Patch
EOF"""

CHANGE = """apply_patch <<'EOF'
*** Begin Patch
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
-    print("Hi")
+    print("Hello")
*** Delete File: old.txt
*** End Patch
EOF"""

MISFIT = """apply_patch <<'EOF'
*** Begin Patch
*** Add File: new.txt
+never there
*** Update File: src/main.py
@@ def greet():
-    print("Good morning")
+    print("Good night")
*** End Patch
EOF"""

SHOW = "find . -type f | sort; cat src/*.py"


def run(client: OpenAI, *commands: str) -> list[tuple[str, str, int]]:
    """What each command printed and its exit code, one call after the other in one container."""
    response = client.responses.create(
        model="demo",
        input=script(*(shell(command) for command in commands), say("end")),
        tools=[SHELL],  # type: ignore[list-item]
    )
    return [call[0] for call in outputs(response.output)]


def test_files_are_created_updated_moved_and_deleted(client: OpenAI) -> None:
    created, first, changed, second = run(client, CREATE, SHOW, CHANGE, SHOW)
    assert created == ("Success. Updated the following files:\nA src/app.py\nA old.txt\n", "", 0)
    assert first == ('./old.txt\n./src/app.py\ndef greet():\n    print("Hi")\n', "", 0)
    assert changed == ("Success. Updated the following files:\nM src/main.py\nD old.txt\n", "", 0)
    assert second == ('./src/main.py\ndef greet():\n    print("Hello")\n', "", 0)


def test_a_hunk_that_does_not_fit_changes_nothing_and_says_why(client: OpenAI) -> None:
    *_, refused, after = run(client, CREATE, CHANGE, MISFIT, SHOW)
    stdout, stderr, code = refused
    assert (stdout, code) == ("", 1)
    assert "src/main.py" in stderr
    assert 'print("Good morning")' in stderr
    assert after == ('./src/main.py\ndef greet():\n    print("Hello")\n', "", 0)


def test_a_patched_file_is_a_file_of_the_container(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        input=script(shell(CREATE), say("See old.txt.")),
        tools=[SHELL],  # type: ignore[list-item]
    )
    answer: Any = response.output[-1]
    (citation,) = answer.content[0].annotations
    assert citation.type == "container_file_citation"
    content = client.containers.files.content.retrieve(citation.file_id, container_id=citation.container_id)
    assert content.read() == b"one line\n"
