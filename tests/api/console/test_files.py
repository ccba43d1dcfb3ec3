# SPDX-License-Identifier: Apache-2.0
"""The console's files: what they may do, and that they are whole. No browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.http.routes_console import POLICY, STATIC_DIR
from api.http.settings import HttpSettings, Site, from_environment, read_sites
from dev.support.http_api import HttpApi, problem
from schemas.errors import SetupError

MODULES = sorted(STATIC_DIR.glob("*.js"))
ALICE = {"authorization": "Bearer of-alice"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpApi]:
    sites = (Site("other", "http://10.0.0.7:8080"),)
    http = HttpSettings(tokens={"alice": "of-alice"}, protect_reads=True, console_sites=sites)
    api = HttpApi(tmp_path_factory.mktemp("console"), http=http, fold=False, clock_interval_s=3600.0)
    yield api
    api.close()


def test_files_are_anybodys_and_the_list_of_routelakes_is_a_read(api: HttpApi) -> None:
    for path in STATIC_DIR.iterdir():
        answer = api.get(f"/console/{path.name}")
        assert (answer.status_code, answer.content) == (200, path.read_bytes())
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        tag = {"if-none-match": answer.headers["etag"]}
        assert api.get(f"/console/{path.name}", headers=tag).status_code == 304
    assert api.get("/console/").content == (STATIC_DIR / "index.html").read_bytes()
    assert api.get("/console").headers["location"] == "console/"
    problem(api.get("/console/nothing.js"), 404, "no-such-endpoint")
    problem(api.get("/console/..%2ffiles.py"), 404, "no-such-endpoint")
    problem(api.get("/console/sites.json"), 401, "unauthorized")
    found = api.get("/console/sites.json", headers=ALICE)
    assert found.json() == {"sites": [{"name": "other", "url": "http://10.0.0.7:8080"}]}


def test_the_policy_lets_nothing_in_but_files_of_this_origin() -> None:
    assert "unsafe" not in POLICY
    sources = {part.split(" ", 1)[0]: part.split(" ", 1)[1] for part in POLICY.split("; ")}
    assert set(sources.values()) == {"'none'", "'self'", "'script'"}
    assert sources["default-src"] == sources["frame-ancestors"] == sources["trusted-types"] == "'none'"


def test_the_page_preloads_what_the_first_modules_import() -> None:
    """So that the browser fetches them at once, not one after the other as it finds their names."""
    index = (STATIC_DIR / "index.html").read_text()
    first = re.findall(r'<script type="module" src="(\w+\.js)"', index)
    assert first[-1] == "main.js"
    wanted, found = list(first), set[str]()
    while wanted:
        names = re.findall(r'^import .*? from "\./(\w+\.js)";', (STATIC_DIR / wanted.pop()).read_text(), re.MULTILINE)
        wanted += set(names) - found
        found |= set(names)
    preloaded = re.findall(r'rel="modulepreload" href="(\w+\.js)"', index)
    assert found <= {*preloaded, *first}
    assert set(preloaded) <= {path.name for path in MODULES}


@pytest.mark.parametrize("path", sorted(STATIC_DIR.iterdir()), ids=lambda path: path.name)
def test_a_file_asks_nobody_else_and_makes_no_code_or_html_of_text(path: Path) -> None:
    text = path.read_text()
    addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.-]*\.[a-z]+", text))
    assert addresses <= {"http://www.w3.org"}, "an address of elsewhere"  # the name of SVG
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "style="):
        assert word not in text, word
    if path.suffix != ".svg":
        assert "SPDX-License-Identifier: Apache-2.0" in text
    assert text.count("\n") < 300


def test_modules_import_what_is_there_and_in_no_circle() -> None:
    imports: dict[str, set[str]] = {}
    for path in MODULES:
        text = path.read_text()
        imports[path.name] = set(re.findall(r'from "\./([\w.]+)"', text))
        for names, other in re.findall(r'import \{([^}]+)\} from "\./([\w.]+)"', text):
            exported = re.findall(
                r"^export (?:async )?(?:function|const|class) (\w+)", (STATIC_DIR / other).read_text(), re.M
            )
            assert {name.strip() for name in names.split(",")} <= set(exported), (path.name, other)
    while imports:
        free = [name for name, others in imports.items() if not others & imports.keys()]
        assert free, f"in a circle: {sorted(imports)}"
        for name in free:
            del imports[name]


def test_a_list_of_routelakes(tmp_path: Path) -> None:
    file = tmp_path / "sites"
    file.write_text("# ours\n\nproduction https://ns1.example:8080/\nsix http://[2001:db8::7]:8080\n")
    found = (Site("production", "https://ns1.example:8080"), Site("six", "http://[2001:db8::7]:8080"))
    assert read_sites(file) == found
    assert from_environment({"ROUTELAKE_HTTP_CONSOLE_SITES": str(file)}).console_sites == found


@pytest.mark.parametrize(
    "line",
    ["production", "a b c", "x javascript:alert(1)", "x ftp://h", "x http://u@h", "x http://h:99999", "x http://"],
)
def test_a_line_that_is_no_name_and_address_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "sites"
    file.write_text(f"good http://h:8080\n{line}\n")
    with pytest.raises(SetupError, match="line 2: expected NAME http://HOST:PORT"):
        read_sites(file)


def test_a_name_that_is_there_twice_and_a_file_that_is_not(tmp_path: Path) -> None:
    file = tmp_path / "sites"
    file.write_text("one http://a\none http://b\n")
    with pytest.raises(SetupError, match="'one' has two lines"):
        read_sites(file)
    with pytest.raises(SetupError, match="cannot be read"):
        from_environment({"ROUTELAKE_HTTP_CONSOLE_SITES": str(tmp_path / "none")})
