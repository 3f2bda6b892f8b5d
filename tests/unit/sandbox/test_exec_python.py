"""The exec server's Python session: its variables live on, and it says what has become of them."""

import asyncio

from moorage.sandbox.exec_client import ExecClient, FileListing, PythonEnded

from tests.unit.sandbox.support import (
    ServerProcess,
    collect_bytes,
    new_id,
    pieces,
    python,
    run,
)


class TestPython:
    async def test_variables_live_on_and_the_last_value_is_the_result(self, client: ExecClient) -> None:
        await python(client, "import math\nx = 20")
        output, ended = await python(client, "print('got', x)\nx + math.floor(1.5)")
        assert output == ("got 20\n", "")
        assert (ended.outcome, ended.exit_code, ended.result, ended.session_started) == ("exit", 0, "21", False)

    async def test_the_files_behind_a_run_come_with_its_end(self, client: ExecClient, server: ServerProcess) -> None:
        code = "with open('made', 'w') as file: file.write('x')"
        events = client.python(new_id(), code, timeout_ms=20_000, max_output_length=100, files_max=100)
        ended, listed = [event async for event in events if isinstance(event, PythonEnded | FileListing)]
        assert isinstance(ended, PythonEnded)
        assert listed == await client.list_files(str(server.workspace))
        assert isinstance(listed, FileListing)
        assert ("made", 1) in [(file.path, file.size) for file in listed.files]

    async def test_an_exception_is_a_traceback_of_the_users_code_only(self, client: ExecClient) -> None:
        output, ended = await python(client, "def f():\n    return 1 / 0\nf()")
        assert "ZeroDivisionError: division by zero" in output[1]
        assert "return 1 / 0" in output[1]
        assert "python_session" not in output[1]
        assert ended.exit_code == 1

    async def test_a_time_out_ends_the_session_and_the_next_run_says_so(self, client: ExecClient) -> None:
        await python(client, "y = 1")
        output, ended = await python(client, "print('on it')\nwhile True: pass", timeout_ms=500)
        assert (output[0], ended.outcome) == ("on it\n", "timeout")
        output, ended = await python(client, "'y' in globals()")
        assert (ended.result, ended.session_started) == ("False", True)

    async def test_runs_wait_for_each_other_and_repeat_nothing(self, client: ExecClient) -> None:
        await python(client, "log = []")
        ids = [new_id() for _ in range(4)] * 2
        code = "import time; time.sleep(0.1); log.append(1)"
        await asyncio.gather(*(python(client, code, exec_id=exec_id) for exec_id in ids))
        assert (await python(client, "len(log)"))[1].result == "4"

    async def test_code_that_meddles_with_the_session_only_loses_it(self, client: ExecClient) -> None:
        meddling = "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'garbage\\n' * 3)\n    except OSError: pass"
        await python(client, meddling, timeout_ms=2_000)
        await python(client, "import os; os._exit(3)")
        assert (await python(client, "1 + 1"))[1].result == "2"
        assert (await run(client, "echo alive")).stdout == "alive\n"

    async def test_open_figures_and_results_that_are_images_are_saved_and_named(
        self, client: ExecClient, server: ServerProcess
    ) -> None:
        """With a stand-in for matplotlib in the working directory: what counts is which of its functions are called."""
        pyplot = """
figures = {1: b"first", 2: b"second"}
class Figure:
    def __init__(self, number): self.number = number
    def savefig(self, path, **options): open(path, "wb").write(figures[self.number])
def get_fignums(): return sorted(figures)
def figure(number): return Figure(number)
def close(which): figures.clear()
"""
        await client.write_file("matplotlib/__init__.py", pieces(b""))
        await client.write_file("matplotlib/pyplot.py", pieces(pyplot.encode()))
        _, ended = await python(client, "import matplotlib.pyplot")
        assert ended.images == (f"{server.workspace}/figure-1.png", f"{server.workspace}/figure-2.png")
        assert await collect_bytes(client, "figure-2.png") == b"second"
        _, ended = await python(client, "class Image:\n    def _repr_png_(self): return b'image'\nImage()")
        assert ended.images == (f"{server.workspace}/figure-3.png",)
        assert (await python(client, "1"))[1].images == ()

    async def test_lines_of_notebooks_do_what_they_do_there(self, client: ExecClient, server: ServerProcess) -> None:
        code = r"""
%matplotlib inline
name = "a b.txt"
for number in range(2):
    !echo {number} don\'t >> "$name"; \
        echo ${HOME:+home} | awk '{print $1}'
files = !ls *.txt; exit 3
remainder = (7
    % 4)
text = '''
!echo no line of its own
'''
[files, remainder, text, _exit_code]"""
        output, ended = await python(client, code)
        assert output == ("home\nhome\n", "")
        assert ended.result == r"[['a b.txt'], 3, '\n!echo no line of its own\n', 3]"
        assert await collect_bytes(client, "a b.txt") == b"0 don't\n1 don't\n"
        output, ended = await python(client, "%%bash\nmkdir -p below\necho $((1 + 1))")
        assert (output, ended.exit_code, ended.result) == (("2\n", ""), 0, None)
        assert (await python(client, "%cd below\n%pwd"))[1].result == repr(f"{server.workspace}/below")

    async def test_a_line_of_a_notebook_that_is_not_known_says_so(self, client: ExecClient) -> None:
        output, ended = await python(client, "print('before')\n%autoreload 2")
        assert (output[0], ended.exit_code) == ("before\n", 1)
        assert "NameError: There is no magic '%autoreload' here" in output[1]
        output, ended = await python(client, "!ls\nx = = 1")
        assert (output[0], ended.exit_code, "SyntaxError" in output[1]) == ("", 1, True)

    async def test_large_code_and_large_output_pass(self, client: ExecClient) -> None:
        output, ended = await python(client, f"s = {'z' * 300_000!r}\nprint(s)\nlen(s)", chars=100)
        assert ended.result == "300000"
        assert ended.truncated_chars == 300_001 - 100
        assert output[0].startswith("z" * 50 + "\n… 299901 chars truncated")
