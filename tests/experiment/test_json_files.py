"""Options whose value is a JSON object: users name a file, and runs keep its content."""

from __future__ import annotations

import json

import pytest
import toys
from helpers.planning import plan_of
from helpers.toy_registries import toys_and

from lgbench import JsonFile
from lgbench.errors import UsageError
from lgbench.experiment.plan import Replanner
from lgbench.experiment.settings import json_content, setting_label

SIZES = {"width": 3, "deep": {"b": [1, 2.5], "a": None}}
OTHER = {"width": 4, "deep": {}}


class FromFile(toys.TableArchitecture):
    """A table with sizes that it does not use."""

    name = "from-file"

    def build(self, signature, parts, *, sizes: JsonFile = JsonFile()):  # noqa: B008
        assert not sizes or json.loads(sizes) in (SIZES, OTHER)
        return super().build(signature, parts)


@pytest.fixture
def registry():
    return toys_and(architecture=FromFile())


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "sizes.json"
    path.write_text(json.dumps(SIZES, indent=4))
    return path


def planned(registry, *values):
    changes = {"model.sizes": ",".join(map(str, values))}
    return plan_of(registry, "toy-walk", "from-file", set=changes).experiments


def test_the_record_has_the_content_and_the_protocol_its_hash(registry, path):
    (experiment,) = planned(registry, path)
    option = dict(experiment.record.options)["model.sizes"]
    assert option == '{"deep":{"a":null,"b":[1,2.5]},"width":3}'
    assert experiment.record.protocol.changes == (("model.sizes", setting_label(option)),)
    assert setting_label(option).startswith("sha256:") and "," not in setting_label(option)


def test_a_run_depends_on_the_content_and_not_on_its_place_or_layout(registry, path, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps(dict(reversed(SIZES.items()))))
    first, second = planned(registry, path, other)[:1], planned(registry, other)
    assert first == second
    (plain,) = plan_of(registry, "toy-walk", "from-file").experiments
    assert plain.run_id != second[0].run_id


def test_a_record_is_planned_again_without_the_file(registry, path):
    (experiment,) = planned(registry, path)
    path.unlink()
    assert Replanner(registry).experiment(experiment.record).record == experiment.record


def test_an_object_may_stand_in_the_place_of_a_file(registry, path):
    assert planned(registry, path) == planned(registry, json.dumps(SIZES))


def test_several_objects_and_files_are_all_run(registry, path):
    other = json.dumps(OTHER)
    found = plan_of(registry, "toy-walk", "from-file", set={"model.sizes": [path, other]}).experiments
    assert [*found] == [*planned(registry, path), *planned(registry, other)] and len({*found}) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file or directory; name a file with a JSON object"),
        (b"", "is no JSON object: Input data was truncated"),
        (b"[]", "is no JSON object: Expected `object`, got `array`"),
        (b'{"a": NaN}', "is no JSON object: JSON is malformed"),
        (b'{"a": "' + b"x" * 2000 + b'"}', "has 2008 letters without spaces, and at most 1000 fit into the metadata of a run"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, content, words):
    path = tmp_path / "sizes.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        json_content("model.sizes", str(path))
    assert words in str(raised.value) and "model.sizes" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["", "."])
def test_a_name_that_is_no_file_is_refused(name):
    with pytest.raises(UsageError, match="name a file with a JSON object"):
        json_content("model.sizes", name)
