"""The five formal task families, as a plugin."""

from collections.abc import Iterable

from lgbench import Task, hookimpl
from lgbench_tasks.dictionary_lookup import DictionaryLookup
from lgbench_tasks.dyck import Dyck
from lgbench_tasks.max_retrieval import MaxRetrieval
from lgbench_tasks.set_complement import SetComplement
from lgbench_tasks.tomita import Tomita


@hookimpl
def lgbench_tasks() -> Iterable[Task]:
    yield SetComplement()
    yield MaxRetrieval()
    yield DictionaryLookup()
    yield from (Dyck(k, m) for k, m in [(1, 8), (2, 3), (2, 5), (8, 5)])
    yield from (Tomita(number) for number in range(1, 8))
