"""What a release states in several places agrees: version, extras, interpreters."""

import re
import tomllib

import yaml
from tools.check_release import EXTRAS_IMPORT
from tools.doc_blocks import ROOT

from cavalcade import __version__
from cavalcade.config import renamed

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
NEXT = re.match(r"\d+\.\d+\.\d+", __version__)[0]


def test_the_version_is_the_same_everywhere():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == NEXT
    assert re.findall(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == NEXT
    assert f"cavalcade-{NEXT}-py3-none-any.whl" in (ROOT / "docs/howto/install.md").read_text()


def test_every_extra_is_documented_and_tried():
    extras = set(PROJECT["optional-dependencies"])
    page = (ROOT / "docs/howto/install.md").read_text()
    assert {name for name in extras if f"`cavalcade[{name}]`" not in page} == {"release"}
    assert set(EXTRAS_IMPORT) == extras - {"test", "release", "dev"}  # those are for working on Cavalcade


def test_the_workflow_tries_every_extra_that_needs_no_gpu():
    jobs = yaml.safe_load((ROOT / ".github/workflows/wheel.yml").read_text())["jobs"]
    matrix = jobs["wheel"]["strategy"]["matrix"]
    (words,) = (step["run"].split() for step in jobs["wheel"]["steps"] if "--extras" in step.get("run", ""))
    tried = {*words, *(row.get("more") for row in matrix["include"])}
    assert set(EXTRAS_IMPORT) - tried == {"cuda", "docs"}  # make docs installs the latter


def test_an_sdist_has_what_its_readme_and_documents_read():
    included = set(PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    readme = (ROOT / "README.md").read_text()
    named = {*re.findall(r"-c (\S+)", readme), *re.findall(r"\]\((\w+\.\w+)\)", readme)}
    read = re.findall(r"\{include\} \.\./(\S+)", "".join(page.read_text() for page in (ROOT / "docs").glob("*.md")))
    assert {"constraints.txt", "CONTRIBUTING.md"} <= {*named, *read}
    assert {*named, *read, "Makefile"} <= included


def test_workflows_call_what_is_there():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for file in (ROOT / ".github/workflows").glob("*.yml"):
        jobs = yaml.safe_load(file.read_text())["jobs"].values()
        for run in [step["run"] for job in jobs for step in job["steps"] if "run" in step]:
            program, what, *rest = run.split()
            if program == "make":
                assert what in targets, run
            elif (program, what) == ("python", "-m"):
                source = (ROOT / f"{rest[0].replace('.', '/')}.py").read_text()
                assert all(f'"{word}"' in source for word in rest if word.startswith("--")), run
            else:
                assert (program, what) in (("pip", "install"), ("pip-audit", "--path")), run


def test_deprecations_are_listed():
    old = {*renamed._NAMES, *renamed._VALUES} - {"extras"}  # as an option it has another meaning, which stays
    for name in ("docs/coming-from.md", "CHANGELOG.md"):
        text = (ROOT / name).read_text()
        assert not [flag for flag in old if f"`--{flag.replace('_', '-')}" not in text], name
